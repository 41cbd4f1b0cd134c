"""Input on a GPU: the augmented batch from the resident store, and what it adds to a training step.

    python benchmarks/bench_input_gpu.py [--save]

The data are random images in the number and size of PACS (9,991 of 227 x 227 pixels, 1.5 GB) on the GPU. A batch is
3 x 32 images at 224 x 224 with the whole augmentation, including its random draws. The other side is torchvision v2,
image by image, on the same GPU. Before anything is timed, images are compared with torchvision's for the same
parameters. A training step is compared with the same step on one constant batch. Both take turns in short stretches and
the ratio is the median over the turns, so other work of the host slows both sides of a turn.
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from harness import parse, show
from messi.algorithms.common.base import build
from messi.algorithms.erm import ERM
from messi.core.batch import Batch, InputSpec, Task
from messi.core.seeding import deterministic
from messi.data import augment, augment_kernels
from messi.data.augment import AugmentationConfig
from messi.data.examples import Examples
from messi.data.images import Images
from messi.data.loader import Loader
from messi.data.placement import place
from messi.data.sampling import Sampler, SamplingConfig
from messi.data.sealed_data import SealedData
from messi.data.splits import SplitConfig, make_split
from messi.engine.stepper import AdamStepper, OptimizerConfig
from messi.models.encoder import EncoderConfig

DEVICE = torch.device("cuda")
NUMBER, SIDE, DOMAINS, PER_DOMAIN, CLASSES = 9991, 227, 4, 32, 7
SPEC = InputSpec(shape=(3, 224, 224), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
WHOLE = InputSpec(shape=(3, 224, 224), mean=(0.0, 0.0, 0.0), std=(1 / 255, 1 / 255, 1 / 255))
CHANGES = (
    functional.adjust_brightness,
    functional.adjust_contrast,
    functional.adjust_saturation,
    functional.adjust_hue,
)
WARM_UP, BATCHES, STRETCH, TURNS = 20, 200, 10, 40
HELD_TO_MS, HELD_TO_RATIO = 1.0, 1.03


def make_images() -> Images:
    """Return random smooth colours with noise, like photographs, packed like a store."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    parts = []
    for start in range(0, NUMBER, 500):
        number = min(500, NUMBER - start)
        coarse = torch.rand(number, 3, 6, 6, generator=generator, device=DEVICE)
        smooth = torch.nn.functional.interpolate(coarse, (SIDE, SIDE), mode="bilinear")
        noise = torch.rand(smooth.shape, generator=generator, device=DEVICE)
        parts.append((255 * (0.7 * smooth + 0.3 * noise)).to(torch.uint8).cpu())
    return Images.pack(torch.cat(parts))


def make_loader(images: Images) -> Loader:
    generator = torch.Generator().manual_seed(1)
    domains = torch.arange(NUMBER) % DOMAINS
    labels = torch.randint(CLASSES, (NUMBER,), generator=generator)
    names = tuple(str(d) for d in range(DOMAINS))
    examples = Examples(images, labels, domains, tuple("abcdefg"), names, "random")
    split = make_split(
        examples, [3], SplitConfig(split="stratified", validation_fraction=0.2, target_part="all"), seed=0
    )
    members = list(split.train.values())
    sampler = Sampler(
        config=SamplingConfig(sampling="replacement", batch_per_domain=PER_DOMAIN, domains_per_batch=None),
        members=members,
        labels=[labels[m] for m in members],
        seed=0,
    )
    sealed = SealedData(examples, split)
    return Loader(
        data=sealed,
        spec=SPEC,
        device=DEVICE,
        sampler=sampler,
        augmentation=AugmentationConfig(augmentation="domainbed", validation_augmentation=False),
    )


def torchvision_images(images: Images, drawn: augment.Parameters) -> Tensor:
    """Apply the parameters with torchvision's functions, image by image."""
    results = []
    for i, image in enumerate(images):
        result = functional.resized_crop(image, *drawn.boxes[i].tolist(), [224, 224], antialias=True)
        result = functional.horizontal_flip(result) if drawn.flip[i] else result
        for number in drawn.order[i].tolist():
            result = CHANGES[number](result, drawn.factors[i, number].item())
        results.append(functional.rgb_to_grayscale(result, 3) if drawn.gray[i] else result)
    return torch.stack(results)


def assert_equal_results(images: Images) -> str:
    """Compare every step to within 1/255, and the chain, in which each of six steps may round differently."""
    some = images.select(slice(0, 96))
    drawn = augment.draw_parameters(some.sizes, torch.Generator().manual_seed(2))
    neutral = torch.tensor([1.0, 1.0, 1.0, 0.0]).repeat(96, 1)
    off = torch.zeros(96, dtype=torch.bool)
    assert compare(some, augment.Parameters(drawn.boxes, drawn.flip, neutral, drawn.order, off)).max() <= 1
    cut = Images.pack([image[:, :224, :224] for image in some])
    boxes = torch.tensor([0, 0, 224, 224], dtype=torch.int32).repeat(96, 1)
    for number in range(4):
        factors = neutral.clone()
        factors[:, number] = drawn.factors[:, number]
        assert compare(cut, augment.Parameters(boxes, off, factors, drawn.order, off)).max() <= 1, number
    whole = compare(some, drawn)
    assert whole.mean() < 0.5, whole.mean()
    assert whole.max() <= 8, whole.max()
    return f"every step to 1 of 255, the whole chain to {whole.mean():.3f} on average (at most {whole.max():.0f})"


def compare(images: Images, drawn: augment.Parameters) -> Tensor:
    on_gpu = images.gather().to(DEVICE)
    ours = augment_kernels.augment(on_gpu, drawn.map(Tensor.cuda), WHOLE).round()
    return (ours - torchvision_images(on_gpu, drawn).float()).abs().cpu()


def milliseconds(work: Callable[[int], object], repeats: int) -> float:
    """Return the mean time of one call, including the GPU."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for number in range(repeats):
        work(number)
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start) / repeats


def median_of(work: Callable[[int], object], repeats: int, turns: int = 7) -> float:
    for number in range(min(repeats, WARM_UP)):
        work(number)
    return statistics.median(milliseconds(work, repeats) for _ in range(turns))


def gpu_time(work: Callable[[int], object], repeats: int) -> float:
    """Return the GPU time of one call; calls are queued ahead, so the GPU never waits for the host."""
    for number in range(WARM_UP):
        work(number)
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(2e8))  # noqa: SLF001 (keeps the GPU busy while the calls below are queued)
    start.record()
    for number in range(repeats):
        work(number)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / repeats


def time_batches(images: Images) -> list[tuple[str, float]]:
    resident = place(images, DEVICE)
    assert resident.pixels.is_cuda
    pinned = place(images, DEVICE, gpu_space=0)
    assert pinned.pixels.is_pinned()
    rows = []
    for name, placed in (
        ("resident on the GPU", resident),
        ("in pinned memory", pinned),
        ("read from the host, some batches ahead", images),
    ):
        loader = make_loader(placed)
        rows.append((f"messi, {name}", median_of(loader.batch, BATCHES)))
    some = resident.select(slice(0, 96))
    drawn = augment.draw_parameters(some.sizes, torch.Generator().manual_seed(2)).map(Tensor.cuda)
    on_gpu = some.to(DEVICE)
    rows.append(("of which the three kernels", gpu_time(lambda _: augment_kernels.augment(on_gpu, drawn, SPEC), 50)))
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(224, scale=(0.7, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(0.3, 0.3, 0.3, 0.3),
            v2.RandomGrayscale(0.1),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(SPEC.mean, SPEC.std),
        ]
    )
    pictures = [image.contiguous() for image in some]
    rows.append(
        ("torchvision v2, image by image", median_of(lambda _: torch.stack([transform(p) for p in pictures]), 3))
    )
    return rows


def time_steps(images: Images, backbone: str) -> tuple[float, float, float]:
    """Return the median times of a step on a constant batch and on the loader's, and the median ratio of a turn."""
    loader = make_loader(place(images, DEVICE))
    task = Task(input_shape=SPEC.shape, num_classes=CLASSES, num_domains=3)
    algorithm = build(ERM.Config(), task=task, encoder=EncoderConfig(backbone=backbone, pretrained=False)).to(DEVICE)
    stepper = AdamStepper(algorithm, OptimizerConfig(learning_rate=3e-5, weight_decay=0.0))
    constant: Batch = loader.batch(1)
    position = 0

    def fed(_: int) -> None:
        nonlocal position
        position += 1
        algorithm.update(loader.batch(position), stepper)

    def on_constant(_: int) -> None:
        algorithm.update(constant, stepper)

    for number in range(WARM_UP):
        fed(number)
        on_constant(number)
    turns = [(milliseconds(on_constant, STRETCH), milliseconds(fed, STRETCH)) for _ in range(TURNS)]
    return tuple(map(statistics.median, zip(*((a, b, b / a) for a, b in turns), strict=True)))


def main() -> None:
    save = parse("Time augmented batches and the steps that they feed.").save
    images = make_images()
    lines = [f"Equal results: {assert_equal_results(images)}.", ""]
    batches = time_batches(images)
    lines += ["| augmented batch of 96 at 224 x 224 | ms |", "|---|---:|"]
    lines += [f"| {name} | {value:.3f} |" for name, value in batches]
    lines += ["", "| ERM step, batch 96 | constant batch, ms | fed by the loader, ms | ratio |", "|---|---:|---:|---:|"]
    ratios = []
    with deterministic():
        for backbone in ("deit_small_patch16_224", "deit_tiny_patch16_224"):
            constant, fed, ratio = time_steps(images, backbone)
            ratios.append(ratio)
            lines.append(f"| {backbone}, eager, bf16 | {constant:.2f} | {fed:.2f} | {ratio:.3f} |")
    driver = f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}"
    lines += ["", f"{driver}; medians; {NUMBER:,} random images of {SIDE} x {SIDE}."]
    show("\n".join(lines) + "\n", name="input_gpu", title="Input on the GPU", save=save)
    assert batches[0][1] <= HELD_TO_MS, f"held to {HELD_TO_MS} ms"
    assert max(ratios) <= HELD_TO_RATIO, f"held to {HELD_TO_RATIO}"


if __name__ == "__main__":
    main()

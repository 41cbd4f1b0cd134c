"""Images per second of a trained model's predictions: messi against plain timm, on a GPU or else on a CPU.

    python benchmarks/bench_inference.py [--save]

DeiT-S/16 and DeiT-Ti/16 with MESSI's head, random weights, 7 classes. messi predicts as in every other command:
``predict`` in batches of 512 on a GPU and of 64 on a CPU, in the default precision of the device, including the resize
of raw images to 224 x 224 and their normalisation. ``Model.predict`` does the same from a tensor in host memory, which
it also packs and sends. The other side is timm's forward with the same head, in ``inference_mode``, on inputs that are
ready on the device; autocast encloses all batches, so it converts the weights once. Every side ends with predictions on
the host. Before anything is timed, the predictions of every side are compared with timm's in float32. Logits are
compared without their mean over the classes, which does not affect probabilities. The sides take turns; a speed is a
median.
"""

import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import timm
import torch
from torch import Tensor

from harness import gpu, parse, show
from messi.algorithms.common.inference import batch_size
from messi.algorithms.messi import MESSI
from messi.core import gpu_kernels
from messi.core.batch import Task
from messi.core.hardware import hardware_of
from messi.data.images import Images
from messi.data.placement import fetch, place
from messi.data.preprocess import prepare
from messi.evaluation.model import Model, ModelDescription
from messi.evaluation.predict import predict
from messi.models.encoder import EncoderConfig

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
BATCH = batch_size(DEVICE)
SMALL, TINY = "deit_small_patch16_224", "deit_tiny_patch16_224"
NAMES = {SMALL: "DeiT-S/16", TINY: "DeiT-Ti/16"}
NUMBERS = {SMALL: 4096, TINY: 4096} if ON_GPU else {SMALL: 64, TINY: 128}
HOSTED = 1024  # maximum number that goes through Model.predict
SIDE, CLASSES, COMPARED, PLAIN_BATCH, THREADS = 256, 7, 64, 64, 2
TURNS = 3
HELD_TO_ERROR = 1e-5 if hardware_of(DEVICE).precision.prediction == "float32" else 0.03
CLEAR = 0.05  # of the logits' standard deviation: a difference that bfloat16 must not reverse
PLAIN = f"timm, float32, batch {PLAIN_BATCH}"


@dataclass(frozen=True)
class Contest:
    """A model, and N images in the form that each side takes."""

    model: Model
    algorithm: MESSI
    pictures: Tensor
    """[at most HOSTED, 3, SIDE, SIDE] uint8, on the host."""
    placed: Images
    """All of them, placed as in a run."""
    ready: Tensor
    """[N, 3, 224, 224] float32, on the device."""

    @classmethod
    def make(cls, backbone: str, pictures: Tensor) -> "Contest":
        """Build the model and prepare the images."""
        torch.manual_seed(0)
        encoder = EncoderConfig(backbone=backbone, pretrained=False)
        spec = encoder.input_spec((3, SIDE, SIDE))
        task = Task(input_shape=spec.shape, num_classes=CLASSES, num_domains=3)
        algorithm = MESSI(MESSI.Config(), task=task, encoder=encoder).to(DEVICE).eval()
        placed = place(Images.pack(pictures), DEVICE)
        model = Model(algorithm, tuple("abcdefg"), spec, cast("ModelDescription", None))  # not read
        ready = torch.cat([prepare(images, spec) for images in batches(placed, len(pictures))])
        return cls(model, algorithm, pictures[:HOSTED], placed, ready)

    def sides(self) -> dict[str, Callable[[int], Tensor]]:
        """Return the sides to time: functions that predict the first ``number`` images."""
        sides: dict[str, Callable[[int], Tensor]] = {
            PLAIN: lambda n: self.plain(n, PLAIN_BATCH, low=False),
            "messi, `Model.predict`, uint8 tensor on the host": self.called,
            f"messi, uint8 images {'on the GPU' if ON_GPU else 'of a store'}": self.resized,
            "messi, inputs ready": lambda n: predict(self.algorithm, self.ready[:n].split(BATCH)).logits.cpu(),
        }
        if ON_GPU:
            sides[f"timm, bf16 autocast, batch {PLAIN_BATCH}"] = lambda n: self.plain(n, PLAIN_BATCH, low=True)
            sides[f"timm, bf16 autocast, batch {BATCH}"] = lambda n: self.plain(n, BATCH, low=True)
        return sides

    def called(self, number: int) -> Tensor:
        """Predict as a user does; the logarithms of probabilities are logits."""
        return self.model.predict(self.pictures[:number]).probabilities.log()

    def resized(self, number: int) -> Tensor:
        """Predict raw images."""
        inputs = (prepare(images, self.model.spec) for images in batches(self.placed, number))
        return predict(self.algorithm, inputs).logits.cpu()

    def plain(self, number: int, size: int, *, low: bool) -> Tensor:
        """Predict with timm's own forward."""
        network, head = self.algorithm.encoder.network, self.algorithm.head
        logits = []
        with torch.inference_mode(), torch.autocast(DEVICE.type, torch.bfloat16, enabled=low):
            for inputs in self.ready[:number].split(size):
                with gpu_kernels.disabled():
                    features = network(inputs)
                logits.append(head(features).logits.float())
            return torch.cat(logits).cpu()


def batches(images: Images, number: int) -> Iterator[Images]:
    """Yield the first ``number`` images in batches that the device can read."""
    chunks = (images.select(slice(start, min(start + BATCH, number))) for start in range(0, number, BATCH))
    return fetch(chunks, DEVICE)


def make_pictures(number: int) -> Tensor:
    """Return random smooth colours with noise, as photographs have."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    parts = []
    for start in range(0, number, BATCH):
        coarse = torch.rand(min(BATCH, number - start), 3, 6, 6, generator=generator, device=DEVICE)
        smooth = torch.nn.functional.interpolate(coarse, (SIDE, SIDE), mode="bilinear")
        noise = torch.rand(smooth.shape, generator=generator, device=DEVICE)
        parts.append((255 * (0.7 * smooth + 0.3 * noise)).to(torch.uint8).cpu())
    return torch.cat(parts)


def compare(answers: Tensor, exact: Tensor) -> tuple[float, float]:
    """Return the relative error of logits, and on how many of the images the class is the same."""
    answers, exact = (logits.double() - logits.double().mean(1, keepdim=True) for logits in (answers, exact))
    error = float((answers - exact).norm() / exact.norm())
    first, second = exact.topk(2).values.unbind(1)
    same = answers.argmax(1) == exact.argmax(1)
    assert error <= HELD_TO_ERROR, f"logits: held to {HELD_TO_ERROR}, found {error:.2g}"
    assert same[first - second > CLEAR * exact.std()].all(), "another class, although the best one is clear"
    return error, float(same.double().mean())


def images_per_second(side: Callable[[int], Tensor], number: int) -> float:
    start = time.perf_counter()
    answers = side(number)
    return len(answers) / (time.perf_counter() - start)


def measure(backbone: str) -> list[str]:
    """Return a row for every side."""
    number = NUMBERS[backbone]
    sides = Contest.make(backbone, make_pictures(number)).sides()
    exact = sides[PLAIN](COMPARED)
    equal = {name: compare(side(COMPARED), exact) for name, side in sides.items()}
    for side in sides.values():
        side(min(BATCH, number))
    turns = [[images_per_second(side, number) for side in sides.values()] for _ in range(TURNS)]
    speeds = dict(zip(sides, map(statistics.median, zip(*turns, strict=True)), strict=True))
    rows = []
    for name, speed in speeds.items():
        error, same = equal[name]
        shown = f"{speed:,.0f}" if speed >= 100 else f"{speed:.1f}"
        ratio = speed / speeds[PLAIN]
        rows.append(f"| {NAMES[backbone]}, {name} | {shown} | {ratio:.2f} x | {error:.2g} | {same:.0%} |")
    return rows


def about() -> str:
    if ON_GPU:
        return f"{gpu()}, timm {timm.__version__}"
    from bench_ssi_cpu import cpu_model  # noqa: PLC0415 (needs POT, which a machine with a GPU may lack)

    versions = f"torch {torch.__version__}, timm {timm.__version__}, Python {platform.python_version()}"
    return f"{cpu_model()}, {THREADS} threads, {versions}"


def main() -> None:
    save = parse("Time predictions against plain timm.").save
    torch.set_num_threads(THREADS)
    head = f"| images of {SIDE} x {SIDE}, at 224 x 224 | images per second | | error of logits | same class |"
    lines = [head, "|---|---:|---:|---:|---:|", *measure(SMALL), *measure(TINY), ""]
    bound = f"logits to {HELD_TO_ERROR:g} (relative norm), classes wherever the best one is clear"
    numbers = " and ".join(f"{number:,}" for number in NUMBERS.values())
    lines += [f"Equal results on {COMPARED} images: {bound}. Medians of {TURNS} turns over {numbers} images.", about()]
    kind = "GPU" if ON_GPU else "CPU"
    show("\n".join(lines) + "\n", name=f"inference_{kind.lower()}", title=f"Inference on the {kind}", save=save)


if __name__ == "__main__":
    main()

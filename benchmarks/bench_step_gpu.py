"""A training step on a GPU: MESSI against ERM on the same backbone, memory, many domains, and where the time goes.

    python benchmarks/bench_step_gpu.py [--save]

The shape of PACS: 3 x 32 random images of 224 x 224, 7 classes, 6 experts, 50 Sinkhorn iterations. Before anything is
timed, a captured step must leave the same bits as an eager one, and the fused encoder must be as close to the float32
network as timm's forward under autocast. Methods take turns in short stretches; a ratio is the median over the turns.
The recipe, ``messi_swad``, also adds its weights to an average after every step.
"""

import statistics
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from harness import gpu, parse, show
from messi.algorithms.common.base import AlgorithmConfig, build
from messi.algorithms.erm import ERM
from messi.algorithms.messi import MESSI
from messi.core import gpu_kernels
from messi.core.batch import Batch, Task
from messi.core.seeding import deterministic
from messi.engine.averaging.averager import Averager
from messi.engine.averaging.swad import SWAD
from messi.engine.averaging.valley import SWADConfig
from messi.engine.capture import Updater
from messi.engine.recipes import RECIPES
from messi.engine.stepper import AdamStepper, Flatness, OptimizerConfig
from messi.models.encoder import Encoder, EncoderConfig

DEVICE = torch.device("cuda")
SMALL, TINY = "deit_small_patch16_224", "deit_tiny_patch16_224"
METHODS: dict[str, AlgorithmConfig] = {
    "ERM": ERM.Config(),
    "MESSI-OT": MESSI.Config(),
    "MESSI-MMD": MESSI.Config(discrepancy="mmd"),
}
RECIPE = "recipe"
CLASSES, STRETCH, TURNS = 7, 10, 15
HELD_TO = {
    "MESSI-OT / ERM": 1.05,
    "MESSI-MMD / ERM": 1.05,
    "recipe / ERM": 1.05,
    "50 domains / 3 domains": 1.5,
    "memory": 1.10,
}


def make_batch(size: int = 96, domains: int = 3, pixels: int = 224) -> Batch:
    torch.manual_seed(1)
    images = torch.randn(size, 3, pixels, pixels, device=DEVICE)
    labels = torch.randint(CLASSES, (size,), device=DEVICE)
    return Batch(images, labels, torch.arange(size, device=DEVICE) * domains // size)


@dataclass
class Contestant:
    """A method in training on one batch."""

    updater: Updater
    batch: Batch
    parameters: list[Tensor]
    timms_own: bool = False
    averager: Averager | None = None
    step: int = 10_000  # past all annealing

    @classmethod
    def make(
        cls,
        config: AlgorithmConfig,
        backbone: str,
        *,
        capture: bool = True,
        batch: Batch | None = None,
        timms_own: bool = False,
        compiled: bool = False,
        flatness: Flatness = "none",
    ) -> "Contestant":
        """Build a method for a batch; its encoder may run timm's forward, also with every block compiled."""
        batch = batch or make_batch()
        torch.manual_seed(0)
        task = Task(input_shape=batch.inputs.shape[1:], num_classes=CLASSES, num_domains=int(batch.domains.max()) + 1)
        encoder = EncoderConfig(backbone=backbone, pretrained=False, image_size=batch.inputs.shape[-1])
        algorithm = build(config, task=task, encoder=encoder).to(DEVICE)
        if compiled:
            for block in algorithm.encoder.network.blocks:  # type: ignore[union-attr]
                block.compile()
        optimizer = OptimizerConfig(learning_rate=3e-5, weight_decay=0.0, flatness=flatness, sagm_alpha=1e-3)
        stepper = AdamStepper(algorithm, optimizer)
        updater = Updater(algorithm, stepper, DEVICE, capture=capture)
        return cls(updater, batch, list(algorithm.parameters()), timms_own=timms_own)

    def milliseconds(self, steps: int = STRETCH) -> float:
        """Return the GPU time of one step; the host queues steps ahead."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        with gpu_kernels.disabled() if self.timms_own else nullcontext():
            for _ in range(steps):
                self.step += 1
                torch.manual_seed(self.step)  # as in training
                self.updater(replace(self.batch, step=self.step))
                if self.averager:
                    self.averager.add(self.step)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / steps


def assert_captured_is_eager() -> None:
    for config in METHODS.values():
        eager, captured = (Contestant.make(config, TINY, capture=capture) for capture in (False, True))
        for contestant in (eager, captured):
            contestant.milliseconds(8)
        assert captured.updater.captured
        assert all(map(torch.equal, eager.parameters, captured.parameters))


def encoder_errors() -> tuple[float, float]:
    """Return the relative errors of timm's network under autocast and of the fused one, against float32."""
    torch.manual_seed(0)
    encoder: Encoder = EncoderConfig(backbone=SMALL, pretrained=False).build((3, 224, 224)).to(DEVICE)
    images = make_batch(32).inputs
    with torch.no_grad():
        exact = encoder.network(images).double()
        with torch.autocast("cuda", torch.bfloat16):
            fused = encoder(images).double()
            with gpu_kernels.disabled():
                plain = encoder(images).double()
    theirs, ours = (float((answer - exact).norm() / exact.norm()) for answer in (plain, fused))
    assert ours <= 1.1 * theirs, (ours, theirs)
    return theirs, ours


def take_turns(contestants: Sequence[Contestant]) -> list[list[float]]:
    """Return the times of every contestant in every turn."""
    for contestant in contestants:
        contestant.milliseconds(8)
    return [[c.milliseconds() for c in contestants] for _ in range(TURNS)]


def peak_memory(config: AlgorithmConfig, backbone: str, *, capture: bool) -> float:
    """Return the peak memory of training in GiB."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    Contestant.make(config, backbone, capture=capture).milliseconds(8)
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def floor_ms(backbone: str) -> tuple[float, float]:
    """Return the time of all matrix products of a ViT at the speed of a large one, and that speed in TFLOP/s."""
    width, rows = (384 if backbone == SMALL else 192), 96 * 197
    products = 12 * (12 * width * width + 2 * 197 * width) * rows + 96 * 196 * 768 * width
    a, b = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(15):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        _ = a @ b
        end.record()
        torch.cuda.synchronize()
        times.append(float(start.elapsed_time(end)))
    speed = 2 * 8192**3 / (statistics.median(times) * 1e-3)
    return 1000 * 3 * 2 * products / speed, speed / 1e12


def where_the_time_goes(contestant: Contestant, number: int = 18) -> list[str]:
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        contestant.milliseconds(3)
    events = sorted(recorded.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events) / 3e3
    lines = [
        f"| `{event.key[:70]}` | {event.count // 3} | {event.self_device_time_total / 3e3:.3f} |"
        for event in events[:number]
    ]
    rest = sum(event.self_device_time_total for event in events[number:]) / 3e3
    count = sum(event.count for event in events[number:]) // 3
    return ["| kernel | launches | ms |", "|---|---:|---:|", *lines, f"| all others | {count} | {rest:.3f} |",
            f"| sum | | {total:.3f} |"]  # fmt: skip


def compare_methods(backbone: str) -> tuple[list[str], dict[str, float]]:
    contestants = {name: Contestant.make(config, backbone) for name, config in METHODS.items()}
    recipe = contestants[RECIPE] = Contestant.make(RECIPES["messi_swad"].algorithm, backbone)
    recipe.averager = SWAD(torch.nn.ParameterList(recipe.parameters), SWADConfig())
    turns = take_turns(list(contestants.values()))
    times = dict(zip(contestants, map(statistics.median, zip(*turns, strict=True)), strict=True))
    ratios = {
        f"{name} / ERM": statistics.median(turn[place] / turn[0] for turn in turns)
        for place, name in enumerate(contestants)
        if place
    }
    floor, speed = floor_ms(backbone)
    lines = [
        f"| {backbone}, {name}, captured | {time:.3f} | {ratios.get(f'{name} / ERM', 1.0):.3f} | {floor / time:.0%} |"
        for name, time in times.items()
    ]
    lines.append(f"| floor: all products at {speed:.0f} TFLOP/s | {floor:.2f} | | 100% |")
    if backbone == SMALL:
        lines += ["", "Where the time of a MESSI-OT step goes:", "", *where_the_time_goes(contestants["MESSI-OT"])]
    return lines, ratios


def compare_ways() -> list[str]:
    """Time the ERM step with timm's forward under autocast: eager, captured, and with each block compiled."""
    rows = []
    for name, capture, compiled in (("eager", False, False), ("captured", True, False), ("compiled", True, True)):
        contestant = Contestant.make(METHODS["ERM"], SMALL, capture=capture, timms_own=True, compiled=compiled)
        contestant.milliseconds(8)
        time = statistics.median(contestant.milliseconds() for _ in range(TURNS))
        rows.append(f"| {SMALL}, ERM, timm's own forward, {name} | {time:.3f} | |")
    return rows


def compare_domains() -> tuple[list[str], float]:
    """Time steps on 100 images of 3 and of 50 domains."""
    turns = take_turns([Contestant.make(MESSI.Config(), SMALL, batch=make_batch(100, number)) for number in (3, 50)])
    few, many = map(statistics.median, zip(*turns, strict=True))
    ratio = statistics.median(b / a for a, b in turns)
    return [
        f"| MESSI-S-OT, 100 images of 3 domains | {few:.3f} | |",
        f"| of 50 domains | {many:.3f} | {ratio:.3f} |",
    ], ratio


def compare_memory() -> tuple[list[str], float]:
    erm, messi = (peak_memory(config, SMALL, capture=True) for config in (METHODS["ERM"], METHODS["MESSI-OT"]))
    return [f"| ERM | {erm:.2f} | |", f"| MESSI-OT | {messi:.2f} | {messi / erm:.3f} |"], messi / erm


def main() -> None:
    save = parse("Time training steps on a GPU.").save
    with deterministic():
        assert_captured_is_eager()
        theirs, ours = encoder_errors()
        small, found = compare_methods(SMALL)
        tiny, _ = compare_methods(TINY)
        ways = compare_ways()
        domains, found["50 domains / 3 domains"] = compare_domains()
        memory, found["memory"] = compare_memory()
    equal = f"features are {ours:.2%} from those of the float32 network, timm's under autocast {theirs:.2%}"
    lines = [
        f"Equal results: captured and eager steps leave the same bits in every parameter; {equal}.",
        "",
        "| step, batch 96, deterministic | ms | to ERM | of the floor |", "|---|---:|---:|---:|", *tiny, "",
        "| | | | |", "|---|---:|---:|---:|", *small, "",
        "| without the fused encoder | ms | |", "|---|---:|---:|", *ways, "",
        "| domains | ms | ratio |", "|---|---:|---:|", *domains, "",
        "| peak memory, DeiT-S | GiB | ratio |", "|---|---:|---:|", *memory, "", gpu(),
    ]  # fmt: skip
    show("\n".join(lines) + "\n", name="step_gpu", title="A training step on the GPU", save=save)
    for name, bound in HELD_TO.items():
        assert found[name] <= bound, f"{name}: held to {bound}, found {found[name]:.3f}"


if __name__ == "__main__":
    main()

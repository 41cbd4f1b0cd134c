"""A model on paper of one run on several GPUs of one machine; nothing is timed.

    python benchmarks/predict_parallel.py [--save]

    step = encoder(images per GPU) + loss(all images) + gather + the part of the reduction that nothing hides

Measured (benchmarks/results/step_gpu_2026-11-19.md): a step with 96 images, alone.
"""

from typing import Any

import timm

from harness import parse, show

MEASURED = {"deit_tiny_patch16_224": (4.355, 4.615), "deit_small_patch16_224": (8.831, 9.191)}
"""ms of ERM and of MESSI-OT with 96 images on one H200."""
BUS = 300e9
"""Assumed: bytes per second that NCCL reduces over NVLink (450 GB/s in each direction), as its tests count them."""
LATENCY = 20e-6
"""Assumed: seconds that a message takes at least."""
BACKWARD = 0.6
"""Assumed: the fraction of the encoder's time that is its backward pass, during which gradients are sent."""
SLOWER = 0.05
"""Assumed: how much slower kernels run while NCCL uses some of the multiprocessors."""
MESSAGE = 16 * 2**20
IMAGES = 96


def predict(backbone: str, gpus: int, *, messi: bool) -> tuple[float, float, float]:
    """Return the ms of a step with 96 images per GPU, of its messages, and how many times faster it is than one GPU."""
    network: Any = timm.create_model(backbone, num_classes=0)
    gradients = sum(parameter.numel() for parameter in network.parameters()) * 4
    erm, with_messi = (ms / 1e3 for ms in MEASURED[backbone])
    share = (gpus - 1) / gpus
    reduction = 2 * share * gradients / BUS + -(-gradients // MESSAGE) * LATENCY
    last = 2 * share * min(MESSAGE, gradients) / BUS + LATENCY
    hidden = BACKWARD * erm
    exposed = last + max(0.0, reduction - last - hidden)
    gather = share * gpus * IMAGES * network.num_features * 2 / BUS + LATENCY
    # At worst, what MESSI adds grows with the batch: every process computes it for all images.
    extra = (with_messi - erm) * gpus if messi else 0.0
    step = erm + SLOWER * min(reduction, hidden) + extra + gather + exposed
    alone = with_messi if messi else erm
    return 1e3 * step, 1e3 * (reduction + gather), gpus * alone / step


def main() -> None:
    lines = ["| 96 images per GPU | GPUs | step, ms | messages, ms | speed-up |", "|---|---:|---:|---:|---:|"]
    for backbone in MEASURED:
        for messi in (False, True):
            for gpus in (2, 4, 8):
                step, messages, faster = predict(backbone, gpus, messi=messi)
                name = f"{backbone}, {'MESSI-OT' if messi else 'ERM'}"
                lines.append(f"| {name} | {gpus} | {step:.2f} | {messages:.2f} | {faster:.1f} |")
    result = "\n".join(["Predicted, not measured.", "", *lines, ""])
    show(result, name="parallel_model", title="Several GPUs, on paper", save=parse(__doc__ or "").save)


if __name__ == "__main__":
    main()

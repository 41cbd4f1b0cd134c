"""Images per second that ``--tune head`` encodes into its cache, against prediction with the same network.

    python benchmarks/bench_encode.py [--save]

DeiT-S/16 and DeiT-Ti/16 with random weights, on a GPU or else on a CPU. Both sides start from the images of a store in
host memory, which they place, resize and encode; encoding also writes the features to disk. First the features of both
sides are compared, bit by bit; then the sides take turns.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

from bench_inference import BATCH, DEVICE, NAMES, ON_GPU, SIDE, SMALL, THREADS, TINY, about, make_pictures
from harness import parse, show
from messi.algorithms.erm import ERM
from messi.core.batch import Task
from messi.core.hardware import hardware_of
from messi.data.datasets.folder import Folder
from messi.data.examples import Examples
from messi.data.images import Images
from messi.data.placement import fetch, place
from messi.data.preprocess import prepare
from messi.engine.config import RunConfig
from messi.engine.encode import encode_images
from messi.evaluation.predict import predict_and_encode
from messi.models.encoder import EncoderConfig

NUMBERS = {SMALL: 16_384, TINY: 16_384} if ON_GPU else {SMALL: 64, TINY: 128}
TURNS, HELD_TO = 5, 0.9


class Contest:
    """A network and N images."""

    def __init__(self, backbone: str) -> None:
        torch.manual_seed(0)
        number = NUMBERS[backbone]
        plain = EncoderConfig(backbone=backbone, pretrained=False)
        self.spec = plain.input_spec((3, SIDE, SIDE))
        task = Task(input_shape=self.spec.shape, num_classes=7, num_domains=3)
        self.algorithm = ERM(ERM.Config(), task=task, encoder=plain).to(DEVICE).eval()
        frozen = EncoderConfig(backbone=backbone, weights="random", tune="head")
        self.config = RunConfig(data=Folder(path="."), encoder=frozen).resolved()
        labels = torch.zeros(number, dtype=torch.long)
        self.images = Images.pack(make_pictures(number))
        self.examples = Examples(self.images, labels, labels, ("a",), ("x",), "benchmark")

    def predict(self) -> Tensor:
        """Return the features of the encoder, next to predictions."""
        placed = place(self.images, DEVICE)
        chunks = (placed.select(slice(start, start + BATCH)) for start in range(0, len(placed), BATCH))
        inputs = (prepare(images, self.spec) for images in fetch(chunks, DEVICE))
        prediction, features = predict_and_encode(self.algorithm, inputs)
        assert features is not None
        prediction.logits.cpu()
        return features.cpu()

    def encode(self) -> Tensor:
        """Return the features, which are then also on disk."""
        with tempfile.TemporaryDirectory() as home:
            os.environ["MESSI_HOME"] = home
            precision = hardware_of(DEVICE).precision.prediction
            features = encode_images(self.config, self.examples, self.algorithm.encoder, self.spec, DEVICE, precision)
            assert any(Path(home).rglob("*.safetensors"))
        return features[0].cpu()


def measure(backbone: str) -> str:
    """Return the row of a network."""
    contest = Contest(backbone)
    assert torch.equal(contest.predict(), contest.encode())
    seconds: dict[str, list[float]] = {"predict": [], "encode": []}
    for _ in range(TURNS):
        for name, taken in seconds.items():
            start = time.perf_counter()
            getattr(contest, name)()
            taken.append(time.perf_counter() - start)
    predicted, encoded = (NUMBERS[backbone] / statistics.median(taken) for taken in seconds.values())
    assert encoded / predicted >= HELD_TO, f"{NAMES[backbone]}: held to {HELD_TO}, found {encoded / predicted:.2f}"
    return f"| {NAMES[backbone]} | {predicted:,.0f} | {encoded:,.0f} | {encoded / predicted:.2f} x |"


def main() -> None:
    save = parse("Time the encoding of a store against prediction.").save
    torch.set_num_threads(THREADS)
    head = f"| images of {SIDE} x {SIDE}, at 224 x 224 | predicted per second | encoded per second | |"
    lines = [head, "|---|---:|---:|---:|", *map(measure, (SMALL, TINY)), ""]
    numbers = " and ".join(f"{number:,}" for number in NUMBERS.values())
    lines += [f"Equal features, to the bit. Medians of {TURNS} turns over {numbers} images.", about()]
    kind = "GPU" if ON_GPU else "CPU"
    show("\n".join(lines) + "\n", name=f"encode_{kind.lower()}", title=f"Encoding on the {kind}", save=save)


if __name__ == "__main__":
    main()

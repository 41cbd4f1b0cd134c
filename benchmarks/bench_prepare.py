"""Time and memory of `messi data prepare` by the number of images.

    python benchmarks/bench_prepare.py [--save]

Each size is prepared twice, in a separate process: the first time everything is decoded, the second time nothing is,
which is what every later run waits for. Memory is the peak of the process, including Python and torch.
Before anything is timed, pixels in the store are compared with those that Pillow decodes.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from harness import parse, show
from messi.data.datasets.folder import Folder
from messi.data.images import Images

SIZES, SIDE, DISTINCT = (1_000, 10_000, 100_000), (160, 120), 1000


def make_images(root: Path, number: int) -> None:
    """Write JPEGs in 4 domains and 10 classes; after the first thousand they are copies."""
    rng = np.random.default_rng(0)
    contents = []
    for index in range(number):
        folder = root / f"domain{index % 4}" / f"class{index // 4 % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{index:06}.jpg"
        if index < DISTINCT:
            coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize(SIDE)
            noisy = np.asarray(coarse, dtype=np.float32) + rng.normal(0, 12, (SIDE[1], SIDE[0], 3))
            Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(file, quality=90)
            contents.append(file.read_bytes())
        else:
            file.write_bytes(contents[index % DISTINCT])


def prepare(root: str) -> None:
    """Prepare in this process and print time and memory."""
    start = time.perf_counter()
    examples = Folder(path=root).load()
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert isinstance(examples.inputs, Images)
    print(json.dumps([seconds, peak / 1000, examples.inputs.pixels.numel() / 1e9]))


def in_a_process(root: Path) -> tuple[float, float, float]:
    command = [sys.executable, __file__, "--prepare", str(root)]
    done = subprocess.run(command, check=True, capture_output=True)  # noqa: S603 (this very file)
    seconds, memory, size = json.loads(done.stdout)
    return seconds, memory, size


def assert_equal_results(root: Path) -> None:
    examples = Folder(path=str(root)).load()
    files = sorted(root.glob("*/*/*.jpg"))
    for index in range(0, len(files), 37):
        assert torch.equal(
            examples.inputs[index], torch.from_numpy(np.array(Image.open(files[index]))).permute(2, 0, 1)
        )


def main() -> None:
    if sys.argv[1:2] == ["--prepare"]:
        prepare(sys.argv[2])
        return
    save = parse("Time the preparation of image folders.").save
    lines = [
        "| images | first time, s | images per second | peak memory, MB | store, GB | second time, s |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for number in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "images"
            make_images(root, number)
            os.environ["MESSI_HOME"] = f"{folder}/home"
            if number == SIZES[0]:
                assert_equal_results(root)
                shutil.rmtree(f"{folder}/home")
            first, memory, size = in_a_process(root)
            second, _, _ = in_a_process(root)
        lines.append(f"| {number:,} | {first:.1f} | {number / first:.0f} | {memory:.0f} | {size:.2f} | {second:.2f} |")
        print(lines[-1], flush=True)
    lines += ["", f"JPEGs of {SIDE[0]} x {SIDE[1]}, quality 90, {os.cpu_count()} cores, file cache warm."]
    show("\n".join(lines) + "\n", name="prepare", title="Preparing image folders", save=save)


if __name__ == "__main__":
    main()

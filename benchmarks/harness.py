"""What all benchmarks share: their option, printing and saving a dated table, and the description of the GPU."""

import argparse
import datetime
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import torch


def parse(description: str) -> argparse.Namespace:
    """Parse the one option of every benchmark."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--save", action="store_true", help="save the table under benchmarks/results")
    return parser.parse_args()


def show(result: str, *, name: str, title: str, save: bool, options: str = "--save") -> None:
    """Print a table, and save it with --save; ``options`` are those of the command that repeats it."""
    print(result)
    if save:
        today = datetime.datetime.now(datetime.UTC).date()
        path = Path(__file__).parent / "results" / f"{name}_{today}.md"
        command = f"python benchmarks/{Path(sys.argv[0]).name} {options}"
        path.write_text(f"# {title}, {today}\n\n    {command}\n\n{result}")


def gpu() -> str:
    """Return the names and versions of the GPU, its driver and the packages that are timed on it."""
    about = [torch.cuda.get_device_name()]
    if smi := shutil.which("nvidia-smi"):
        asked = [smi, "--query-gpu=driver_version", "--format=csv,noheader"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603
        about += [f"driver {answer.stdout.split()[0]}"] if answer.returncode == 0 else []
    about += [f"torch {torch.__version__}", f"CUDA {torch.version.cuda}"]
    for name in ("triton", "pot", "geomloss"):
        with suppress(metadata.PackageNotFoundError):
            about.append(f"{name} {metadata.version(name)}")
    return ", ".join(about)

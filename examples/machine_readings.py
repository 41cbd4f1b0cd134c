"""Your own data set: a class that loads examples from any source.

    python examples/machine_readings.py

Folders of images, tables and ``.npz`` arrays need no class. Write one for any other source, such as a database.
Here it is a file of sensor readings without a header: a number per sensor, then the label, then the machine.
"""

import csv
import hashlib
import random
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch

import messi


@dataclass(frozen=True, kw_only=True)
class MachineReadings(messi.DataConfig):
    """Sensor readings; the domains are machines."""

    backbone: ClassVar[str] = "mlp"
    augmentation: ClassVar[Literal["none"]] = "none"
    path: str

    def load(self, progress: object = None) -> messi.Examples:
        """Read the file; the fingerprint changes with its content."""
        del progress  # would report downloads and decoding; there are none
        content = Path(self.path).read_text()
        rows = list(csv.reader(content.splitlines()))
        classes, machines = (tuple(sorted({row[column] for row in rows})) for column in (-2, -1))
        return messi.Examples(
            inputs=torch.tensor([[float(value) for value in row[:-2]] for row in rows]),
            labels=torch.tensor([classes.index(row[-2]) for row in rows]),
            domains=torch.tensor([machines.index(row[-1]) for row in rows]),
            classes=classes,
            domain_names=machines,
            fingerprint=hashlib.sha256(content.encode()).hexdigest(),
        )


if __name__ == "__main__":
    with Path("readings.csv").open("w", newline="") as file:
        for machine in ("press_1", "press_2", "press_3"):
            for label, level in (("worn", 2.0), ("fine", -2.0)) * 40:
                readings = [random.gauss(level, 1), random.gauss(0, 1), random.gauss(len(machine), 1)]
                csv.writer(file).writerow([*readings, label, machine])
    for machine in ("press_1", "press_2", "press_3"):
        training = messi.TrainingConfig(steps=50)
        config = messi.RunConfig(data=MachineReadings(path="readings.csv"), target=(machine,), training=training)
        print(messi.run(config, out=f"runs/{machine}").target)

"""What an installed messi must be able to do; .ci/wheel runs it in a new environment, in an empty folder."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

import messi
from messi.cli.main import COMMANDS, main

assert "site-packages" in str(messi.__file__), f"{messi.__file__} is not the installed package."
for name in messi.__all__:
    getattr(messi, name)
for command in COMMANDS:
    assert main([command, "--help"]) == 0

rows = [("path", "label", "domain")]
for number in range(48):
    domain, label = f"camera_{number % 3}", ("dark", "light")[number // 3 % 2]
    level = 60 if label == "dark" else 160
    Image.fromarray(np.full((32, 32, 3), level + number, np.uint8)).save(f"{number}.png")
    rows.append((f"{number}.png", label, domain))
with Path("images.csv").open("w", newline="") as file:
    csv.writer(file).writerows(rows)

small = ["--backbone", "tiny_cnn", "--steps", "20", "--batch-per-domain", "8", "--device", "cpu"]
assert main(["train", "--data", "images.csv", "--target", "camera_2", *small, "--out", "runs/smoke"]) == 0
assert main(["evaluate", "runs/smoke"]) == 0
assert main(["predict", "runs/smoke", "0.png", "1.png"]) == 0
assert main(["reproduce", "model_size"]) == 0
assert messi.load("runs/smoke/model.safetensors").predict(["0.png"]).labels[0] in ("dark", "light")
assert "camera_2" in Path("runs/smoke/report.html").read_text()

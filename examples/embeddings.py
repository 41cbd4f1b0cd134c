"""Embeddings of any network in an .npy file, next to a table with the class and the domain of each.

    python examples/embeddings.py

Here a fixed random network stands in for the encoder. Use your own: CLIP, DINOv2, a sentence encoder.
"""

import numpy as np
import pandas
import torch
from sklearn.datasets import load_digits

import messi


def encode(images: torch.Tensor) -> torch.Tensor:
    """Return a vector of 128 numbers for each image [N, 64]."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128))
    with torch.no_grad():
        vectors: torch.Tensor = network(images)
    return vectors


if __name__ == "__main__":
    digits = load_digits()
    number = np.arange(len(digits.target))
    contrast = np.array([1.0, 0.7, 0.4])[number % 3]
    images = torch.from_numpy(digits.data * contrast[:, None] / 16).float()

    np.save("embeddings.npy", encode(images).numpy())
    camera = np.array(["bright", "normal", "dark"])[number % 3]
    pandas.DataFrame({"label": digits.target, "domain": camera}).to_csv("digits.csv", index=False)

    data = messi.FeatureTable(path="digits.csv", vectors="embeddings.npy")
    training = messi.TrainingConfig(steps=150, learning_rate=3e-3)
    for backbone in ("identity", "residual_mlp"):
        config = messi.RunConfig(
            data=data, target=("dark",), encoder=messi.EncoderConfig(backbone=backbone), training=training
        )
        result = messi.run(config, out=f"runs/digits_{backbone}")
        print(f"{backbone}: accuracy on the dark camera {result.target['dark']:.2f}")
    answers = messi.load("runs/digits_residual_mlp").predict(encode(images[:5]))
    print("predicted", *answers.labels, "for", *digits.target[:5])

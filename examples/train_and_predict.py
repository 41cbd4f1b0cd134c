"""Train from Python, look at the result, and use the model.

    python examples/train_and_predict.py

The data are embedded digits; each domain is a rotation. For your own images use ``messi.Folder(path="photos")`` and
leave out ``encoder`` and ``training``.
"""

import messi

config = messi.RunConfig(
    data=messi.RotatedMNIST(),
    target=("45",),  # the domain that is held out: digits rotated by 45 degrees
    algorithm=messi.MESSI.Config(ssi_weight=0.01),
    encoder=messi.EncoderConfig(backbone="tiny_cnn"),
    training=messi.TrainingConfig(steps=60, evaluate_every=30, batch_per_domain=16),
)

if __name__ == "__main__":
    examples = config.data.load()
    # Repeating this resumes an interrupted run, or returns the finished result.
    result = messi.run(config, out="runs/example", load=lambda: examples)
    print("selected step", result.selected_step)
    print("accuracy on the target", result.target)
    print("report", result.path / "report.html")

    model = messi.load(result.path)  # or messi.load("model.safetensors")
    answers = model.predict([examples.inputs[index] for index in range(4)])
    for label, probability in zip(answers.labels, answers.probabilities.max(1).values.tolist(), strict=True):
        print(f"{label}  {probability:.2f}")

"""Train from Python, look at the result, and use the model.

    python examples/train_and_predict.py

The data are embedded digits; each domain is a rotation. For your own images use ``messi.Folder(path="photos")`` and
leave out ``encoder`` and ``training``.
"""

import messi

config = messi.RunConfig(
    data=messi.RotatedMNIST(),
    target=("45",),  # the domain that is held out, here a rotation by 45 degrees
    algorithm=messi.MESSI.Config(ssi_weight=0.01),
    encoder=messi.EncoderConfig(backbone="tiny_cnn"),
    training=messi.TrainingConfig(steps=60, evaluate_every=30, batch_per_domain=16),
)

if __name__ == "__main__":
    result = messi.run(config, out="runs/example")  # repeating it resumes, or returns the finished result
    print("selected step", result.selected_step)
    print("accuracy on the target", result.target)
    print("report", result.path / "report.html")

    model = messi.load(result.path)  # or messi.load("model.safetensors")
    examples = config.data.load()
    answers = model.predict([examples.inputs[index] for index in range(4)])
    for label, probability in zip(answers.labels, answers.probabilities.max(1).values.tolist(), strict=True):
        print(f"{label}  {probability:.2f}")

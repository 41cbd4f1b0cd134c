"""Your own table: numbers, categories and missing values, trained with one hospital held out.

python examples/patients_table.py
"""

import random

import pandas

import messi


def make_table() -> pandas.DataFrame:
    """Return patients of four hospitals; their lab values are in different units."""
    rows = []
    for hospital, unit in (("north", 1.0), ("south", 1.2), ("east", 0.8), ("west", 1.1)):
        for number in range(100):
            sick = random.random() < 0.5
            rows.append(
                {
                    "id": f"{hospital}-{number}",
                    "age": random.choice([None, *range(20, 90)]),
                    "ward": random.choice(["surgery", "medicine", None]),
                    "smoker": random.random() < (0.6 if sick else 0.3),
                    "creatinine": unit * random.gauss(130 if sick else 80, 15),
                    "hospital": hospital,
                    "diagnosis": "sick" if sick else "healthy",
                }
            )
    return pandas.DataFrame(rows)


if __name__ == "__main__":
    table = make_table()
    table.to_csv("patients.csv", index=False)
    data = messi.FeatureTable(path="patients.csv", label_column="diagnosis", domain_column="hospital", ignore=("id",))
    training = messi.TrainingConfig(steps=100, learning_rate=1e-2)
    result = messi.run(messi.RunConfig(data=data, target=("west",), training=training), out="runs/patients")
    print(f"accuracy on the hospital that was held out: {result.target['west']:.2f}")

    # The model takes raw rows, with columns in any order, and knows how to fill in, encode and scale them.
    model = messi.load(result.path)
    new = table[["creatinine", "smoker", "ward", "age"]].head(3)
    answers = model.predict(new)
    for label, probability in zip(answers.labels, answers.probabilities.amax(1).tolist(), strict=True):
        print(f"{label} with probability {probability:.2f}")
    for column in model.spec.columns:
        print(column)

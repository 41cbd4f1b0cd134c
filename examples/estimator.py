"""Choose settings and estimate the accuracy on a new domain with scikit-learn, then save the model.

    python examples/estimator.py

The data are made up: patients of four hospitals, whose devices shift the measurements.
"""

import numpy as np
import pandas as pd
from sklearn import set_config
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_val_score

import messi

set_config(enable_metadata_routing=True)
LOGO = LeaveOneGroupOut()


def patients(number: int = 400) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Return measurements with missing values and a category, the diagnosis, and the hospital."""
    random = np.random.default_rng(0)
    ill = random.random(number) < 0.4
    hospital = pd.Series(random.choice(["east", "north", "south", "west"], number))
    pressure = 120 + 15 * ill + random.normal(0, 8, number) + hospital.map({"west": 10}).fillna(0)
    table = pd.DataFrame({"pressure": pressure, "age": random.normal(50, 12, number)})
    table["smoker"] = np.where(random.random(number) < 0.3 + 0.4 * ill, "yes", "no")
    return table.mask(random.random(table.shape) < 0.05), pd.Series(np.where(ill, "ill", "well")), hospital


if __name__ == "__main__":
    X, y, hospital = patients()
    classifier = messi.DomainClassifier(steps=40, learning_rate=1e-2, random_state=0)
    classifier.set_fit_request(domains=True)

    search = GridSearchCV(classifier, {"algorithm__ssi_weight": [0.0, 0.1]}, cv=LOGO)
    search.fit(X, y, domains=hospital, groups=hospital)
    print("chosen", search.best_params_)

    chosen = search.best_estimator_
    scores = cross_val_score(chosen, X, y, cv=LOGO, params={"domains": hospital, "groups": hospital})
    for name, score in zip(sorted(set(hospital)), scores, strict=True):
        print(f"held-out hospital {name}: accuracy {score:.2f}")

    chosen.save("model.safetensors")  # read by messi.load and messi predict, too
    loaded = messi.DomainClassifier.load("model.safetensors")
    print("experts of three patients", loaded.routing(X[:3]).round(2).tolist())

"""What does the router do? Mean weight of every expert, by domain and class.

    python examples/inspect_routing.py

``two_subsets`` is the paper's constructive example: domains a1 and a2 share one predictive feature, b1 and b2 another.
"""

import json

import messi

config = messi.RunConfig(
    data=messi.TwoSubsets(per_domain=200),
    target=("b2",),
    algorithm=messi.MESSI.Config(num_experts=3),
    training=messi.TrainingConfig(steps=100, batch_per_domain=16),
)

if __name__ == "__main__":
    result = messi.run(config, out="runs/routing")
    examples = config.data.load()
    weights = messi.load(result.path).predict(list(examples.inputs)).experts
    assert weights is not None  # only for a method without a router, such as ERM

    print("domain class " + " ".join(f"expert{number}" for number in range(1, weights.shape[1] + 1)))
    for d, domain in enumerate(examples.domain_names):
        for c, label in enumerate(examples.classes):
            cell = weights[(examples.domains == d) & (examples.labels == c)].mean(0)
            print(f"{domain:6} {label:5} " + " ".join(f"{weight:7.2f}" for weight in cell.tolist()))

    measures = json.loads((result.path / "diagnostics.json").read_text())
    print("measures in diagnostics.json:", ", ".join(sorted(measures)))

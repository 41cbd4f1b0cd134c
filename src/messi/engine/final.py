"""The final evaluation: the only place that opens the target."""

from messi.core.files import writing
from messi.core.records import ExampleRecord, Role, RoutingRecord
from messi.core.tensorfile import read_tensors
from messi.data.pictures import to_picture
from messi.diagnostics.routing import mean_routing_by_class
from messi.engine.loop import Training, measure, validation_roles
from messi.evaluation.measure import predict_role
from messi.evaluation.predict import Predictions

EXAMPLES_PER_DOMAIN = 4
# A report of hundreds of domains would be too large to open, and nobody looks at all of their pictures.
DOMAINS_WITH_EXAMPLES = 12
THUMBNAIL = (128, 128)


def evaluate_selected(training: Training, step: int) -> None:
    """Load the selected model, open the target, and record accuracy, routing and a few examples."""
    state, _ = read_tensors(training.folder.model)
    training.algorithm.load_state_dict(state)
    training.loader.vault.open_target()
    predictions: dict[Role, dict[int, Predictions]] = {
        role: predict_role(training.algorithm, training.loader, role) for role in validation_roles(training)
    }
    tests: tuple[Role, ...] = ("source_test", "target")
    predictions |= {role: measure(training, role, step) for role in tests}
    for role, by_domain in predictions.items():
        for number, (domain, predicted) in enumerate(by_domain.items()):
            _record_routing(training, role, domain, predicted)
            if number < DOMAINS_WITH_EXAMPLES:
                _record_examples(training, role, domain, predicted)


def _record_routing(training: Training, role: Role, domain: int, predicted: Predictions) -> None:
    if predicted.routing is None:
        return
    vault = training.loader.vault
    means, counts = mean_routing_by_class(predicted.routing, predicted.labels, num_classes=len(vault.classes))
    for label, count in enumerate(counts.tolist()):
        if count:
            training.ledger.write(
                RoutingRecord(
                    role=role,
                    domain=vault.domain_names[domain],
                    label=vault.classes[label],
                    count=count,
                    experts=tuple(means[label].tolist()),
                )
            )


def _record_examples(training: Training, role: Role, domain: int, predicted: Predictions) -> None:
    """Save evenly spaced images of a domain as PNG files, each with what the model says of it."""
    vault = training.loader.vault
    if not vault.has_images:
        return
    indices = vault.indices(role, domain)
    probabilities = predicted.logits.softmax(-1)
    folder = training.folder.path / "examples"
    for number in range(min(EXAMPLES_PER_DOMAIN, len(indices))):
        place = number * len(indices) // min(EXAMPLES_PER_DOMAIN, len(indices))
        probability, label = probabilities[place].max(-1)
        file = folder / f"{role}-{domain}-{number}.png"
        with writing(file):
            folder.mkdir(exist_ok=True)
            picture = to_picture(vault.images(indices[place : place + 1])[0])
            picture.thumbnail(THUMBNAIL)
            picture.save(file)
        experts = () if predicted.routing is None else tuple(predicted.routing[place].tolist())
        training.ledger.write(
            ExampleRecord(
                role=role,
                domain=vault.domain_names[domain],
                image=f"examples/{file.name}",
                label=vault.classes[int(predicted.labels[place])],
                predicted=vault.classes[int(label)],
                probability=float(probability),
                experts=experts,
            )
        )

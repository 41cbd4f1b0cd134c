"""The model that a run ends with, and its evaluation: the only place that opens the target."""

import time
from dataclasses import dataclass

from messi.core.errors import writing
from messi.core.records import ExampleRecord, Role, RoutingRecord
from messi.data.image_files import to_picture
from messi.diagnostics.routing import mean_routing_by_class
from messi.engine.async_writer import Snapshot
from messi.engine.averaging.batch_norm import reestimate
from messi.engine.averaging.swad import Averager
from messi.engine.loop import RunParts, measure, model_description, validation_roles
from messi.evaluation.measure import predict_role
from messi.evaluation.model import read_weights, save_model
from messi.evaluation.predict import Predictions
from messi.evaluation.selection import select

EXAMPLES_PER_DOMAIN = 4
# A report of hundreds of domains would be too large to open, and nobody looks at all of their pictures.
DOMAINS_WITH_EXAMPLES = 12
THUMBNAIL = (128, 128)
BATCH_NORM_BATCHES = 500


@dataclass(frozen=True)
class Chosen:
    """Which weights a run ends with."""

    selection: str
    """The rule that their step was selected by, or "swad"."""
    step: int
    """The last one that they are of."""
    averaged_steps: tuple[int, int] | None = None
    """The first and the last step that they are the mean of; None for those of one step."""


def choose(training: RunParts) -> Chosen:
    """Select a step, whose model was saved when it was taken, or average the weights and save the model now."""
    if training.averager:
        return _save_average(training, training.averager)
    selected = select(training.ledger.evaluations, training.config.selection)
    return Chosen(selected.rule, selected.step)


def _save_average(training: RunParts, averager: Averager) -> Chosen:
    average = averager.average()
    averager.install(average)
    # The batches that training would have gone on with.
    steps = range(averager.last_step + 1, averager.last_step + 1 + BATCH_NORM_BATCHES)
    reestimate(training.algorithm, (training.loader.batch(step).inputs for step in steps))
    chosen = Chosen("swad", average.last, (average.first, average.last))
    weights = Snapshot(training.algorithm.state_dict()).arrived()
    save_model(training.folder.model, weights, model_description(training, chosen.step, chosen.averaged_steps))
    return chosen


def evaluate_chosen(training: RunParts, chosen: Chosen) -> None:
    """Load the chosen model, open the target, record accuracy, routing and a few examples."""
    training.algorithm.load_state_dict(read_weights(training.folder, step=chosen.step))
    training.loader.data.open_target()
    averaged = chosen.averaged_steps is not None
    predictions: dict[Role, dict[int, Predictions]] = {}
    for role in validation_roles(training):  # where one step was selected, this was recorded after it
        if averaged:
            predictions[role] = measure(training, role, chosen.step, averaged=True)
        else:
            predictions[role] = predict_role(training.algorithm, training.loader, role)
    predictions["source_test"] = measure(training, "source_test", chosen.step, averaged=averaged)
    start = time.perf_counter()  # the device has done all before: answers were waited for
    target = predictions["target"] = measure(training, "target", chosen.step, averaged=averaged)
    images = sum(len(predicted.labels) for predicted in target.values())
    training.stopwatch.predicted(images, time.perf_counter() - start)
    for role, by_domain in predictions.items():
        for number, (domain, predicted) in enumerate(by_domain.items()):
            _record_routing(training, role, domain, predicted)
            if number < DOMAINS_WITH_EXAMPLES:
                _record_examples(training, role, domain, predicted)


def _record_routing(training: RunParts, role: Role, domain: int, predicted: Predictions) -> None:
    if predicted.routing is None:
        return
    sealed = training.loader.data
    means, counts = mean_routing_by_class(predicted.routing, predicted.labels, num_classes=len(sealed.classes))
    for label, count in enumerate(counts.tolist()):
        if count:
            training.ledger.write(
                RoutingRecord(
                    role=role,
                    domain=sealed.domain_names[domain],
                    label=sealed.classes[label],
                    count=count,
                    experts=tuple(means[label].tolist()),
                )
            )


def _record_examples(training: RunParts, role: Role, domain: int, predicted: Predictions) -> None:
    """Save evenly spaced images of a domain as PNG files, each with what the model says of it."""
    sealed = training.loader.data
    if not sealed.has_images:
        return
    indices = sealed.indices(role, domain)
    probabilities = predicted.logits.softmax(-1)
    folder = training.folder.examples
    for number in range(min(EXAMPLES_PER_DOMAIN, len(indices))):
        place = number * len(indices) // min(EXAMPLES_PER_DOMAIN, len(indices))
        probability, label = probabilities[place].max(-1)
        file = folder / f"{role}-{domain}-{number}.png"
        with writing(file):
            folder.mkdir(exist_ok=True)
            picture = to_picture(sealed.images(indices[place : place + 1])[0])
            picture.thumbnail(THUMBNAIL)
            picture.save(file)
        experts = () if predicted.routing is None else tuple(predicted.routing[place].tolist())
        training.ledger.write(
            ExampleRecord(
                role=role,
                domain=sealed.domain_names[domain],
                image=f"examples/{file.name}",
                label=sealed.classes[int(predicted.labels[place])],
                predicted=sealed.classes[int(label)],
                probability=float(probability),
                experts=experts,
            )
        )

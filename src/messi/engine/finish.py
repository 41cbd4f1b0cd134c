"""The end of a run: choose the model, test it and write the results. No other part of a run opens the target."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from messi.core.documents import write_document
from messi.core.errors import writing
from messi.core.records import ClassScores, EvaluationRecord, ExampleRecord, Role, RoleRecord, RoutingRecord
from messi.core.run_documents import AveragedScores, Result, RoleScores
from messi.data.image_files import to_picture
from messi.data.progress import LogProgress
from messi.diagnostics.document import diagnose
from messi.diagnostics.routing import mean_routing_by_class
from messi.engine.async_writer import Snapshot
from messi.engine.averaging.averager import Averager
from messi.engine.averaging.batch_norm import reestimate
from messi.engine.loop import RunParts, TrainingParts, measure, model_description, validation_roles
from messi.engine.recipes import recipe_of
from messi.evaluation.measure import predict_role
from messi.evaluation.model import read_weights, save_model
from messi.evaluation.predict import Predictions
from messi.evaluation.selection import ORACLE, RULES, better_step, select
from messi.models.encoder import merge_encoders
from messi.models.lora import plain_state

EXAMPLES_PER_DOMAIN = 4
# A report with pictures of hundreds of domains would be too large to open.
DOMAINS_WITH_EXAMPLES = 12
THUMBNAIL = (128, 128)
BATCH_NORM_BATCHES = 500


@dataclass(frozen=True)
class Chosen:
    """Which weights become the model of a run."""

    selection: str
    """The rule that selected the step, or how weights were averaged."""
    step: int
    """The selected step, or the last of the averaged ones."""
    averaged_steps: tuple[int, int] | None = None
    """The first and the last of the averaged steps; None if the weights are those of a single step."""
    averaged_runs: tuple[AveragedScores, ...] = ()
    """The results of the runs that an average was made from; empty for a run that was trained."""

    @property
    def averaged(self) -> bool:
        """Whether the weights are a mean over steps or over runs."""
        return self.averaged_steps is not None or bool(self.averaged_runs)


def finish(parts: RunParts) -> None:
    """Finish a run after its last step."""
    chosen = choose(parts)
    if chosen.averaged:  # a selected step was saved when it was evaluated
        weights = Snapshot(plain_state(parts.algorithm)).wait()
        save_model(parts.folder.model, weights, model_description(parts, chosen.step, chosen.averaged_steps))
    finish_with(parts, chosen)


def finish_with(parts: RunParts, chosen: Chosen) -> None:
    """Test the saved model once on the target and write all results.

    ``result.json`` is written last: a run that is interrupted before then repeats this function.
    """
    merge_encoders(parts.algorithm)
    parts.algorithm.load_state_dict(read_weights(parts.folder, step=chosen.step))
    parts.loader.data.open_target()
    predictions = _evaluate(parts, chosen)
    for role, by_domain in predictions.items():
        for number, (domain, predicted) in enumerate(by_domain.items()):
            _record_routing(parts, role, domain, predicted)
            if number < DOMAINS_WITH_EXAMPLES:
                _record_examples(parts, role, domain, predicted)
    result = _result(parts, chosen)
    accuracy = {"source_val": result.source_val, "target": result.target}
    diagnostics = diagnose(parts.algorithm, parts.loader, accuracy)
    write_document(parts.folder.diagnostics, diagnostics, indent=None)
    write_document(parts.folder.timing, parts.stopwatch.timing(parts.folder.identity()))
    parts.metrics.writer.sync()
    parts.folder.finish(result, parts.metrics.writer.checksum)


def choose(parts: TrainingParts) -> Chosen:
    """Choose the average, which the method then has, or a step: without averaging, or if it is clearly better."""
    rule, metrics = parts.config.training.selection, parts.metrics
    if parts.averager:
        average = _install_average(parts, parts.averager)
        for role in validation_roles(parts):
            measure(parts, role, average.step, averaged=True)
        better = better_step(metrics.evaluations, rule)
        if better is None:
            return average
        LogProgress().noted(
            f"The model has the weights of step {better.step}: {better.comparison}. The average probably includes "
            "steps from before the model had learned; train for more steps."
        )
    selected = select(metrics.evaluations, rule)
    return Chosen(selected.rule, selected.step)


def _install_average(parts: TrainingParts, averager: Averager) -> Chosen:
    """Give the averaged weights to the method, with BatchNorm statistics that fit them."""
    average = averager.average()
    averager.install(average)
    # The batches that training would have continued with.
    last = max(record.step for record in parts.metrics.evaluations)
    steps = range(last + 1, last + 1 + BATCH_NORM_BATCHES)
    reestimate(parts.algorithm, (parts.loader.batch(step).inputs for step in steps))
    return Chosen(parts.config.training.averaging, average.last, (average.first, average.last))


def _evaluate(parts: RunParts, chosen: Chosen) -> dict[Role, dict[int, Predictions]]:
    """Predict validation and test data, and record what was not recorded during training."""
    predictions: dict[Role, dict[int, Predictions]] = {}
    for role in validation_roles(parts):
        if chosen.averaged_runs:
            predictions[role] = measure(parts, role, chosen.step, averaged=True)
        else:  # recorded when the step or the average was evaluated
            predictions[role] = predict_role(parts.algorithm, parts.loader, role)
    predictions["source_test"] = measure(parts, "source_test", chosen.step, averaged=chosen.averaged)
    start = time.perf_counter()  # the device is idle: all predictions so far were waited for
    target = predictions["target"] = measure(parts, "target", chosen.step, averaged=chosen.averaged)
    if parts.config.encoder.tuning.kind != "head":  # where the images were encoded before
        images = sum(len(predicted.labels) for predicted in target.values())
        parts.stopwatch.predicted(images, time.perf_counter() - start)
    if parts.config.training.selection == ORACLE:
        measure(parts, "target_val", chosen.step, averaged=chosen.averaged)
    return predictions


def _result(parts: RunParts, chosen: Chosen) -> Result:
    config = parts.config
    records = [r for r in parts.metrics.evaluations if r.step == chosen.step and r.averaged == chosen.averaged]
    domains = [record for record in records if isinstance(record, EvaluationRecord)]
    roles = [record for record in records if isinstance(record, RoleRecord)]
    average = parts.description.average
    varied = average.runs[0].settings if average else ()  # these are settings of single runs, not of their average
    compared = parts.averager is not None and average is None
    better = better_step(parts.metrics.evaluations, config.training.selection) if compared else None
    return Result(
        selection=chosen.selection,
        validation=RULES[config.training.selection].role,
        selected_step=chosen.step,
        averaged_steps=chosen.averaged_steps,
        averaged_runs=chosen.averaged_runs,
        better_step=better,
        source_val={record.domain: record.accuracy for record in domains if record.role == "source_val"},
        target={record.domain: record.accuracy for record in domains if record.role == "target"},
        class_scores=_class_scores(domains),
        roles={
            r.role: RoleScores(count=r.count, accuracy=r.accuracy, macro_f1=r.macro_f1, class_scores=r.class_scores)
            for r in roles
        },
        target_part=config.training.target_part,
        protocol=config.protocol,
        deviations={name: value for name, value in config.deviations().items() if f"training.{name}" not in varied},
        recipe=None if average else recipe_of(config),
    )


def _class_scores(records: Sequence[EvaluationRecord]) -> dict[str, dict[str, ClassScores]]:
    found: dict[str, dict[str, ClassScores]] = {}
    for record in records:
        if record.class_scores:
            found.setdefault(record.role, {})[record.domain] = record.class_scores
    return found


def _record_routing(parts: RunParts, role: Role, domain: int, predicted: Predictions) -> None:
    if predicted.routing is None:
        return
    sealed = parts.loader.data
    means, counts = mean_routing_by_class(predicted.routing, predicted.labels, num_classes=len(sealed.classes))
    for label, count in enumerate(counts.tolist()):
        if count:
            parts.metrics.write(
                RoutingRecord(
                    role=role,
                    domain=sealed.domain_names[domain],
                    label=sealed.classes[label],
                    count=count,
                    experts=tuple(means[label].tolist()),
                )
            )


def _record_examples(parts: RunParts, role: Role, domain: int, predicted: Predictions) -> None:
    """Save evenly spaced images of a domain as PNG files, and record the prediction of each."""
    sealed = parts.loader.data
    if not sealed.has_images:
        return
    indices = sealed.indices(role, domain)
    probabilities = predicted.logits.softmax(-1)
    folder = parts.folder.examples
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
        parts.metrics.write(
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

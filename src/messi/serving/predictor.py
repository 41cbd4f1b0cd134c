"""Inputs of requests become answers: one call of the model for a whole batch."""

import torch
from torch import Tensor

from messi.algorithms.common.inference import batch_size
from messi.core.errors import MessiError
from messi.diagnostics.novelty import Judgement
from messi.evaluation.model import Model
from messi.evaluation.predict import predict_and_encode
from messi.serving.documents import Answer, Likeness
from messi.serving.known_domains import KnownDomains, points_of
from messi.serving.ready_input import ReadyInput


class Predictor:
    """A model with the examples that it can compare inputs with."""

    def __init__(self, model: Model, known: KnownDomains | None) -> None:
        self.model, self.known = model, known
        self.device = next(model.algorithm.parameters()).device
        self.batch_size = batch_size(self.device)

    def warm_up(self) -> None:
        """Answer a blank input, so that no request has to wait for imports and kernels."""
        shape = self.model.spec.shape
        if len(shape) == 1:
            blank = torch.zeros(shape)
        else:
            channels, height, width = shape
            blank = torch.zeros(channels, height + 1, width + 1, dtype=torch.uint8)  # of a size that must be changed
        self([ReadyInput(blank)])

    def __call__(self, inputs: list[ReadyInput]) -> list[Answer | Exception]:
        """Answer a batch; an input may have its own error."""
        ready = self._ready([one.values for one in inputs])
        prediction, features = predict_and_encode(self.model.algorithm, [ready])
        probabilities = prediction.logits.cpu().softmax(-1)
        routing = None if prediction.routing is None else prediction.routing.cpu()
        points = points_of(self.model, ready, features)
        judged = self.known.bank.judge(points) if self.known and points is not None else None
        answers: list[Answer | Exception] = []
        for place, row in enumerate(probabilities):
            if not row.isfinite().all():
                answers.append(MessiError("The prediction is not a number: the input has values that are too large."))
                continue
            label = int(row.argmax())
            experts = None if routing is None else routing[place].tolist()
            answers.append(
                Answer(
                    label=self.model.classes[label],
                    probability=float(row[label]),
                    probabilities=dict(zip(self.model.classes, row.tolist(), strict=True)),
                    experts=experts,
                    active_experts=None if experts is None else active(experts),
                    likeness=self._likeness(judged, place),
                    notes=list(inputs[place].notes),
                )
            )
        return answers

    def _ready(self, inputs: list[Tensor]) -> Tensor:
        if len(self.model.spec.shape) == 1:
            return torch.stack(inputs).to(self.device)
        return self.model.prepare_images(inputs, self.device)

    def _likeness(self, judged: Judgement | None, place: int) -> Likeness | None:
        if judged is None or self.known is None:
            return None
        distance = float(judged.distance[place])
        return Likeness(
            nearest_domain=self.known.names[int(judged.nearest[place])],
            distance=distance,
            threshold=self.known.threshold,
            unlike_training=distance > self.known.threshold,
        )


def active(weights: list[float]) -> list[int]:
    """Return the experts with at least an equal share of the weight, the heaviest first, counted from 1."""
    chosen = [place for place, weight in enumerate(weights, start=1) if weight >= 1 / len(weights) - 1e-6]
    return sorted(chosen, key=lambda place: -weights[place - 1])

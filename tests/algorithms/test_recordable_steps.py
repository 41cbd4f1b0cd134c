"""The steps that are more than a loss look at no value either, so that a CUDA graph can record them."""

from collections.abc import Callable

import pytest
import torch
from test_recordable import Blind

from messi.algorithms._base import ALGORITHMS, build
from messi.core import domain_rows
from messi.core.batch import Batch, LossTerms, Task
from messi.engine.stepper import total
from messi.models.encoder import EncoderConfig


class Differentiate:
    """Differentiates and does not step: on a CPU, Adam itself reads how many steps it has taken."""

    def descend(self, loss: Callable[[], LossTerms], group: str = "main") -> LossTerms:  # noqa: ARG002
        terms = loss()
        total(terms).backward()
        return {name: term.detach() for name, term in terms.items()}


@pytest.mark.parametrize("step", [1, 2, 2000])
@pytest.mark.parametrize("name", ["cdann", "dann", "fish", "fishr", "lfme", "mldg"])
def test_a_step_looks_at_no_value(name: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at once, in the first batch, is known by then: see DomainRows."""
    torch.manual_seed(0)
    task = Task(input_shape=(2, 12, 12), num_classes=3, num_domains=4)
    algorithm = build(ALGORITHMS.config(name)(), task=task, encoder=EncoderConfig(backbone="tiny_cnn"))
    monkeypatch.setattr(domain_rows, "_number", lambda _: 4)
    domains = torch.tensor([0, 3, 1, 2, 1, 0, 2, 3])
    batch = Batch(inputs=torch.randn(8, 2, 12, 12), labels=torch.randint(3, (8,)), domains=domains, step=step)
    with Blind():
        algorithm.update(batch, Differentiate())
    assert algorithm.phase(step) is not None

"""Small finished runs, written with the record classes, without training."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from messi.core.documents import write_document
from messi.core.records import (
    ClassScores,
    EvaluationRecord,
    ExampleRecord,
    Record,
    RecordWriter,
    Role,
    RoutingRecord,
    TrainRecord,
)
from messi.core.rundir import RunDir

HOSTILE_TAG = "<script>alert(1)</script>"
HOSTILE_ATTRIBUTE = 'a"onload="x'


@dataclass
class Sample:
    """A run on two sources, with three evaluations of which the second is the best."""

    algorithm: str = "messi"
    seed: int = 0
    sources: dict[str, tuple[float, float, float]] = field(
        default_factory=lambda: {"photo": (0.5, 0.8, 0.7), "art": (0.6, 0.9, 0.9)}
    )
    """Accuracy after 10, 20 and 30 steps."""
    targets: dict[str, float] = field(default_factory=lambda: {"sketch": 0.625})
    classes: tuple[str, ...] = ("cat", "dog")
    experts: tuple[float, ...] = (0.125, 0.6, 0.275)
    """The weights for the first class; the second has them in reverse order. Empty: no router."""
    images: bool = True
    fingerprint: str = "f00d"
    settings: dict[str, Any] = field(default_factory=dict)
    """More settings of the algorithm."""
    data: dict[str, Any] = field(default_factory=dict)
    """More settings of the data."""
    steps: int = 30
    class_scores: ClassScores | None = None
    """For unbalanced classes: those of every evaluation."""
    more: tuple[Record, ...] = ()
    """Additional records."""
    diagnostics: dict[str, Any] = field(default_factory=dict)
    """The content of ``diagnostics.json``; empty for no file."""
    result: dict[str, Any] = field(default_factory=dict)
    """Overrides of ``result.json``."""

    def write(self, path: Path) -> Path:
        """Write the folder and return its path."""
        path.mkdir(parents=True)
        folder = RunDir(path)
        write_document(folder.description, self._description())
        writer = RecordWriter(folder.records, size=0)
        for record in [*self._learning(), *self.more, *self._routing(), *(self._examples(path) if self.images else [])]:
            writer.write(record)
        writer.close()
        result = {
            "selection": "source_val",
            "validation": "source_val",
            "selected_step": 20,
            "target_part": "all",
            "protocol": "messi",
            "deviations": {"steps": self.steps},
            **self.result,
        }
        write_document(folder.result, result)
        if self.diagnostics:
            write_document(folder.diagnostics, self.diagnostics)
        return path

    def _description(self) -> dict[str, Any]:
        config = {
            "data": {"name": "pets", **self.data},
            "target": list(self.targets),
            "algorithm": {"name": self.algorithm, **self.settings},
            "training": {"steps": self.steps},
            "seed": self.seed,
        }
        return {
            "config": config,
            "version": "0.1.0",
            "data": self.fingerprint,
            "classes": self.classes,
            "sources": list(self.sources),
            "target": list(self.targets),
            "environment": {"python": "3.11.7"},
        }

    def _learning(self) -> list[Record]:
        records: list[Record] = []
        for place, step in enumerate((10, 20, 30)):
            terms = {"cls": 0.9 - 0.2 * place} | ({"ssi": 0.01 * (place + 1)} if self.experts else {})
            records.append(TrainRecord(step=step, terms=terms))
            for domain, accuracies in self.sources.items():
                count = 10 if domain == "photo" else 30
                records.append(self._evaluation(step, "source_val", domain, accuracies[place], count))
        chosen = self.result.get("selected_step", 20)
        records += [
            self._evaluation(chosen, "target", domain, accuracy, 40) for domain, accuracy in self.targets.items()
        ]
        return records

    def _routing(self) -> list[Record]:
        if not self.experts:
            return []
        rows = ((self.classes[0], 7, self.experts), (self.classes[-1], 9, self.experts[::-1]))
        return [
            RoutingRecord(role=role, domain=domain, label=label, count=count, experts=experts)
            for role, domain in self._domains()
            for label, count, experts in rows
        ]

    def _examples(self, path: Path) -> list[Record]:
        (path / "examples").mkdir()
        records: list[Record] = []
        for place, (role, domain) in enumerate(self._domains()):
            image = f"examples/{place}.png"
            Image.new("RGB", (8, 6), (30 * place, 90, 200)).save(path / image)
            records.append(
                ExampleRecord(
                    role=role,
                    domain=domain,
                    image=image,
                    label=self.classes[0],
                    predicted=self.classes[0] if role == "source_val" else self.classes[-1],
                    probability=0.753,
                    experts=self.experts,
                )
            )
        return records

    def _domains(self) -> list[tuple[Role, str]]:
        return [*(("source_val", name) for name in self.sources), *(("target", name) for name in self.targets)]

    def _evaluation(self, step: int, role: Role, domain: str, accuracy: float, count: int) -> EvaluationRecord:
        return EvaluationRecord(
            step=step,
            role=role,
            domain=domain,
            count=count,
            accuracy=accuracy,
            loss=0.5,
            class_scores=self.class_scores,
        )

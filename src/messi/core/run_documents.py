"""The documents of a run: the content of ``run.json``, ``result.json``, ``timing.json`` and ``diagnostics.json``."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from messi.core.config import Bounds
from messi.core.documents import parse
from messi.core.precision import Precision
from messi.core.records import ClassScores, Role, Share

Count = Annotated[int, Bounds(minimum=0)]


class _Named(TypedDict):
    name: str


class _Scheduled(TypedDict):
    steps: Count


class _Config(TypedDict):
    """The keys that every config has; the others depend on data and method."""

    data: _Named
    algorithm: _Named
    training: _Scheduled
    target: list[str]
    seed: Count


AverageChoice = Literal["uniform", "greedy"]
"""Which of several runs are averaged: all, or those that do not lower the validation score of the average."""


@dataclass(frozen=True, kw_only=True)
class AveragedRun:
    """A run that an average was made from, or could have been."""

    run: str
    """The identity of the run."""
    path: str
    """The folder of the run when the average was made."""
    settings: dict[str, str]
    """The settings in which the runs differ, by dotted name."""


@dataclass(frozen=True, kw_only=True)
class RunAverage:
    """Which runs a model was averaged from, and how they were chosen."""

    choice: AverageChoice
    runs: tuple[AveragedRun, ...]

    @property
    def identity(self) -> tuple[str, ...]:
        """What the average depends on; the folders of the runs may have been moved."""
        return (self.choice, *(one.run for one in self.runs))


@dataclass(frozen=True, kw_only=True)
class RunDescription:
    """``run.json``: the description of a run; written once, before anything else."""

    config: dict[str, Any]
    version: str
    data: str
    """The fingerprint of the data."""
    seen: str | None = None
    """The checksum of the digests of all examples except the target's; None in files of version 0.1."""
    start: str | None = None
    """The checksum of the weights of ``config["start"]``; None if there is no start."""
    initial: str | None = None
    """The checksum of the weights before the first step; None in files of earlier versions."""
    classes: tuple[str, ...]
    sources: tuple[str, ...]
    target: tuple[str, ...]
    environment: dict[str, str]
    precision: Precision | None = None
    """None in files of earlier versions, which computed in float32 on a CPU."""
    average: RunAverage | None = None
    """For the average of several runs: of which; the config is then that of the first."""

    def __post_init__(self) -> None:
        parse(_Config, self.config, "config")

    @property
    def origin(self) -> tuple[str, ...]:
        """What the average of several runs depends on; empty for a run that was trained."""
        return self.average.identity if self.average else ()


@dataclass(frozen=True, kw_only=True)
class RoleScores:
    """The scores on all examples in a role."""

    count: Count
    accuracy: Share
    macro_f1: Share
    class_scores: ClassScores | None = None
    """None if the classes are balanced, and in files of earlier versions."""


@dataclass(frozen=True, kw_only=True)
class AveragedScores:
    """The results of a run that was considered for an average."""

    validation: Share
    """The score of the run by the selection rule of the average."""
    target: dict[str, Share]
    kept: bool
    """Whether its weights are part of the average."""
    with_it: Share | None = None
    """The score of the average with this run, when it was considered; None if all runs are kept."""


@dataclass(frozen=True, kw_only=True)
class BetterStep:
    """A single step that scores clearly higher than the average by the selection rule; its weights are the model."""

    step: Count
    score: Share
    average: Share
    """The score of the averaged weights."""

    @property
    def comparison(self) -> str:
        """Both scores, as a clause."""
        return (
            f"step {self.step} alone scores {100 * self.score:.1f} % on validation and the average "
            f"{100 * self.average:.1f} %"
        )


@dataclass(frozen=True, kw_only=True)
class Result:
    """``result.json``: the result of a run; written last."""

    selection: str
    """The rule that selected the step, or how weights were averaged: "ma", "ema" or "swad"."""
    validation: Role
    """The role that the rule reads."""
    selected_step: Count
    averaged_steps: tuple[Count, Count] | None = None
    """The first and last of the averaged steps; None if the weights are those of one step."""
    averaged_runs: tuple[AveragedScores, ...] = ()
    """For the average of several runs: the results of each, in the order of ``run.json``."""
    better_step: BetterStep | None = None
    """None if no single step was clearly better than the average, or if nothing was averaged."""
    source_val: dict[str, Share] = field(default_factory=dict)
    target: dict[str, Share] = field(default_factory=dict)
    class_scores: dict[str, dict[str, ClassScores]] = field(default_factory=dict)
    """By role and domain; empty if the classes are balanced, and in files of earlier versions."""
    roles: dict[str, RoleScores] = field(default_factory=dict)
    target_part: str
    protocol: str
    deviations: dict[str, Any] = field(default_factory=dict)
    """Settings that differ from the protocol."""
    recipe: str | None = None
    """The name of the recipe; None if the settings are those of no recipe, and in files of earlier versions."""
    files: dict[str, str] = field(default_factory=dict)
    """The checksums of the other files of the run; none in results of version 0.1."""

    @property
    def averaged(self) -> bool:
        """Whether the weights are an average, over steps or over runs."""
        return self.averaged_steps is not None or bool(self.averaged_runs)


@dataclass(frozen=True, kw_only=True)
class ExpectedAccuracy:
    """The accuracy to expect on a new domain: that of the same method on domains that were held out in other runs."""

    mean: Share
    lowest: Share
    """On the worst held-out domain, mean over seeds."""
    highest: Share
    domains: Count
    """The number of held-out domains."""
    seeds: Count

    def __str__(self) -> str:
        over = f"{self.domains} held-out domain{'s' if self.domains > 1 else ''}"
        low, high = 100 * self.lowest, 100 * self.highest
        spread = f", from {low:.1f} % to {high:.1f} %," if self.domains > 1 else ""
        return f"{100 * self.mean:.1f} %{spread} on {over} ({self.seeds} seed{'s' if self.seeds > 1 else ''})"


@dataclass(frozen=True, kw_only=True)
class Inference:
    """How long the selected model took for the target."""

    images: Count
    seconds: Annotated[float, Bounds(minimum=0)]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """``timing.json``: how long a run took; for a resumed run, only its last part."""

    run: str | None = None
    """The identity of the run; None in files of version 0.1."""
    device: str
    resumed_after_step: Count
    steps: Count
    seconds: Annotated[float, Bounds(minimum=0)]
    seconds_with_evaluations: Annotated[float, Bounds(minimum=0)]
    inference: Inference | None


class Bin(TypedDict):
    """Predictions of similar confidence."""

    confidence: Share
    accuracy: Share
    count: Count


class Calibration(TypedDict):
    """How well confidence agrees with accuracy."""

    ece: float | None
    bins: list[Bin]


class Routing(TypedDict):
    """Statistics of the router; a class without examples has no weights."""

    entropy: float | None
    load: list[float]
    load_std: float | None
    dead_threshold: float
    dead_rate: float
    template_divergence: float | None
    by_class: list[list[float] | None]


class Slots(TypedDict):
    """How strongly each expert aligns a class between two domains: pairs x classes x experts."""

    pairs: list[tuple[Count, Count]]
    responsibilities: list[list[list[float] | None]]


class Similarity(TypedDict):
    """How similar the outputs of the experts are."""

    cosine: list[list[float]]
    mean_off_diagonal: float | None
    effective_rank: float | None


Embedding = TypedDict(
    "Embedding",
    {
        "before": list[tuple[float, float]],
        "after": list[tuple[float, float]],
        "domain": list[Count],
        "class": list[Count],
        "roles": list[Role],
        "expert": NotRequired[list[Count]],
    },
)
"""Examples as points in a plane, with the attributes that can colour them."""

Thumbnail = TypedDict(
    "Thumbnail",
    {
        "src": str,
        "class": str,
        "domain": NotRequired[str],
        "weight": NotRequired[float],
        "predicted": NotRequired[str],
        "confidence": NotRequired[Share],
    },
)
"""A small picture and its caption."""


class Pictures(TypedDict, total=False):
    """Examples of each expert, and mistakes by domain."""

    experts: list[list[Thumbnail]]
    mistakes: dict[str, list[Thumbnail]]
    source_mistakes: dict[str, list[Thumbnail]]


class Diagnostics(TypedDict, total=False):
    """``diagnostics.json``: what the selected model learned; parts that do not apply are missing."""

    router: str
    domains: list[str]
    classes: list[str]
    experts: Annotated[int, Bounds(minimum=0, maximum=10_000)]
    examples: Count
    calibration: dict[str, Calibration]
    accuracy: dict[str, Any]
    routing: Routing
    slots: Slots
    similarity: Similarity
    discrepancy: dict[str, Any]
    probe: dict[str, Any]
    embedding: Embedding
    embedding_domains: list[str]
    pictures: Pictures

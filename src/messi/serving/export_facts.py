"""What is known of a model: for the metadata of an exported file and for its card."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from messi.core.errors import MessiError
from messi.core.info import version
from messi.core.registry import short_name
from messi.core.run_documents import Result, RunDescription
from messi.core.rundir import RunDir, runs_inside
from messi.data.manifest import Manifest, read_manifest
from messi.evaluation.model import Model, ModelDescription
from messi.models.encoder import SMALL
from messi.serving.export_network import NetworkInput, expected_outputs


@dataclass(frozen=True)
class Facts:
    """A model, and the run that it came from if a finished run was given."""

    model: Model
    input: NetworkInput
    outputs: tuple[str, ...]
    """The names of the network's outputs."""
    licence: str
    result: Result | None = None
    others: Mapping[str, Result] = field(default_factory=dict)
    """The results of the runs next to this one with the same settings and data, by the domain that they held out."""

    @classmethod
    def of(cls, run: Path, model: Model, licence: str | None) -> "Facts":
        """Collect what is known of the model of a run folder, or of a model file."""
        taken = NetworkInput.of(model.spec)
        outputs = ("probabilities", "experts")[: len(expected_outputs(model, taken.example))]
        terms = licence or "; ".join(f"{part}: {terms}" for part, terms in licences(model.description).items())
        folder = RunDir(run)
        if folder.state() != "done":
            return cls(model, taken, outputs, terms)
        return cls(model, taken, outputs, terms, folder.read_result(), _held_out_by_others(folder))

    @property
    def description(self) -> ModelDescription:
        """What the model file states."""
        return self.model.description

    @property
    def method(self) -> str:
        """The name of the method."""
        return short_name(str(self.description.config["algorithm"]["name"]))

    @property
    def backbone(self) -> str:
        """The name of the encoder."""
        return str(self.description.config["encoder"]["backbone"])

    @property
    def data(self) -> str:
        """The name of the data set; of the user's own data, the name of its file or folder without the path."""
        data = self.description.config["data"]
        name, path = short_name(str(data["name"])), data.get("path")
        return Path(str(path)).name if path and not published(name) else name

    @property
    def summary(self) -> str:
        """The model in a few words."""
        return f"{self.method} with {self.backbone}, trained on {self.data} ({', '.join(self.description.sources)})"

    def metadata(self) -> dict[str, str]:
        """Return the metadata of a file; lists and objects are JSON."""
        known, spec = self.description, self.model.spec
        values = {
            "classes": json.dumps(known.classes),
            "model_license": self.licence,
            "method": self.method,
            "backbone": self.backbone,
            "data": self.data,
            "source_domains": json.dumps(known.sources),
            "held_out_domains": json.dumps(known.target),
            "columns": json.dumps([{"name": one.name, "categories": one.categories} for one in spec.columns]),
            "run": known.run,
            "step": str(known.step),
            "trained_with": f"messi {known.version}",
            "exported_with": f"messi {version()}",
            "expected_accuracy": str(known.expected) if known.expected else None,
        }
        return {key: value for key, value in values.items() if value is not None}


def licences(description: RunDescription) -> dict[str, str]:
    """Return the licence of everything that a model was made from, as far as it is known."""
    encoder, data = (description.config[part] for part in ("encoder", "data"))
    found = {"software": "MIT (messi)"}
    backbone, weights = str(encoder["backbone"]), encoder.get("weights")
    if weights:
        found["pretrained weights"] = f"not stated ({Path(str(weights)).name})"
    elif encoder.get("pretrained") and backbone not in SMALL:
        from messi.models import timm_models  # noqa: PLC0415 (see there)

        origin = timm_models.published(backbone)
        found["pretrained weights"] = f"{origin.license or 'not stated'} (timm {backbone}.{origin.tag})"
    manifest = published(short_name(str(data["name"])))
    found["data"] = manifest.licence if manifest else "not stated"
    return found


def published(data: str) -> Manifest | None:
    """Return the manifest of a published data set; None for any other data."""
    try:
        return read_manifest(data) if data.isidentifier() else None
    except FileNotFoundError:
        return None


def _held_out_by_others(folder: RunDir) -> dict[str, Result]:
    """Return the results of the runs next to a run by the domain that they held out, if they only differ in that."""
    ours, found = folder.read_description(), dict[str, Result]()
    for place in runs_inside(folder.path.resolve().parent):
        other = RunDir(place)
        try:
            theirs = other.read_description()
            if other.state() == "done" and _differ_in_target_only(ours, theirs):
                result = other.read_result()
                found |= dict.fromkeys(result.target, result)
        except MessiError:  # a damaged run is no part of this model
            continue
    return {domain: result for domain, result in found.items() if domain not in ours.target}


def _differ_in_target_only(ours: RunDescription, theirs: RunDescription) -> bool:
    configs = [{key: value for key, value in one.config.items() if key != "target"} for one in (ours, theirs)]
    same = configs[0] == configs[1] and ours.data == theirs.data and ours.version == theirs.version
    return same and ours.origin == theirs.origin == () and ours.target != theirs.target

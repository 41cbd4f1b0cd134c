"""Your own table of features: CSV, TSV or Parquet with a row per example."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import torch
import tyro

from messi.core.batch import Column
from messi.core.errors import MessiError
from messi.core.text import plain_name
from messi.data.augment import Augmentation
from messi.data.datasets.arrays import read_vectors
from messi.data.datasets.common.base import DataConfig
from messi.data.datasets.common.tables import FIRST_ROW, Columns, no_column, read_columns
from messi.data.examples import Examples, Scaling, digest
from messi.data.features import Rows, with_vectors
from messi.data.progress import DataProgress


@dataclass(frozen=True, kw_only=True)
class FeatureTable(DataConfig):
    """Your own CSV, TSV or Parquet table: a column of classes, a column of domains, and columns of features."""

    backbone: ClassVar[str] = "residual_mlp"
    augmentation: ClassVar[Augmentation] = "none"
    location_fields: ClassVar[tuple[str, ...]] = ("path", "vectors")

    path: tyro.conf.Fixed[str]
    """The table."""
    label_column: Annotated[str, tyro.conf.arg(aliases=("--label",))] = "label"
    """The column with the classes."""
    domain_column: Annotated[str, tyro.conf.arg(aliases=("--domain",))] = "domain"
    """The column with the domains."""
    split_column: str = "split"
    """The column with train, val and test; required only for --split official."""
    features: tuple[str, ...] = ()
    """The columns with features: numbers, text (categories) or lists of numbers; by default all others."""
    ignore: tuple[str, ...] = ()
    """Columns that are not features, such as names and identifiers."""
    categories: tuple[str, ...] = ()
    """Columns whose numbers are categories, such as postcodes; also a text column with many categories."""
    vectors: str | None = None
    """An .npy file with a vector for each row of the table. The table's own columns are then only used if named with
    --features."""
    scaling: Scaling = "standardise"
    """Standardise numbers with the mean and standard deviation of the training part, or use them as they are."""

    def load(self, progress: DataProgress | None = None) -> Examples:  # noqa: ARG002 (nothing to report)
        """Read the table; its cells determine which columns have numbers and which have categories."""
        return self._load(None)

    def load_like(self, columns: Sequence[Column]) -> Examples:
        """Read the columns that a model takes, with the kinds that they had in training."""
        return self._load(columns)

    def _load(self, known: Sequence[Column] | None) -> Examples:
        from messi.data.cells import Kind, Source, read_known, read_names, read_rows  # noqa: PLC0415 (slow to import)

        path = Path(self.path)
        columns, source = read_columns(path), Source(self.path, FIRST_ROW)
        label, domain, split = map(plain_name, (self.label_column, self.domain_column, self.split_column))
        for option, name in (("label", label), ("domain", domain)):
            if name not in columns:
                raise no_column(path, f"--{option}", name, list(columns))
        classes, labels = read_names(columns[label], label, source)
        domain_names, domains = read_names(columns[domain], domain, source)
        parts: tuple[str, ...] = ()
        if split in columns:
            names, indices = read_names(columns[split], split, source)
            parts = tuple(names[index] for index in indices.tolist())
        if known is None:
            categories = list(map(plain_name, self.categories))
            chosen = self._chosen(path, columns, (label, domain, split), categories)
            kinds: dict[str, Kind] = dict.fromkeys(categories, "categories")
            rows = read_rows(chosen, source, kinds=kinds, named=categories) if chosen else None
            rows = self._with_vectors(rows, len(labels))
        else:
            own = [column for column in known if not (self.vectors and column.name.startswith("vectors["))]
            rows = self._with_vectors(read_known(columns, own, source) if own else None, len(labels))
        described = [classes, domain_names, parts, [dataclasses.asdict(column) for column in rows.columns]]
        named = torch.frombuffer(bytearray(json.dumps(described).encode()), dtype=torch.uint8)
        return Examples(
            inputs=rows.values,
            labels=labels,
            domains=domains,
            classes=classes,
            domain_names=domain_names,
            fingerprint=digest(rows.values, labels, domains, named),
            parts=parts,
            columns=rows.columns,
            scaling=self.scaling,
        )

    def _chosen(self, path: Path, columns: Columns, roles: Sequence[str], categories: Sequence[str]) -> Columns:
        """Return the columns that are features; those of other ``roles`` are none."""
        features, ignore = (list(map(plain_name, names)) for names in (self.features, self.ignore))
        for option, names in (("features", features), ("ignore", ignore), ("categories", categories)):
            for name in names:
                if name not in columns:
                    raise no_column(path, f"--{option}", name, list(columns))
        others = (*roles, *ignore)
        if reserved := next((name for name in features if name in others), None):
            raise MessiError(
                f"The column '{reserved}' of {path} cannot be a feature and have another role; remove one."
            )
        names = features or (() if self.vectors else [name for name in columns if name not in others])
        if not names and not self.vectors:
            raise MessiError(
                f"The table {path} has no features: all its columns are labels, domains, parts or ignored; add columns "
                "of numbers or categories."
            )
        if unused := next((name for name in categories if name not in names), None):
            raise MessiError(
                f"The column '{unused}' of {path} has categories but is no feature; remove it from one option."
            )
        return {name: columns[name] for name in names}

    def _with_vectors(self, rows: Rows | None, number: int) -> Rows:
        """Return the columns of the table and the vectors next to it."""
        if self.vectors is None:
            assert rows is not None  # noqa: S101 (for the type checker; a table without vectors has columns)
            return rows
        return with_vectors(rows, read_vectors(Path(self.vectors)), f"{self.vectors} and {self.path}", number)

"""The manifest of a published data set: domains, classes, counts, versions, licence and source."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Version:
    """One of the published versions of a data set."""

    name: str
    about: str
    images: int
    totals: Mapping[str, int]
    """Images by domain, or by official part if there are too many domains to list."""
    counts: Mapping[str, list[int]] | None
    """Images by domain and class, in the order of the manifest's classes."""
    tree: str | None = None
    """A digest of all files and their names."""
    locations: Mapping[str, int] | None = None
    """Domains by official part."""


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file to download; files of one part are copies of each other, tried in turn."""

    part: str
    url: str
    about: str
    size: int | None
    checksum: str | None
    kind: Literal["zip", "tar", "file"]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One file of ``data/manifests``."""

    name: str
    title: str
    folder: str
    """The usual name of the data's folder."""
    licence: str
    citation: str
    homepage: str
    about: str
    domains: list[str]
    classes: list[str]
    versions: list[Version]
    downloads: list[Download]


def read_manifest(name: str) -> Manifest:
    """Return the manifest of a data set."""
    file = resources.files("messi.data") / "manifests" / f"{name}.json"
    values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    versions = [Version(**version) for version in values.pop("versions")]
    downloads = [Download(**download) for download in values.pop("downloads")]
    return Manifest(**values, versions=versions, downloads=downloads)

"""``messi data``: which data sets exist, whether they are complete, and what they look like."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import tyro

from messi.cli.common.options import FLAT, shown_as
from messi.cli.common.output import Row, print_rows, say
from messi.cli.common.progress import data_progress
from messi.core.errors import MessiError, unknown_name
from messi.core.files import replace_atomically
from messi.data.contact_sheet import contact_sheet
from messi.data.datasets.common.base import DATASETS, DataConfig, ImageData
from messi.data.datasets.common.benchmark import Benchmark
from messi.data.examples import Examples, summary
from messi.data.find import data_label, find_data
from messi.data.images import Images
from messi.data.verify import Finding, verify
from messi.data.verify_features import column_rows, verify_features

_SHOWN = 20
_MOST_COLUMNS = 12
_HELP = ("-h", "--help")
_WHAT = "DATA is anything that 'messi train --data' accepts"


def main(arguments: list[str]) -> int:
    """Run one of the four subcommands."""
    if not arguments or arguments[0] in _HELP:
        say("usage: messi data COMMAND", "")
        for name, command in COMMANDS.items():
            say(f"  {name:<14}{_about(command)}")
        say("", f"{_WHAT}.")
        return 0
    word, rest = arguments[0], arguments[1:]
    if word not in _BY_WORD:
        raise unknown_name("command of 'messi data'", word, _BY_WORD)
    if rest and rest[0] in _HELP and word != "list":
        say(f"usage: messi data {word} DATA [OPTIONS]", "", _about(_BY_WORD[word]), "")
        say(f"{_WHAT}, such as a folder or 'pacs'; 'messi data {word} DATA --help' describes its options.")
        return 0
    return _BY_WORD[word](rest)


def list_all(arguments: list[str]) -> int:
    """List all kinds of data and where the published data sets are stored."""
    tyro.cli(lambda: None, prog="messi data list", args=arguments)
    print_rows([_row(name, DATASETS.config(name)) for name in DATASETS.names()])
    return 0


def prepare(arguments: list[str]) -> int:
    """Download the data if necessary, and decode every image once."""
    data, _ = _parse("prepare", prepare, arguments)
    examples = data.load(data_progress())
    say(_summary(examples))
    return 0


def verify_all(arguments: list[str]) -> int:
    """List missing, extra, corrupt and duplicate files or rows; the exit code is 1 if there are any."""
    data, _ = _parse("verify", verify_all, arguments)
    if not isinstance(data, ImageData):
        examples = data.load(data_progress())
        findings = verify_features(examples)
        say(summary(examples))
        _print_findings(findings)
        return 1 if findings else 0
    shown = data_progress()
    listing, store = data.prepare(shown)
    manifest = data.manifest if isinstance(data, Benchmark) else None
    version, findings = verify(listing, store, manifest, shown)
    say(f"{len(listing):,} images, {len(listing.domain_names)} domains, {len(listing.classes)} classes")
    if manifest and version:
        say(f"compared with {manifest.title}, version '{version.name}' ({version.images:,} images)")
    _print_findings(findings)
    return 1 if findings else 0


def show(arguments: list[str]) -> int:
    """Print the number of examples by domain and class, and draw a contact sheet."""
    data, out = _parse("show", show, arguments)
    examples = data.load(data_progress())
    _print_counts(examples)
    if examples.columns:
        print_rows(column_rows(examples))
    if isinstance(data, Benchmark):
        manifest = data.manifest
        say(manifest.about, f"licence   {manifest.licence}", f"citation  {manifest.citation}")
    say(_summary(examples))
    if isinstance(examples.inputs, Images):
        path = out or Path(f"{data_label(data)}.png")
        picture = contact_sheet(examples)
        replace_atomically(path, lambda temporary: picture.save(temporary, format="PNG"))
        say(f"picture   {path}")
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "list": list_all,
    "prepare DATA": prepare,
    "verify DATA": verify_all,
    "show DATA": show,
}
_BY_WORD = {name.split()[0]: command for name, command in COMMANDS.items()}


def _parse(word: str, command: Callable[[list[str]], int], arguments: list[str]) -> tuple[DataConfig, Path | None]:
    """Return the data that the first argument names, with its options, and the path of its picture."""
    if not arguments or arguments[0].startswith("-"):
        raise MessiError(
            f"Name the data first: 'messi data {word} DATA', where DATA is a folder or a name such as 'pacs'."
        )
    default = find_data(arguments[0])

    def parsed(
        *,
        out: Annotated[Path | None, shown_as("FILE")] = None,
        config: Annotated[DataConfig, tyro.conf.arg(name="")] = default,
    ) -> tuple[DataConfig, Path | None]:
        """Options of the chosen data.

        Args:
            out: For show: the picture to write; by default it has the name of the data.
            config: Options of the data.

        """
        return config, out

    name, about = f"messi data {word} DATA", _about(command)
    return tyro.cli(parsed, prog=name, description=about, args=arguments[1:], config=FLAT)


def _about(command: Callable[[list[str]], int]) -> str:
    return (command.__doc__ or "").splitlines()[0]


def _row(name: str, cls: type[DataConfig]) -> Row:
    row: Row = {"name": name, "domains": "", "classes": "", "images": "", "where": "generated"}
    if issubclass(cls, Benchmark):
        data = cls()
        manifest = data.manifest
        row["domains"], row["classes"] = str(len(manifest.domains) or ""), str(len(manifest.classes) or "")
        row["images"] = " or ".join(f"{version.images:,}" for version in manifest.versions)
        row["where"] = str(data.local_root() or "not downloaded; use 'messi data prepare'")
    elif issubclass(cls, ImageData) or "path" in cls.__dataclass_fields__:
        row["where"] = "your own data; give its path"
    return {**row, "what": (cls.__doc__ or "").splitlines()[0]}


def _print_counts(examples: Examples) -> None:
    """Print the number of examples; the longer list of names becomes the rows."""
    cells = examples.domains * len(examples.classes) + examples.labels
    counts = cells.bincount(minlength=len(examples.domain_names) * len(examples.classes))
    table = counts.view(len(examples.domain_names), len(examples.classes))
    down, across, what = examples.domain_names, examples.classes, "domain"
    if len(across) > _MOST_COLUMNS and len(across) > len(down):
        down, across, what, table = across, down, "class", table.T
    shown = across[:_MOST_COLUMNS]
    what, total = _other(what, across), _other("all", across)
    rows: list[Row] = [
        {what: name, **dict(zip(shown, row[: len(shown)].tolist(), strict=True)), total: int(row.sum())}
        for name, row in zip(down, table, strict=True)
    ]
    rows.append({what: total, **dict(zip(shown, table.sum(0).tolist(), strict=False)), total: int(table.sum())})
    print_rows(rows)


def _other(name: str, taken: Sequence[str]) -> str:
    return f"({name})" if name in taken else name


def _print_findings(findings: list[Finding]) -> None:
    if not findings:
        say("no problems found")
    for kind in dict.fromkeys(finding.kind for finding in findings):
        texts = [finding.text for finding in findings if finding.kind == kind]
        for text in texts[:_SHOWN]:
            say(f"{kind:<10}{text}")
        if len(texts) > _SHOWN:
            say(f"{kind:<10}and {len(texts) - _SHOWN:,} more")


def _summary(examples: Examples) -> str:
    return f"{summary(examples)}; fingerprint {examples.fingerprint[:12]}"

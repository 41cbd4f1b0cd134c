import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import pytest

from messi.core.checksum import CHECKSUM_KEY, checksum, parse_values, values_checksum
from messi.core.config import Bounds
from messi.core.documents import parse_document, read_values, write_document
from messi.core.errors import MessiError


class Part(TypedDict):
    share: Annotated[float, Bounds(minimum=0, maximum=1)]
    note: NotRequired[str]


@dataclass(frozen=True, kw_only=True)
class Sample:
    name: str
    step: Annotated[int, Bounds(minimum=0)]
    span: tuple[int, int] | None = None
    parts: dict[str, Part] = field(default_factory=dict)
    rows: list[list[float] | None] = field(default_factory=list)


GOOD: dict[str, Any] = {
    "name": "ü",
    "step": 3,
    "span": [1, 2],
    "parts": {"a": {"share": 1, "note": "x", "more": [None]}},
    "rows": [[0.1, 2], None],
}


def never(_values: dict[str, Any]) -> str:
    raise AssertionError("a document with a checksum is asked for its version")


def test_a_document_is_read_with_its_types(tmp_path: Path) -> None:
    write_document(tmp_path / "d.json", GOOD)
    document = parse_document(Sample, read_values(tmp_path / "d.json", never))
    assert (document.name, document.step, document.span, document.rows) == ("ü", 3, (1, 2), [[0.1, 2.0], None])
    assert document.parts["a"] == {"share": 1.0, "note": "x", "more": [None]}
    write_document(tmp_path / "again.json", document)
    assert parse_document(Sample, read_values(tmp_path / "again.json", never)) == document


def test_the_formatting_of_a_document_may_change_but_not_its_content(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    write_document(path, GOOD)
    values = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(values.items())), indent=7))
    assert read_values(path, never) == GOOD
    for key in GOOD:
        path.write_text(json.dumps({**values, key: "other"}))
        with pytest.raises(ValueError, match="checksum does not match"):
            read_values(path, never)


def test_every_flipped_bit_is_detected_or_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "d.json"
    write_document(path, GOOD)
    content = path.read_bytes()
    damaged = bytearray(content)
    monkeypatch.setattr("messi.core.documents.read_regular", lambda _path: bytes(damaged))  # no file for every bit
    for place in range(8 * len(content)):
        damaged[:] = content
        damaged[place // 8] ^= 1 << place % 8
        try:
            read = read_values(path, lambda values: values.get("version"))
        except ValueError:
            continue
        assert read == GOOD, f"bit {place}"


def test_a_document_without_a_checksum_must_be_of_a_version_that_wrote_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps(GOOD))
    for version in ("0.2.0", "0.10.0", None, 0.1):
        with pytest.raises(ValueError, match="has no checksum"):
            read_values(path, lambda _, version=version: version)  # type: ignore[misc]
    assert not caplog.text
    for _ in range(3):
        assert read_values(path, lambda _: "0.1.0") == GOOD
    assert caplog.text.count("files have no checksums: damage to them may go unnoticed") == 1, "reported once"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": None}, "name must be text, but is None"),
        ({"step": -1}, "step must be at least 0, but is -1"),
        ({"step": True}, "step must be a whole number, but is True"),
        ({"step": 10**400}, None),
        ({"span": [1]}, "span must be a list of 2 values, but has 1"),
        ({"span": "ab"}, "span must be a list, but is 'ab'"),
        ({"parts": []}, "parts must be an object"),
        ({"parts": {"a": {}}}, "parts.a.share is missing"),
        ({"parts": {"a": {"share": 2}}}, "parts.a.share must be at least 0 and at most 1, but is 2"),
        ({"parts": {"a": {"share": 10**400}}}, r"parts.a.share must be a finite number, but is 1000.*\.\.\.\."),
        ({"rows": [[1], "x"]}, r"rows\[1\] must be a list"),
        ({"rows": [[[]]]}, r"rows\[0\]\[0\] must be a finite number"),
        ({"age": 7}, "This version of messi does not know age"),
    ],
)
def test_values_that_do_not_fit_are_named(change: dict[str, Any], sentence: str | None) -> None:
    if sentence is None:
        assert parse_document(Sample, GOOD | change).step == 10**400
        return
    with pytest.raises(MessiError, match=sentence):
        parse_document(Sample, GOOD | change)


@pytest.mark.parametrize("missing", ["name", "step"])
def test_a_missing_part_is_named(missing: str) -> None:
    with pytest.raises(MessiError, match=f"{missing} is missing"):
        parse_document(Sample, {key: value for key, value in GOOD.items() if key != missing})


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"NaN", b'{"a": NaN}', b'{"a": Infinity}', b"[" * 10**5])
def test_anything_but_a_json_object_raises_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_values(content)


def test_the_checksum_is_the_published_xxh3_of_all_parts_together() -> None:
    assert checksum([b""]) == "99aa06d3014798d86001c324468d497f", "the published XXH3 of empty input"
    assert checksum([b"ab", b"", b"c"]) == checksum([b"abc"]) != checksum([b"acb"])
    assert values_checksum({"b": 1, "a": [1.5, None]}) == checksum([b'{"a":[1.5,null],"b":1}'])
    assert CHECKSUM_KEY not in GOOD

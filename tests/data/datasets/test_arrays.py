"""Arrays of features or images in ``.npz`` files, valid and damaged."""

import dataclasses
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from messi.core.errors import MessiError
from messi.data.datasets.arrays import Arrays, read_inputs
from messi.data.images import Images


def save_arrays(folder: Path, **arrays: np.ndarray) -> Arrays:
    np.savez(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]  # its stub allows no other names
    return Arrays(path=str(folder / "arrays.npz"))


LABELS, PLACES = np.array(["b", "a", "b", "c"]), np.array([3, 3, 20, 1])


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int8", "uint8", "int64", "bool"])
def test_features_are_read_in_any_precision_with_text_and_numbers_as_names(tmp_path: Path, kind: str) -> None:
    values = np.arange(12).reshape(4, 3).astype(kind)
    examples = save_arrays(tmp_path, inputs=values, labels=LABELS, domains=PLACES).load()
    assert isinstance(examples.inputs, torch.Tensor)
    assert examples.inputs.dtype == torch.float32
    assert examples.inputs.tolist() == values.tolist()
    assert (examples.classes, examples.labels.tolist()) == (("a", "b", "c"), [1, 0, 1, 2])
    assert (examples.domain_names, examples.domains.tolist()) == (("1", "3", "20"), [1, 1, 2, 0])
    assert examples.parts == ()


def test_images_may_have_their_channels_last_first_or_none(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), np.uint8)
    forms = {
        "last": (pixels, pixels.transpose(0, 3, 1, 2)),
        "first": (pixels.transpose(0, 3, 1, 2), pixels.transpose(0, 3, 1, 2)),
        "grey": (pixels[..., 0], pixels[:, None, :, :, 0]),
        "grey with a channel": (pixels[..., :1], pixels[:, None, :, :, 0]),
        "two channels": (pixels[..., :2], pixels[..., :2].transpose(0, 3, 1, 2)),
    }
    for form, (given, expected) in forms.items():
        examples = save_arrays(tmp_path, inputs=given, labels=LABELS, domains=PLACES).load()
        assert isinstance(examples.inputs, Images)
        assert np.array_equal(examples.inputs.stack().numpy(), expected), form
        assert examples.input_shape == expected.shape[1:]


def test_arrays_may_have_other_names(tmp_path: Path) -> None:
    config = save_arrays(tmp_path, x=np.zeros((4, 2)), y=LABELS, z=PLACES, s=np.array(["train"] * 4))
    with pytest.raises(MessiError, match=r"no array in .*arrays.npz named 'inputs'; available: s, x, y, z"):
        config.load()
    named = dataclasses.replace(config, inputs_array="x", labels_array="y", domains_array="z", split_array="s")
    assert named.load().parts == ("train",) * 4


def test_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    numbers = np.array([10, 2, 0, 33, 5])
    examples = save_arrays(tmp_path, inputs=np.zeros((5, 2)), labels=numbers, domains=numbers).load()
    assert examples.classes == examples.domain_names == ("0", "2", "5", "10", "33")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"inputs": np.zeros((4, 2, 2))}, r"'inputs' in .* must be features .* but has type float64 and shape"),
        (
            {"inputs": np.zeros((4, 5, 5, 3), np.float32)},
            r"uint8 .* but has type float32 and shape \[4, 5, 5, 3\]",
        ),
        ({"inputs": np.zeros((4, 8, 8, 4), np.uint8)}, r"up to three channels, but has type uint8 and shape"),
        ({"inputs": np.zeros((4, 8, 8, 0), np.uint8)}, r"'inputs' in .* uint8 and shape \[4, 8, 8, 0\]"),
        ({"inputs": np.zeros((4, 0, 8, 3), np.uint8)}, r"'inputs' in .* uint8 and shape \[4, 0, 8, 3\]"),
        ({"inputs": np.zeros((4, 2), complex)}, r"'inputs' in .* but has type complex128"),
        ({"inputs": np.full((4, 2), "1.5")}, r"'inputs' in .* but has type <U3"),
        ({"inputs": np.zeros((4, 0))}, r"'inputs' in .* but has type float64 and shape \[4, 0\]"),
        ({"inputs": np.zeros(())}, r"'inputs' in .* but has type float64 and shape \[\]"),
        ({"inputs": np.array([[1.0, -np.inf]] * 4)}, r"'inputs' in .* infinite values"),
        ({"inputs": np.array([[1.0, 1e300]] * 4)}, r"'inputs' in .* infinite values"),
        (
            {"inputs": np.array([[np.nan, 2, 3], [4, 5, np.inf], [7, 8, 9], [np.inf, 1, -np.inf]])},
            r": 3 in 2 of 4 rows, the first in row 1, column 2, counted from 0\. Replace or remove them\.$",
        ),
        ({"labels": np.array([0, 1])}, r"'labels' in .* must contain 4 whole numbers or strings, .* and shape \[2\]"),
        ({"labels": np.zeros((4, 1), int)}, r"'labels' in .* and shape \[4, 1\]"),
        ({"labels": np.array([0.0, 1.0, 0.5, np.nan])}, r"'labels' in .* but has type float64"),
        ({"domains": np.array([0, 1, 2, 3, 4])}, r"'domains' in .* must contain 4 whole numbers"),
        ({"domains": np.array(0)}, r"'domains' in .* and shape \[\]"),
        ({"split": np.array(["train", "val"])}, r"'split' in .* must contain 4 .* and shape \[2\]"),
        ({"split": np.array("train")}, r"'split' in .* and shape \[\]"),
        ({"labels": np.array([], int), "domains": np.array([], int), "inputs": np.zeros((0, 2))}, r"shape \[0, 2\]"),
    ],
)
def test_arrays_of_a_wrong_shape_or_kind_are_named(
    tmp_path: Path, changed: dict[str, np.ndarray], sentence: str
) -> None:
    arrays = {"inputs": np.zeros((4, 2)), "labels": LABELS, "domains": PLACES}
    with pytest.raises(MessiError, match=sentence) as raised:
        save_arrays(tmp_path, **(arrays | changed)).load()
    assert "\n" not in str(raised.value)


def test_text_in_bytes_is_the_text(tmp_path: Path) -> None:
    config = save_arrays(tmp_path, inputs=np.zeros((4, 2)), labels=LABELS.astype("S"), domains=PLACES)
    assert config.load().classes == ("a", "b", "c")


def test_object_arrays_and_other_files_are_refused(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}, None, "x", 3], object)
    pickled = save_arrays(tmp_path, inputs=np.zeros((4, 2)), labels=objects, domains=PLACES)
    with pytest.raises(MessiError, match=r"must be an .npz file of plain arrays, without objects"):
        pickled.load()
    whole = Path(pickled.path).read_bytes()
    np.save(tmp_path / "one.npy", np.zeros(3))
    contents = {
        "empty": b"",
        "text": b"inputs, labels, domains",
        "cut": whole[: len(whole) // 2],
        "one array": (tmp_path / "one.npy").read_bytes(),
    }
    for name, content in contents.items():
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(MessiError, match=r"bad.npz cannot be read: it must be an .npz file of plain arrays"):
            Arrays(path=str(tmp_path / "bad.npz")).load()
        assert name
    with pytest.raises(MessiError, match=r"missing.npz cannot be read"):
        Arrays(path=str(tmp_path / "missing.npz")).load()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_byte_is_reported_or_changes_nothing(tmp_path: Path, save: Callable[..., None]) -> None:
    """Some bytes, such as the dates of archive entries, have no meaning for messi; all other damage is reported."""
    path, damaged = tmp_path / "whole.npz", tmp_path / "damaged.npz"
    save(path, inputs=np.random.default_rng(0).normal(size=(4, 5)), labels=LABELS, domains=PLACES)
    whole, before = path.read_bytes(), Arrays(path=str(path)).load().fingerprint
    refused = 0
    for place in range(len(whole)):
        content = bytearray(whole)
        content[place] ^= 0xFF
        damaged.write_bytes(content)
        try:
            assert Arrays(path=str(damaged)).load().fingerprint == before
        except MessiError:
            refused += 1
    assert refused > len(whole) / 2


def test_the_fingerprint_of_arrays_changes_with_everything_that_a_run_depends_on(tmp_path: Path) -> None:
    arrays = {
        "inputs": np.arange(8.0).reshape(4, 2),
        "labels": LABELS,
        "domains": PLACES,
        "split": np.array(["train", "train", "val", "test"]),
    }
    changes = {
        "inputs": np.arange(8.0).reshape(4, 2)[::-1],
        "labels": np.array(["b", "a", "b", "d"]),
        "domains": np.array([3, 3, 21, 1]),
        "split": np.array(["train", "train", "test", "val"]),
    }
    first = save_arrays(tmp_path, **arrays).load().fingerprint
    assert save_arrays(tmp_path, **arrays).load().fingerprint == first
    others = {save_arrays(tmp_path, **(arrays | {name: value})).load().fingerprint for name, value in changes.items()}
    assert len(others | {first}) == 5


def npz(path: Path, name: str, header: bytes, values: bytes, *, claimed: int | None = None) -> str:
    """Write an archive of one array with any header and any stated size."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", header + values)
    if claimed is not None:
        content = path.read_bytes()
        size = struct.pack("<I", len(header + values))
        assert content.count(size) >= 2
        path.write_bytes(content.replace(size, struct.pack("<I", claimed)))
    return str(path)


def npy_header(shape: str, dtype: str = "<f4") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (117 - len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    ("shape", "claimed"),
    [
        ("(100000, 200000)", None),
        ("(100000, 200000)", 2**32 - 2),
        ("(-1, 8)", None),
        ("(3, 2)", None),
        ("(1, 2)", None),
        ("(99999999999999999999999, 99999999999999999999)", None),
    ],
)
def test_an_array_that_claims_more_than_its_file_contains_uses_no_memory(
    shape: str, claimed: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("It was read."))
    path = npz(tmp_path / "lie.npz", "inputs", npy_header(shape), bytes(16), claimed=claimed)
    with pytest.raises(MessiError, match=r"lie\.npz cannot be read: it must be an \.npz file of plain arrays"):
        read_inputs(Path(path), "inputs")


def test_an_array_that_is_larger_than_the_memory_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", inputs=np.zeros((1000, 1000), np.float32))
    assert (tmp_path / "bomb.npz").stat().st_size < 10_000
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.__getitem__)
    with pytest.raises(
        MessiError, match=r"bomb\.npz cannot be read: 'inputs\.npy' takes 4 MB, and this machine has 4\.1"
    ):
        read_inputs(tmp_path / "bomb.npz", "inputs")


def test_only_the_requested_arrays_are_read(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}], object)
    examples = save_arrays(tmp_path, inputs=np.zeros((4, 2)), labels=LABELS, domains=PLACES, notes=objects).load()
    assert len(examples) == 4


def test_a_damaged_array_header_raises_only_messi_errors(tmp_path: Path) -> None:
    """numpy parses it as Python, so the damage looks like Python; the archive itself is valid."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 5)).astype(np.float32).tobytes()
    refused = 0
    for _ in range(300):
        header = bytearray(npy_header("(4, 5)"))
        for place in rng.integers(0, len(header), 3):
            header[place] = rng.choice(list(b"(){}[]',:\"0189<>fO\n\\\0\xff"))
        try:
            read_inputs(Path(npz(tmp_path / "damaged.npz", "inputs", bytes(header), values)), "inputs")
        except MessiError:
            refused += 1
    assert refused > 200

"""Examples are recognised by their content only."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from messi.core.tensorfile import tensors_checksum
from messi.data.datasets.folder import Folder
from messi.data.datasets.rotated_mnist import RotatedMNIST
from messi.data.datasets.table import Table
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.examples import Examples
from messi.data.images import Images
from messi.data.seen_examples import example_digests, recognise, seen_digests
from messi.data.splits import Split


def made(inputs: Images | Tensor, domains: list[int]) -> Examples:
    names = tuple(map(str, range(max(domains) + 1)))
    return Examples(inputs, torch.zeros(len(domains), dtype=torch.long), torch.tensor(domains), ("c",), names, "f")


def test_the_digest_of_a_file_does_not_depend_on_its_path(make_folder: Callable[..., Path], tmp_path: Path) -> None:
    root = make_folder(images=3)
    before = Folder(path=str(root)).load()
    assert len(example_digests(before).unique()) == len(before) == 18
    lines = ["path,label,domain"]
    for number, file in enumerate(sorted(root.rglob("*.png"), reverse=True)):
        shutil.copy(file, tmp_path / f"{number}.png")
        lines.append(f"{number}.png,x{number % 2},y{number % 3}")
    (tmp_path / "table.csv").write_text("\n".join(lines))
    after = Table(path=str(tmp_path / "table.csv")).load()
    assert example_digests(after).tolist() == example_digests(before).flip(0).tolist()
    (tmp_path / "0.png").write_bytes((tmp_path / "0.png").read_bytes() + b"\0")
    changed = example_digests(Table(path=str(tmp_path / "table.csv")).load()) != example_digests(after)
    assert changed.tolist() == [True] + [False] * 17


def test_pixels_and_features_have_digests_of_their_bytes() -> None:
    pixels = torch.randint(0, 256, (6, 2, 4, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pixels[4] = pixels[1]
    whole, features = Images.pack(pixels), pixels.flatten(1).float()
    for inputs in (whole, whole.select(torch.tensor([5, 4, 3, 2, 1, 0])), features, features.double()):
        assert len(example_digests(made(inputs, [0] * 6)).unique()) == 5
    assert example_digests(made(whole.select(torch.tensor([3, 1])), [0, 0])).tolist() == [
        example_digests(made(whole, [0] * 6)).tolist()[index] for index in (3, 1)
    ]
    mixed = Images.pack([torch.zeros(1, 2, 3, dtype=torch.uint8), torch.zeros(1, 3, 2, dtype=torch.uint8)])
    assert len(set(example_digests(made(mixed, [0, 0])).tolist())) == 2, "the shape matters"


def test_generated_data_is_recognised_and_data_of_another_seed_is_not() -> None:
    for data, other in (
        (TwoSubsets(per_domain=20), TwoSubsets(per_domain=20, data_seed=1)),
        (RotatedMNIST(), RotatedMNIST(data_seed=1)),
    ):
        examples, others = data.load(), other.load()
        everything = {"train": example_digests(examples).unique()}
        assert not recognise(examples, everything).target
        assert sum(map(len, recognise(others, everything).target.values())) > 0.8 * len(others)


def test_seen_examples_keep_their_role_and_training_takes_precedence() -> None:
    inputs = torch.arange(12.0)[:, None]
    run = made(inputs, [0] * 6 + [1] * 6)
    split = Split(
        train={0: torch.tensor([0, 1])},
        source_val={0: torch.tensor([2])},
        unseen_val={1: torch.tensor([6])},
        source_test={0: torch.tensor([3])},
        target={1: torch.tensor([7, 8])},
    )
    seen = seen_digests(run, split)
    assert {role: len(digests) for role, digests in seen.items()} == {
        "train": 2,
        "source_val": 1,
        "unseen_val": 1,
        "source_test": 1,
    }
    values = [0, 2, 2, 9, 1, 3, 6, 7, 50]
    other = made(torch.tensor(values, dtype=torch.float)[:, None], [0, 0, 1, 1, 2, 2, 2, 2, 2])
    found = recognise(other, seen)
    roles = {role: {d: i.tolist() for d, i in by.items()} for role, by in vars(found).items()}
    assert roles == {
        "train": {0: [0], 2: [4]},
        "source_val": {0: [1], 1: [2]},
        "source_test": {2: [5]},
        "unseen_val": {2: [6]},
        "target": {1: [3], 2: [7, 8]},
        "target_val": {},
    }
    also_trained_on = {**seen, "train": torch.cat([seen["train"], seen["source_val"]])}
    again = recognise(other, also_trained_on)
    assert not again.source_val
    assert {d: i.tolist() for d, i in again.train.items()} == {0: [0, 1], 1: [2], 2: [4]}


def test_the_checksum_of_seen_examples_depends_on_every_digest_and_role() -> None:
    seen = {"train": torch.tensor([1, 2]), "source_val": torch.tensor([3])}
    swapped = {"source_val": torch.tensor([1, 2]), "train": torch.tensor([3])}
    other = {**seen, "train": torch.tensor([1, 3])}
    strange = {"w": torch.ones(2, 2, dtype=torch.bfloat16), "step": torch.tensor(3)}
    different = [tensors_checksum(values) for values in (seen, swapped, other, strange, {})]
    assert len(set(different)) == 5
    assert tensors_checksum(dict(reversed(seen.items()))) == different[0]


def test_labels_and_domains_do_not_matter() -> None:
    examples = TwoSubsets(per_domain=20).load()
    relabelled = dataclasses.replace(examples, labels=1 - examples.labels, domains=examples.domains.flip(0))
    assert torch.equal(example_digests(relabelled), example_digests(examples))

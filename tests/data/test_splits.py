import numpy as np
import pytest
import torch

from messi.core.errors import MessiError
from messi.data.datasets.two_subsets import TwoSubsets
from messi.data.examples import Examples, domain_indices
from messi.data.splits import SplitConfig, SplitKind, domainbed_split, make_split, seed_hash, stratified_split


def test_seed_hash_is_domainbeds() -> None:
    assert [seed_hash(0, env) for env in range(6)] == [
        894182419, 1514274641, 1325548499, 1796103049, 1773288162, 1833038383,
    ]  # fmt: skip
    assert (seed_hash(1, 0), seed_hash(2, 0)) == (785910682, 472130416)


@pytest.mark.parametrize(
    ("number", "first"),
    [
        (2048, [548, 677, 1997, 977, 1553, 1123]),
        (1670, [609, 832, 93, 85, 758, 816]),
        (3929, [2681, 2305, 2655, 1356, 1541, 1879]),
    ],
)
def test_the_domainbed_split_matches_domainbed(number: int, first: list[int]) -> None:
    held = domainbed_split(torch.zeros(number), 0.2, 0, 0)
    assert held[:6].tolist() == first
    assert len(held) == int(number * 0.2)


def test_the_stratified_split_takes_a_fraction_of_every_class_but_never_all() -> None:
    labels = torch.tensor([0] * 50 + [1] * 10 + [2] * 1)
    held = stratified_split(labels, 0.2, 3, 1)
    assert np.bincount(labels[held].numpy(), minlength=3).tolist() == [10, 2, 0]
    assert len(held.unique()) == len(held)
    assert not torch.equal(held, stratified_split(labels, 0.2, 4, 1))
    assert torch.equal(held, stratified_split(labels, 0.2, 3, 1))


@pytest.mark.parametrize("kind", ["stratified", "domainbed"])
def test_roles_are_disjoint_and_cover_every_domain(kind: SplitKind) -> None:
    examples = TwoSubsets(per_domain=50).load()
    split = make_split(examples, [3], SplitConfig(split=kind, validation_fraction=0.2, target_part="all"), seed=0)
    assert (list(split.train), list(split.source_val), list(split.target)) == ([0, 1, 2], [0, 1, 2], [3])
    everything = torch.cat([*split.train.values(), *split.source_val.values(), *split.target.values()])
    assert torch.equal(everything.sort().values, torch.arange(200))
    for role in (split.train, split.source_val, split.target):
        assert all((examples.domains[indices] == domain).all() for domain, indices in role.items())


def test_the_in_part_of_the_target_is_the_four_fifths_that_domainbed_reports_on() -> None:
    examples = TwoSubsets(per_domain=50).load()
    part = make_split(
        examples, [3], SplitConfig(split="domainbed", validation_fraction=0.2, target_part="in"), seed=0
    ).target[3]
    out = domainbed_split(torch.zeros(50), 0.2, 0, 3) + 150
    assert len(part) == 40
    assert not torch.isin(part, out).any()


def test_holding_out_every_domain_is_refused() -> None:
    examples = TwoSubsets(per_domain=50).load()
    with pytest.raises(MessiError, match="leave at least one to train on"):
        make_split(
            examples, [0, 1, 2, 3], SplitConfig(split="stratified", validation_fraction=0.2, target_part="all"), seed=0
        )


def test_a_domain_with_one_example_is_named() -> None:
    examples = Examples(torch.zeros(3, 2), torch.zeros(3).long(), torch.tensor([0, 0, 1]), ("c",), ("big", "lone"), "")
    with pytest.raises(MessiError, match="'lone' requires at least 2 examples, but has 1"):
        make_split(examples, [], SplitConfig(split="stratified", validation_fraction=0.2, target_part="all"), seed=0)


def test_a_target_that_is_reported_whole_may_have_one_example() -> None:
    examples = Examples(torch.zeros(3, 2), torch.zeros(3).long(), torch.tensor([0, 0, 1]), ("c",), ("big", "lone"), "")
    split = make_split(
        examples, [1], SplitConfig(split="stratified", validation_fraction=0.2, target_part="all"), seed=0
    )
    assert split.target[1].tolist() == [2]
    with pytest.raises(MessiError, match="'lone' requires at least 2 examples, but has 1; add some"):
        make_split(examples, [1], SplitConfig(split="stratified", validation_fraction=0.2, target_part="in"), seed=0)


def test_a_small_domain_still_gets_one_validation_example() -> None:
    examples = Examples(torch.zeros(2, 2), torch.tensor([0, 1]), torch.zeros(2).long(), ("c", "d"), ("few",), "")
    split = make_split(
        examples, [], SplitConfig(split="stratified", validation_fraction=0.2, target_part="all"), seed=0
    )
    assert (len(split.train[0]), len(split.source_val[0])) == (1, 1)


def test_a_target_that_does_not_exist_gets_a_hint() -> None:
    with pytest.raises(MessiError, match=r"no domain named 'a11'; available: a1, a2, b1, b2. Did you mean 'a1'\?"):
        domain_indices(TwoSubsets().load(), ["a11"])

"""Which domains are held out together."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from messi.core.errors import MessiError
from messi.data.datasets.folder import Folder
from messi.data.progress import LogProgress
from messi.engine.config import RunConfig
from messi.studies.common.hold_out import Task, find_data_set, find_task, group_labels, hold_out_groups, k_groups

DOMAINS = [f"camera {number}" for number in range(60)]


def test_k_groups_partition_the_domains_evenly_and_always_in_the_same_way() -> None:
    groups = k_groups(7, DOMAINS)
    assert sorted(name for group in groups for name in group) == sorted(DOMAINS)
    assert {len(group) for group in groups} == {8, 9}
    assert groups == k_groups(7, list(DOMAINS))
    assert groups[0] != tuple(DOMAINS[:9]), "neighbours are often similar, so groups are drawn at random"
    assert sorted(k_groups(60, DOMAINS)) == sorted((name,) for name in DOMAINS)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("61",), "--hold-out 61 must be at least 2 and at most the number of domains, which is 60."),
        (("1",), "--hold-out 1 must be at least 2"),
        (("camera 1+camera 2", "camera 2"), "The domain 'camera 2' is held out twice"),
        (("camera 1+camera 99",), "There is no domain named 'camera 99'"),
        (("+".join(DOMAINS),), "contains every domain; leave at least one to train on"),
    ],
)
def test_impossible_groups_are_one_sentence(words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(MessiError) as error:
        hold_out_groups(words, DOMAINS)
    assert sentence in str(error.value)


def test_named_groups_and_domains_with_odd_names() -> None:
    domains = ["a", "b+c", "2", "d"]
    assert hold_out_groups(["b+c", "a+d"], domains) == (("b+c",), ("a", "d"))
    assert hold_out_groups(["2"], domains) == (("2",),), "a domain may be called like a number"


def test_labels_name_the_domains_unless_there_are_too_many_for_a_folder_name() -> None:
    assert list(group_labels([("a", "b"), ("c",)])) == ["a+b", "c"]
    assert list(group_labels(k_groups(5, DOMAINS))) == [f"group {number}" for number in range(1, 6)]
    assert list(group_labels([()])) == ["official split"]


def test_a_single_group_is_the_target_and_several_are_a_cross_validation(make_folder: Callable[..., Path]) -> None:
    config = RunConfig(data=Folder(path=str(make_folder())))

    def task(*hold_out: str, target: tuple[str, ...] = ()) -> Task:
        return find_task(dataclasses.replace(config, target=target), hold_out, LogProgress())

    assert (task().hold_out, task().sealed) == ((("paint",), ("photo",), ("sketch",)), False)
    assert (task(target=("photo", "paint")).hold_out, task(target=("photo",)).sealed) == ((("photo", "paint"),), True)
    assert (task("photo").sealed, task("photo", "paint+sketch").sealed) == (True, False)
    for options, sentence in (
        ({"target": ("none",)}, "A comparison measures on held-out domains"),
        ({"target": ("phot",)}, "Did you mean 'photo'?"),
    ):
        with pytest.raises(MessiError, match=sentence.replace("?", r"\?")):
            task(**options)
    with pytest.raises(MessiError, match="use one"):
        task("photo", target=("paint",))


def test_data_sets_carry_settings_like_methods(tmp_path: Path) -> None:
    (tmp_path / "my photos").mkdir()
    data = find_data_set("my photos damaged=leave_out")
    assert data == Folder(path="my photos", damaged="leave_out")
    with pytest.raises(MessiError, match=r"no setting of the data set folder named 'damage'.*Did you mean 'damaged'"):
        find_data_set("my photos damage=refuse")

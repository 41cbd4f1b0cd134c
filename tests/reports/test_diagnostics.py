"""What the page shows of ``diagnostics.json``, value by value."""

from pathlib import Path
from typing import Any

import pytest

from messi.reports.calibration import reliability, reliability_chart
from messi.reports.embedding import LOOKS, SIZE, embedding_of
from messi.reports.experts import MOST_ROWS, routing_maps, slot_matrix
from messi.reports.pictures import expert_album, mistake_album
from messi.reports.runs import FinishedRun, read_run

from .documents import document
from .helpers import Sample

DOMAINS = ("photo", "art", "clipart")


def run_of(folder: Path, diagnostics: dict[str, Any], **more: Any) -> FinishedRun:
    return read_run(Sample(diagnostics=diagnostics, images=False, **more).write(folder / "run"))


def test_maps_are_those_of_the_file_and_the_records(tmp_path: Path) -> None:
    found = document()
    by_domain, by_class, joint = routing_maps(run_of(tmp_path, found))
    assert [list(row.values) for row in by_class.groups[0].rows] == found["routing"]["by_class"]
    assert (by_class.note, found["examples"]) == ("Validation part of the source domains, n = 80.", 80)
    # The others are those of the records, of all examples: 7 cats and 9 dogs in each domain.
    rows = by_domain.groups[0].rows
    assert [(row.name, row.count) for row in rows] == [("sketch (target, unseen)", 16), ("photo", 16), ("art", 16)]
    means = [(7 * cat + 9 * dog) / 16 for cat, dog in ((0.125, 0.275), (0.6, 0.6), (0.275, 0.125))]
    assert [list(row.values) for row in rows] == [pytest.approx(means)] * 3
    assert (joint.groups[0].role, joint.groups[0].domain) == ("target", "sketch")
    assert [(row.name, row.values, row.count) for row in joint.groups[0].rows] == [
        ("cat", (0.125, 0.6, 0.275), 7),
        ("dog", (0.275, 0.6, 0.125), 9),
    ]


def test_of_many_classes_the_most_decided_are_shown(tmp_path: Path) -> None:
    found = document(classes=[f"class {number}" for number in range(100)], experts=2)
    found["routing"]["by_class"] = [[0.5, 0.5]] * 30 + [[0.1 + number / 1000, 0.9] for number in range(70)]
    _, by_class, _ = routing_maps(run_of(tmp_path, found))
    assert len(by_class.groups[0].rows) == MOST_ROWS
    assert "40 more are not shown" in by_class.note
    assert by_class.groups[0].rows[0].name == "class 30"


def test_a_slot_names_the_strongest_expert(tmp_path: Path) -> None:
    found = document(domains=DOMAINS)
    found["slots"]["responsibilities"] = [
        [[0.3, 0.8, 0.3], None],
        [[0.6, 0.3, 0.3], None],
        [[0.3, 0.3, 0.3], [0.2, 0.2, 0.55]],
    ]
    matrix = slot_matrix(run_of(tmp_path, found))
    assert matrix is not None
    assert matrix.pairs == ("photo and art", "photo and clipart", "art and clipart")
    (cat, cats), (dog, dogs) = matrix.rows
    assert (cat, dog) == ("cat", "dog")
    assert [(slot.expert, slot.strength) for slot in cats if slot] == [
        (1, 0.733),
        (0, 0.467),
        (0, 0.067),
    ]  # (a - 0.25) / 0.75
    assert dogs[:2] == (None, None)
    assert dogs[2] is not None
    assert dogs[2].text == "dog: art and clipart\nby expert: 0.20, 0.20, 0.55"
    assert (matrix.classes_left_out, matrix.pairs_left_out) == (0, 0)


def test_domains_without_a_class_in_common_have_no_slots_to_leave_out(tmp_path: Path) -> None:
    found = document(domains=DOMAINS)
    found["slots"]["responsibilities"] = [[None, None], [None, None], [[0.3, 0.3, 0.5], None]]
    matrix = slot_matrix(run_of(tmp_path, found))
    assert matrix is not None
    assert matrix.pairs == ("art and clipart",)
    assert (matrix.classes_left_out, matrix.pairs_left_out) == (0, 0)


def test_points_keep_their_shape_and_are_grouped_by_what_they_are(tmp_path: Path) -> None:
    found = document()
    found["embedding"] = {
        "before": [[0.0, 0.0], [4.0, 2.0], [4.0, 0.0]],
        "after": [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]],
        "domain": [0, 2, 0],
        "class": [1, 0, 1],
        "roles": ["source_val", "target", "source_val"],
        "expert": [2, 0, 2],
    }
    embedding = embedding_of(run_of(tmp_path, found))
    assert embedding is not None
    before, after = embedding.planes
    first, second = before.marks
    assert first.text == "photo\ndog\nexpert 3"
    assert second.text == "sketch (target)\ncat\nexpert 1"
    # 4 by 2 in a square: the width fills it, the height half of it; y points up.
    assert first.points == ((0, 750), (SIZE, 750))
    assert second.points == ((SIZE, 250),)
    assert after.marks[0].points == ((500, 500), (500, 500))
    assert [(key.name, key.count) for key in embedding.legends["domain"]] == [("photo", 2), ("sketch (target)", 1)]
    assert first.looks == {"domain": 0, "class": 1, "expert": 1}
    found["embedding"]["after"] = found["embedding"]["before"]
    same = embedding_of(run_of(tmp_path / "same", found))
    assert same is not None
    assert [plane.title for plane in same.planes] == ["Encoder output and classifier input"]


def test_the_rarest_of_many_classes_share_a_look(tmp_path: Path) -> None:
    found = document(classes=[f"class {number}" for number in range(40)], points=100)
    found["embedding"]["class"] = [max(0, number - 60) for number in range(100)]
    embedding = embedding_of(run_of(tmp_path, found))
    assert embedding is not None
    *named, rest = embedding.legends["class"]
    assert len(named) == LOOKS
    assert (named[0].name, named[0].count) == ("class 0", 61)
    assert (rest.name, rest.count, rest.look) == (f"{40 - LOOKS} more", 40 - LOOKS, LOOKS)
    assert sum(len(mark.points) for mark in embedding.planes[0].marks if mark.looks["class"] == LOOKS) == 40 - LOOKS


def test_a_method_without_router_has_no_experts_to_colour_by(tmp_path: Path) -> None:
    run = run_of(tmp_path, document(experts=0), experts=())
    embedding = embedding_of(run)
    assert embedding is not None
    assert list(embedding.legends) == ["domain", "class"]
    assert (routing_maps(run), slot_matrix(run), expert_album(run)) == ([], None, [])


def test_a_bin_is_drawn_at_its_confidence_and_accuracy(tmp_path: Path) -> None:
    bins = [
        {"confidence": 0.6, "accuracy": 0.5, "count": 25},
        {"confidence": 0.7, "accuracy": 0.0, "count": 0},
        {"confidence": 0.9, "accuracy": 1.0, "count": 75},
    ]
    found = reliability(run_of(tmp_path, {"calibration": {"target": {"ece": 0.1, "bins": bins}}}))
    assert list(found) == ["target"]
    assert found["target"].sample_size == "n = 100"  # the records know of 40, so these are not a part of them
    (line,) = reliability_chart("target", {0: found["target"]}, {0: "messi"}).drawing.lines
    (first, small), (second, large) = line.bubbles
    assert (*first, *second) == (60, 50, 90, 0)
    assert small.text == "messi\nconfidence 60.0 %, accuracy 50.0 %\nn = 25 of 100"
    assert (small.radius - 2) ** 2 * 3 == pytest.approx((large.radius - 2) ** 2, rel=0.05)


def test_pictures_have_captions(tmp_path: Path) -> None:
    run = run_of(tmp_path, document())
    (first, *_), mistakes = expert_album(run), mistake_album(run)
    assert first.number == 1
    assert first.load == run.diagnostics["routing"]["load"][0]
    assert first.pictures[0].lines[1] == "weight 0.90"
    assert [(one.domain, one.role) for one in mistakes] == [
        ("sketch", "target"),
        ("photo", "source_val"),
        ("art", "source_val"),
    ]
    assert [(picture.name, picture.lines) for picture in mistakes[0].pictures] == [
        ("cat", ("✗ dog", "confidence 99.0\u00a0%")),
        ("dog", ("✗ cat", "confidence 96.0\u00a0%")),
    ]


def test_experts_that_are_hardly_used_and_small_weights_have_no_pictures(tmp_path: Path) -> None:
    found = document(experts=3, pictures=2)
    found["routing"]["load"] = [0.0099, 0.0101, 0.98]
    for shelf, weights in zip(found["pictures"]["experts"], ((0.9, 0.8), (0.05, 0.049), (0.04, 0.01)), strict=True):
        for picture, weight in zip(shelf, weights, strict=True):
            picture["weight"] = weight
    album = expert_album(run_of(tmp_path, found))
    assert [(one.dead, len(one.pictures)) for one in album] == [(True, 0), (False, 1), (False, 0)]
    assert album[1].pictures[0].lines[1] == "weight 0.05"

"""The peculiarities of single published data sets."""

import dataclasses
import json
from pathlib import Path

import pytest

from messi.core.errors import MessiError
from messi.data import verify
from messi.data.datasets.common import benchmark
from messi.data.datasets.domain_net import DomainNet
from messi.data.datasets.iwildcam import IWildCam
from messi.data.datasets.pacs import PACS
from messi.data.datasets.terra_incognita import TerraIncognita
from messi.data.datasets.wilds import Wilds
from messi.data.listing import Listing
from messi.data.manifest import read_manifest

from .copies import (
    Notes,
    make_benchmark,
    make_camelyon,
    make_iwildcam,
    make_terra_as_published,
    paint,
    write_annotations,
)

CLASSES = read_manifest("terra_incognita").classes


def rows(listing: Listing) -> list[tuple[str, str, str]]:
    """Return the name of each file with the names of its domain and class."""
    return [
        (Path(file).name, listing.domain_names[domain], listing.classes[label])
        for file, domain, label in zip(listing.files, listing.domains.tolist(), listing.labels.tolist(), strict=True)
    ]


@pytest.fixture
def terra(tmp_path: Path) -> Path:
    root = tmp_path / "terra"
    make_terra_as_published(root)
    return root


def terra_listing(root: Path) -> Listing:
    return TerraIncognita(path=str(root)).listing(Notes())


def annotate(root: Path, *images: tuple[str, object, str]) -> None:
    """Write a third annotation file; missing images are created."""
    found = [{"name": name, "location": place, "category": CLASSES.index(label)} for name, place, label in images]
    write_annotations(root / "eccv_18_annotation_files" / "third.json", CLASSES, found)
    for name, *_ in images:
        paint(root / "eccv_18_all_images_sm" / name, 0, 0)


def test_an_image_is_listed_once_for_each_class_of_its_annotations(terra: Path) -> None:
    before = rows(terra_listing(terra))
    annotate(terra, ("two.jpg", 38, "dog"), ("two.jpg", "38", "cat"), ("one.jpg", 43, "dog"), ("one.jpg", 43, "dog"))
    assert sorted(set(rows(terra_listing(terra))) - set(before)) == [
        ("one.jpg", "location_43", "dog"),
        ("two.jpg", "location_38", "cat"),
        ("two.jpg", "location_38", "dog"),
    ]
    assert len(terra_listing(terra)) == len(before) + 3
    examples = TerraIncognita(path=str(terra)).load()
    assert len(examples) == len(before) + 3


def test_other_locations_and_other_classes_are_left_out(terra: Path) -> None:
    listing = terra_listing(terra)
    assert len(listing) == 4 * 10 * 2
    assert not [file for file in listing.files if Path(file).name.startswith("7-")]
    assert list(listing.classes) == CLASSES


def test_the_two_forms_of_terra_incognita_list_the_same_images_in_the_same_order(terra: Path, tmp_path: Path) -> None:
    published = terra_listing(terra)
    for file, (name, domain, label) in zip(published.files, rows(published), strict=True):
        place = tmp_path / "sorted" / domain / label / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((terra / file).read_bytes())
    assert rows(terra_listing(tmp_path / "sorted")) == rows(published)


def test_an_annotation_of_an_unlisted_image_is_skipped(terra: Path) -> None:
    """As in DomainBed, which looks up the annotations of each listed image."""
    before = rows(terra_listing(terra))
    file = terra / "eccv_18_annotation_files" / "part_0.json"
    content = json.loads(file.read_text())
    content["annotations"].append({"id": "a", "image_id": "nowhere", "category_id": 10})
    file.write_text(json.dumps(content))
    assert rows(terra_listing(terra)) == before


def test_annotations_and_images_may_be_in_different_files(terra: Path) -> None:
    before = rows(terra_listing(terra))
    folder = terra / "eccv_18_annotation_files"
    content = json.loads((folder / "part_0.json").read_text())
    annotations = {**content, "images": []}
    (folder / "part_0.json").write_text(json.dumps({**content, "annotations": []}))
    (folder / "annotations_0.json").write_text(json.dumps(annotations))
    assert rows(terra_listing(terra)) == before


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        "[]",
        '{"images": []}',
        '{"images": 5, "annotations": [], "categories": []}',
        '{"images": [{"id": "x"}], "annotations": [], "categories": []}',
        '{"images": [{"id": [], "file_name": "a", "location": 38}], "annotations": [], "categories": []}',
        '{"images": [], "annotations": [{"id": 3}], "categories": []}',
        '{"images": [], "annotations": [], "categories": ["dog"]}',
    ],
)
def test_a_json_file_without_annotations_is_named(terra: Path, content: str) -> None:
    bad = terra / "eccv_18_annotation_files" / "bad.json"
    bad.write_text(content)
    with pytest.raises(MessiError, match=rf"{bad} is not an annotation file of the Caltech Camera Traps"):
        terra_listing(terra)


def test_an_annotation_of_an_unknown_class_is_named(terra: Path) -> None:
    file = terra / "eccv_18_annotation_files" / "part_0.json"
    content = json.loads(file.read_text())
    content["categories"] = content["categories"][1:]
    file.write_text(json.dumps(content))
    other = terra / "eccv_18_annotation_files" / "part_1.json"
    other.unlink()
    with pytest.raises(MessiError, match=rf"{file} is not an annotation file of the Caltech Camera Traps: .*10"):
        terra_listing(terra)


def test_annotations_of_only_other_locations_are_named(tmp_path: Path) -> None:
    write_annotations(tmp_path / "a.json", CLASSES, [{"name": "x.jpg", "location": 7, "category": 0}])
    paint(tmp_path / "eccv_18_all_images_sm" / "x.jpg", 0, 0)
    with pytest.raises(MessiError, match="name no image of the locations 100, 38, 43, 46"):
        terra_listing(tmp_path)


@pytest.fixture
def net(tmp_path: Path) -> Path:
    make_benchmark(tmp_path / "net", "domain_net", images=1)
    return tmp_path / "net"


def test_without_the_list_of_duplicates_domain_net_asks_for_it_or_for_a_decision(net: Path) -> None:
    with pytest.raises(MessiError) as raised:
        DomainNet(path=str(net)).listing(Notes())
    message = str(raised.value)
    assert f"{net} has 2,070 images, so it still contains the duplicates" in message
    assert "put DomainBed's domain_net_duplicates.txt there, or use --duplicates keep" in message
    assert len(DomainNet(path=str(net), duplicates="keep").listing(Notes())) == 2070


def test_with_the_list_of_duplicates_they_are_dropped_unless_kept(net: Path) -> None:
    dropped = "real/zebra/real_343_000000.jpg"
    (net / "domain_net_duplicates.txt").write_text(f"{dropped}\nsketch/zebra/of_another_copy.jpg\n")
    files = DomainNet(path=str(net)).listing(Notes()).files
    assert set(DomainNet(path=str(net), duplicates="keep").listing(Notes()).files) - set(files) == {dropped}
    assert len(files) == 2069


def test_the_list_of_duplicates_is_not_reported_as_a_stray_file(net: Path) -> None:
    (net / "domain_net_duplicates.txt").write_text("")
    (net / "readme.txt").write_text("")
    assert DomainNet(path=str(net)).listing(Notes()).ignored == ("readme.txt",)
    assert DomainNet(path=str(net), duplicates="keep").listing(Notes()).ignored == ("readme.txt",)


def test_a_domain_net_whose_duplicates_were_deleted_needs_no_list(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = read_manifest("domain_net")
    whole, without = manifest.versions
    small = dataclasses.replace(manifest, versions=[whole, dataclasses.replace(without, images=2070)])
    monkeypatch.setattr(benchmark, "read_manifest", lambda _name: small)
    assert len(DomainNet(path=str(net)).listing(Notes())) == 2070


def test_only_the_known_domains_of_a_published_data_set_are_listed(tmp_path: Path) -> None:
    make_benchmark(tmp_path / "PACS", "pacs")
    paint(tmp_path / "PACS" / "extra" / "dog" / "1.png", 0, 0)
    (tmp_path / "PACS" / "splits").mkdir()
    listing = PACS(path=str(tmp_path)).listing(Notes())
    assert list(listing.domain_names) == read_manifest("pacs").domains
    assert len(listing) == 4 * 7 * 2


def test_a_complete_copy_is_recognised_by_its_counts_and_a_missing_image_is_counted(tmp_path: Path) -> None:
    make_iwildcam(tmp_path / "cam")
    manifest = read_manifest("iwildcam")
    totals = {"train": 40, "val": 20, "test": 20, "id_val": 40, "id_test": 40}
    small = dataclasses.replace(
        manifest, versions=[dataclasses.replace(manifest.versions[0], images=160, totals=totals)]
    )
    listing = IWildCam(path=str(tmp_path)).listing(Notes())
    assert verify.compare(listing, small)[1] == []
    fewer = listing.only(range(1, 160))
    assert [finding.text for finding in verify.compare(fewer, small)[1]] == ["train has 39 of 40 images"]


def parts_by_domain(listing: Listing) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for domain, part in zip(listing.domains.tolist(), listing.parts, strict=True):
        found.setdefault(listing.domain_names[domain], set()).add(part)
    return found


def test_two_hospitals_of_camelyon17_are_held_out_regardless_of_the_split_column(tmp_path: Path) -> None:
    make_camelyon(tmp_path)
    listing = Wilds(path=str(tmp_path)).listing(Notes())
    assert parts_by_domain(listing) == {
        "0": {"train", "id_val"},
        "1": {"val"},
        "2": {"test"},
        "3": {"train", "id_val"},
        "4": {"train", "id_val"},
    }
    assert listing.classes == ("0", "1")
    # The copy has 0 in the column split where x is below 100, and 1 elsewhere.
    first = [part for file, part in zip(listing.files, listing.parts, strict=True) if "_x_10" not in file]
    assert sorted(set(first)) == ["test", "train", "val"]


def test_the_locations_of_iwildcam_are_sorted_as_numbers_and_keep_their_official_parts(tmp_path: Path) -> None:
    make_iwildcam(tmp_path, classes=12)
    listing = Wilds(path=str(tmp_path)).listing(Notes())
    assert listing.domain_names == ("0", "3", "5", "7", "11", "20", "100", "300")
    assert listing.classes == tuple(str(label) for label in range(12))
    parts = parts_by_domain(listing)
    assert {name for name, part in parts.items() if part == {"train", "id_val", "id_test"}} == {"0", "3", "20", "100"}
    assert (parts["7"], parts["11"], parts["5"], parts["300"]) == ({"val"}, {"val"}, {"test"}, {"test"})


def test_the_error_for_another_table_asks_for_the_path_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "metadata.csv").write_text("file,kind,place\na.png,dog,x\n")
    with pytest.raises(
        MessiError, match=r"neither iWildCam's nor Camelyon17's; give the table itself .*file, kind, pl"
    ):
        Wilds(path=str(tmp_path)).listing(Notes())


def test_an_empty_table_of_wilds_is_named(tmp_path: Path) -> None:
    (tmp_path / "metadata.csv").write_text("split,filename,y,location_remapped\n")
    with pytest.raises(MessiError, match=rf"{tmp_path / 'metadata.csv'} has no rows"):
        Wilds(path=str(tmp_path)).listing(Notes())


def test_an_image_that_the_table_names_and_the_folder_lacks_is_named(tmp_path: Path) -> None:
    make_iwildcam(tmp_path)
    missing = next((tmp_path / "train").iterdir())
    missing.unlink()
    with pytest.raises(MessiError, match=rf"The image {missing} cannot be read: No such file"):
        IWildCam(path=str(tmp_path)).load()

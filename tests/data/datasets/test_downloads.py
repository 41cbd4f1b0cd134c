"""Downloads of published data sets: from archives in the real layout to the folder that messi uses."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from messi.core.errors import MessiError
from messi.data import verify
from messi.data.datasets.common import benchmark
from messi.data.datasets.domain_net import DomainNet
from messi.data.datasets.iwildcam import IWildCam
from messi.data.datasets.office_home import OfficeHome
from messi.data.datasets.pacs import PACS
from messi.data.datasets.terra_incognita import TerraIncognita
from messi.data.datasets.vlcs import VLCS
from messi.data.manifest import Manifest, Version, read_manifest

from .copies import Notes, make_benchmark, make_iwildcam, make_terra_as_published, painted, tarred, zipped


class Site:
    """Replaces the network: serves archives by address; any other address fails."""

    def __init__(self, archives: dict[str, bytes]) -> None:
        self.archives, self.asked = archives, list[str]()

    def download(self, url: str, path: Path, **_: object) -> None:
        self.asked.append(url)
        if url not in self.archives:
            raise MessiError(f"{url} could not be downloaded: the server answered 404 Not Found; try again later.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.archives[url])


def urls(name: str) -> list[str]:
    return [item.url for item in read_manifest(name).downloads]


def serve(monkeypatch: pytest.MonkeyPatch, archives: dict[str, bytes]) -> Site:
    site = Site(archives)
    monkeypatch.setattr(benchmark, "download", site.download)
    return site


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_download_is_unpacked_found_inside_and_put_in_place_once(
    pack: Callable[[Path, str], bytes], tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_benchmark(tmp_path / "vlcs", "vlcs")
    site = serve(monkeypatch, {urls("vlcs")[0]: pack(tmp_path / "vlcs", "VLCS")})
    notes = Notes()
    examples = VLCS().load(notes)
    assert len(examples) == 4 * 5 * 2
    assert (home / "data" / "VLCS" / "SUN09" / "bird").is_dir()
    assert [path.name for path in (home / "data").iterdir()] == ["VLCS"]
    assert len(notes.notes) == 1
    assert notes.notes[0].startswith("This is not a known version of VLCS: Caltech101/bird has 2 of 237 images")
    assert VLCS().load().fingerprint == examples.fingerprint
    assert site.asked == urls("vlcs")


def test_the_next_mirror_is_used_if_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_benchmark(tmp_path / "office", "office_home", images=1)
    second = urls("office_home")[1]
    site = serve(monkeypatch, {second: zipped(tmp_path / "office", "OfficeHomeDataset_10072016")})
    notes = Notes()
    assert OfficeHome().load(notes).domain_names == ("Art", "Clipart", "Product", "Real World")
    assert site.asked == urls("office_home")
    assert "404 Not Found" in notes.notes[0]
    assert notes.notes[0].endswith("Trying the next copy.")


def test_iwildcam_and_terra_incognita_are_found_where_their_archives_store_them(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_iwildcam(tmp_path / "cam")
    make_terra_as_published(tmp_path / "terra")
    archives = [
        tarred(tmp_path / "terra" / name, name) for name in ("eccv_18_all_images_sm", "eccv_18_annotation_files")
    ]
    site = serve(
        monkeypatch,
        {urls("iwildcam")[0]: tarred(tmp_path / "cam"), **dict(zip(urls("terra_incognita"), archives, strict=True))},
    )
    assert len(IWildCam().load(Notes())) == 16 * 5 * 2
    assert len(TerraIncognita().load(Notes())) == 4 * 10 * 2
    assert len(TerraIncognita().load(Notes())) == 4 * 10 * 2
    assert site.asked == [*urls("iwildcam"), *urls("terra_incognita")]
    assert {path.name for path in (home / "data").iterdir()} == {"iwildcam_v2.0", "terra_incognita"}


def small_pacs(root: Path) -> Manifest:
    """Return the manifest of PACS as if a folder were its only version, with the digest of all files."""
    manifest = read_manifest("pacs")
    version = Version(
        name="small",
        about="",
        images=56,
        totals=dict.fromkeys(manifest.domains, 14),
        counts={domain: [2] * 7 for domain in manifest.domains},
        tree=verify._tree(PACS(path=str(root)).listing(Notes())),
    )
    return dataclasses.replace(manifest, versions=[version])


def test_downloaded_files_must_match_the_published_digest_if_it_is_known(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pacs"
    make_benchmark(folder, "pacs")
    inside = "Homework3-PACS-d586a6cf3db84896fb6cc465c7bf51bdaf6d65d8/PACS"
    serve(monkeypatch, {urls("pacs")[0]: zipped(folder, inside)})
    with pytest.raises(MessiError, match=r"is not PACS as published: art_painting/dog has 2 of 379 images. Delete it"):
        PACS().load(Notes())
    assert not (home / "data" / "PACS").exists()
    manifest = small_pacs(folder)
    monkeypatch.setattr(benchmark, "read_manifest", lambda _name: manifest)
    notes = Notes()
    assert len(PACS().load(notes)) == 56
    assert notes.notes == []


def domain_net_archives(root: Path, duplicates: str) -> dict[str, bytes]:
    make_benchmark(root, "domain_net", images=1)
    *domains, listed = read_manifest("domain_net").downloads
    return {**{item.url: zipped(root / item.part, item.part) for item in domains}, listed.url: duplicates.encode()}


def test_the_six_archives_of_domain_net_and_its_duplicates_become_one_folder(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = ["clipart/airplane/clipart_004_000000.jpg", "sketch/zebra/sketch_343_000000.jpg"]
    archives = domain_net_archives(tmp_path / "net", "\n".join(dropped) + "\n")
    late = urls("domain_net")[4:]
    serve(monkeypatch, {url: archives[url] for url in archives if url not in late})
    with pytest.raises(MessiError, match="404 Not Found"):
        DomainNet().load(Notes())
    assert DomainNet().local_root() is None
    site = serve(monkeypatch, archives)
    examples = DomainNet().load(Notes())
    assert site.asked == late, "earlier archives are not downloaded again"
    assert [path.name for path in (home / "data").iterdir()] == ["domain_net"]
    manifest = read_manifest("domain_net")
    assert (list(examples.domain_names), list(examples.classes)) == (manifest.domains, manifest.classes)
    seen = [painted(image[:, 0, 0].tolist()) for image in examples.inputs]
    assert {(d, c) for d in range(6) for c in range(345)} - set(seen) == {(0, 4), (5, 343)}
    assert len(seen) == 6 * 345 - 2
    assert len(DomainNet(duplicates="keep").load(Notes())) == 6 * 345
    assert site.asked == late


def test_an_archive_with_other_content_is_named_with_advice(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_benchmark(tmp_path / "pacs", "pacs", images=1)
    serve(monkeypatch, {urls("vlcs")[0]: zipped(tmp_path / "pacs", "VLCS")})
    work = home / "data" / "VLCS.download"
    with pytest.raises(
        MessiError, match=rf"download in {work} is not VLCS: it must contain .*Caltech101.* [Dd]elete it"
    ):
        VLCS().load(Notes())
    assert not (home / "data" / "VLCS").exists()


def test_a_folder_with_other_content_is_named_before_anything_is_downloaded(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_benchmark(tmp_path / "vlcs", "vlcs")
    site = serve(monkeypatch, {urls("vlcs")[0]: zipped(tmp_path / "vlcs", "VLCS")})
    place = home / "data" / "VLCS"
    (place / "SUN09" / "bird").mkdir(parents=True)
    with pytest.raises(MessiError, match=rf"The folder {place} does not contain VLCS: it must contain .*Caltech101"):
        VLCS().load(Notes())
    assert site.asked == []
    assert (place / "SUN09" / "bird").is_dir()


KILLED = """
import os, shutil, signal, sys, zipfile
from pathlib import Path
from messi.data.datasets.common import benchmark
from messi.data.datasets.vlcs import VLCS

archive = Path(sys.argv[1])

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def bring_half(url, path, **_):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ".part").write_bytes(archive.read_bytes()[:500])
    die()

def bring(url, path, **_):
    shutil.copy(archive, path)

def extract_half(self, folder):
    for entry in self.infolist()[: len(self.infolist()) // 2]:
        self.extract(entry, folder)
    die()

PLACES = {
    "download": (benchmark, "download", bring_half),
    "unpack": (zipfile.ZipFile, "extractall", extract_half),
    "check": (benchmark, "compare", die),
    "tidy": (shutil, "rmtree", die),
}
for name, place in PLACES.items():
    child = os.fork()
    if child == 0:
        benchmark.download = bring
        setattr(*place)
        VLCS().load()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(name, code, VLCS().local_root())
"""


def test_files_left_by_a_killed_process_are_not_taken_for_the_data(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four processes are killed, each a little later than the one before, and each resumes from there."""
    make_benchmark(tmp_path / "vlcs", "vlcs")
    archive = tmp_path / "vlcs.zip"
    archive.write_bytes(zipped(tmp_path / "vlcs", "VLCS"))
    command = [sys.executable, "-c", KILLED, str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    place = home / "data" / "VLCS"
    assert done.stdout.splitlines() == [
        "download -9 None",
        "unpack -9 None",
        "check -9 None",
        f"tidy -9 {place}",
    ], done.stderr
    site = serve(monkeypatch, {})
    assert len(VLCS().load(Notes())) == 4 * 5 * 2
    assert site.asked == []

import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from messi.core.errors import MessiError
from messi.core.lock import locked
from messi.data import download as module
from messi.data.download import download, partial

from .fake_site import CONTENT, OTHER, Site, get, left, serve, sha256


@pytest.fixture(name="site")
def _site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(module, "PAUSE", 0)
    with serve() as site:
        yield site


def leave_part(site: Site, path: Path, size: int = 1_000_000) -> None:
    """Download the first bytes only."""
    site.cuts = [size, *[0] * (module.RESUMES + 1)]
    with pytest.raises(MessiError, match="could not be downloaded: the connection broke after"):
        get(site, path, checksum=sha256(site.content))
    assert path.with_name("data.zip.part").stat().st_size == size
    site.requests.clear()
    site.sent.clear()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_broken_connection_is_resumed(site: Site, tmp_path: Path, chunked: bool) -> None:
    site.cuts, site.chunked = [1_000_000, 0, 0, 0, 500_000, 0], chunked
    get(site, tmp_path / "data.zip")
    assert (tmp_path / "data.zip").read_bytes() == CONTENT
    starts = [request.get("Range") for request in site.requests]
    assert starts == [None, *["bytes=1000000-"] * 4, *["bytes=1500000-"] * 2]


def test_a_reset_connection_is_resumed(site: Site, tmp_path: Path) -> None:
    site.cuts, site.resets = [1_000_000, 500_000], True
    get(site, tmp_path / "data.zip")
    assert (tmp_path / "data.zip").read_bytes() == CONTENT
    assert len(site.requests) == 3


def test_it_gives_up_after_a_few_attempts_without_progress_and_keeps_the_part(site: Site, tmp_path: Path) -> None:
    site.cuts = [1_000_000, *[0] * 100]
    with pytest.raises(MessiError) as caught:
        get(site, tmp_path / "data.zip")
    assert str(caught.value) == (
        f"{site.url} could not be downloaded: the connection broke after 1 MB (the server closed it); "
        "repeating the command resumes the download."
    )
    assert len(site.requests) == 1 + 1 + module.RESUMES
    site.cuts = []
    get(site, tmp_path / "data.zip")
    assert (tmp_path / "data.zip").read_bytes() == CONTENT
    assert site.sent[-1] == 2_000_000


def test_a_killed_download_transfers_only_the_rest(site: Site, tmp_path: Path) -> None:
    code = """if True:
        import os, signal, sys
        from pathlib import Path
        from messi.data.download import download

        def received(done, total):
            if done >= total / 2:
                os.kill(os.getpid(), signal.SIGKILL)

        download(sys.argv[1], Path(sys.argv[2]), size=None, checksum=None, received=received)
    """
    path = tmp_path / "data.zip"
    done = subprocess.run([sys.executable, "-c", code, site.url, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    had = left(tmp_path)["data.zip.part"]
    assert len(CONTENT) / 2 <= had < len(CONTENT)
    get(site, path, size=len(CONTENT), checksum=sha256(CONTENT))
    assert path.read_bytes() == CONTENT
    assert site.sent[1:] == [len(CONTENT) - had]
    assert left(tmp_path) == {"data.zip": len(CONTENT)}


def test_a_complete_part_needs_no_transfer(site: Site, tmp_path: Path) -> None:
    """The state after a kill between the last byte and the renaming."""
    leave_part(site, tmp_path / "data.zip")
    with (tmp_path / "data.zip.part").open("ab") as part:
        part.write(CONTENT[1_000_000:])
    get(site, tmp_path / "data.zip", checksum=sha256(CONTENT))
    assert site.requests == []
    assert left(tmp_path) == {"data.zip": len(CONTENT)}


def test_a_complete_part_of_unknown_length_is_recognised_by_status_416(site: Site, tmp_path: Path) -> None:
    site.announces = -1
    (tmp_path / "data.zip.part").write_bytes(CONTENT)
    (tmp_path / "data.zip.part.json").write_text(f'{{"url": "{site.url}", "version": "\\"first\\"", "total": null}}')
    get(site, tmp_path / "data.zip")
    assert site.sent == [0]
    assert (tmp_path / "data.zip").read_bytes() == CONTENT


@pytest.mark.parametrize("shorter", [False, True])
@pytest.mark.parametrize("heeds_if_range", [True, False])
@pytest.mark.parametrize("headers", [{"ETag": '"second"'}, {"Last-Modified": "Tue, 02 Jan 2024 00:00:00 GMT"}])
def test_the_rest_of_a_changed_file_is_never_appended_to_the_old_part(
    site: Site, tmp_path: Path, headers: dict[str, str], heeds_if_range: bool, shorter: bool
) -> None:
    site.headers = {next(iter(headers)): "Mon, 01 Jan 2024 00:00:00 GMT"}
    leave_part(site, tmp_path / "data.zip")
    site.content, site.headers, site.heeds_if_range = OTHER[: 500_000 if shorter else None], headers, heeds_if_range
    get(site, tmp_path / "data.zip")
    assert (tmp_path / "data.zip").read_bytes() == site.content


@pytest.mark.parametrize("headers", [{}, {"ETag": 'W/"weak"'}])
def test_a_part_of_unknown_version_is_resumed_only_if_a_checksum_is_known(
    site: Site, tmp_path: Path, headers: dict[str, str]
) -> None:
    path = tmp_path / "data.zip"
    site.headers = headers
    leave_part(site, path)
    site.content = OTHER
    get(site, path)
    assert path.read_bytes() == OTHER
    assert "Range" not in site.requests[0]
    path.unlink()
    leave_part(site, path)
    get(site, path, checksum=sha256(OTHER))
    assert "If-Range" not in site.requests[0]
    assert site.sent == [2_000_000]
    assert path.read_bytes() == OTHER


def test_another_length_shows_that_a_file_of_unknown_version_has_changed(site: Site, tmp_path: Path) -> None:
    site.headers = {}
    leave_part(site, tmp_path / "data.zip")
    site.content = OTHER[:-1]
    get(site, tmp_path / "data.zip", checksum=sha256(site.content))
    assert site.sent == [1_999_999, 2_999_999]


def test_a_response_with_another_range_is_not_used(site: Site, tmp_path: Path) -> None:
    leave_part(site, tmp_path / "data.zip")
    site.misses = -1
    get(site, tmp_path / "data.zip")
    assert (tmp_path / "data.zip").read_bytes() == CONTENT


def test_a_part_from_another_address_is_not_resumed(site: Site, tmp_path: Path) -> None:
    leave_part(site, tmp_path / "data.zip")
    site.content = OTHER
    download(site.url + "?other", tmp_path / "data.zip", size=None, checksum=None)
    assert (tmp_path / "data.zip").read_bytes() == OTHER


def test_without_range_support_the_download_starts_again(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    site.cuts = [2_000_000, 1_000_000]
    get(site, tmp_path / "data.zip", checksum=sha256(CONTENT))
    assert (tmp_path / "data.zip").read_bytes() == CONTENT
    assert site.sent == [2_000_000, 1_000_000, 3_000_000]


def test_a_server_without_range_support_that_always_breaks_off_is_abandoned(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    site.cuts = [2_000_000, 1_000_000] * 10
    with pytest.raises(MessiError, match="connection broke"):
        get(site, tmp_path / "data.zip")
    assert len(site.requests) == 1 + 1 + module.RESUMES


def test_without_a_length_header_truncation_is_detected_by_the_size(site: Site, tmp_path: Path) -> None:
    site.announces = -1
    site.cuts = [1_000_000]
    get(site, tmp_path / "data.zip", size=len(CONTENT))
    assert (tmp_path / "data.zip").read_bytes() == CONTENT
    assert site.sent == [1_000_000, 2_000_000]


@pytest.mark.parametrize("room", [1_500_000, len(CONTENT) - 1])
def test_a_full_disk_keeps_the_part(site: Site, tmp_path: Path, room: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(MessiError, match=r"Could not write .*data.zip: File too large"):
            get(site, tmp_path / "data.zip")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert left(tmp_path)["data.zip.part"] == room
    get(site, tmp_path / "data.zip", checksum=sha256(CONTENT))
    assert site.sent[-1] == len(CONTENT) - room


def test_a_web_page_is_not_taken_for_the_file_and_the_part_is_kept(site: Site, tmp_path: Path) -> None:
    leave_part(site, tmp_path / "data.zip")
    site.headers, content = {"Content-Type": "text/html; charset=utf-8"}, site.content
    site.content = b"<html>Too many users have downloaded this file recently</html>"
    with pytest.raises(
        MessiError, match="the server sent a web page instead of the file; open it in a browser and save the file"
    ):
        get(site, tmp_path / "data.zip")
    assert left(tmp_path)["data.zip.part"] == 1_000_000
    site.headers, site.content = {"ETag": '"first"'}, content
    get(site, tmp_path / "data.zip")
    assert (tmp_path / "data.zip").read_bytes() == CONTENT


def test_two_processes_do_not_write_one_file(site: Site, tmp_path: Path) -> None:
    leave_part(site, tmp_path / "data.zip")
    with (
        locked(tmp_path, tmp_path / "data.zip.part.lock"),
        pytest.raises(MessiError, match=r"Another process is working on .*data.zip.part; wait for it or stop it"),
    ):
        get(site, tmp_path / "data.zip")
    assert site.requests == []
    assert left(tmp_path)["data.zip.part"] == 1_000_000


def test_a_link_in_the_place_of_a_part_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"precious")
    (tmp_path / "data.zip.part").symlink_to(tmp_path / "mine")
    with pytest.raises(MessiError, match=r"Could not write .*data.zip.part"), partial(tmp_path / "data.zip"):
        pass
    assert (tmp_path / "mine").read_bytes() == b"precious"

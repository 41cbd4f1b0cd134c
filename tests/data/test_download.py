import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from messi.core.errors import MessiError
from messi.data import download as module
from messi.data.download import download

from .fake_site import CONTENT, OTHER, Site, get, left, md5, serve, sha256


@pytest.fixture(name="site")
def _site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(module, "PAUSE", 0)
    with serve() as site:
        yield site


@pytest.mark.parametrize("checksum", [sha256(CONTENT), md5(CONTENT).replace("a", "A"), None])
@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_complete_file_is_the_only_file_that_remains(
    site: Site, tmp_path: Path, size: int | None, checksum: str | None
) -> None:
    seen: list[tuple[int, int | None]] = []
    path = tmp_path / "new/folder/data.zip"
    download(site.url, path, size=size, checksum=checksum, received=lambda *numbers: seen.append(numbers))
    assert path.read_bytes() == CONTENT
    assert left(path.parent) == {"data.zip": len(CONTENT)}
    assert (seen[0], seen[-1]) == ((0, len(CONTENT)), (len(CONTENT), len(CONTENT)))
    assert seen == sorted(seen)
    assert "messi" in site.requests[0]["User-Agent"]


def test_an_existing_file_is_downloaded_again_only_if_it_is_another(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "data.zip"
    path.write_bytes(CONTENT)
    tmp_path.chmod(0o555)
    get(site, path, size=len(CONTENT), checksum=sha256(CONTENT))
    get(site, path)
    assert site.requests == []
    tmp_path.chmod(0o755)
    path.write_bytes(OTHER)
    get(site, path, size=len(CONTENT), checksum=sha256(CONTENT))
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("expected", "sentence"),
    [
        ({"checksum": sha256(OTHER)}, f"its checksum is {sha256(CONTENT)} instead of {sha256(OTHER)}"),
        ({"checksum": "md5:0"}, f"{md5(CONTENT)} instead of md5:0"),
        ({"size": 5}, "it has 3000000 bytes instead of 5"),
    ],
)
@pytest.mark.parametrize("announces", [None, -1])
def test_an_unexpected_file_is_named_and_deleted(
    site: Site, tmp_path: Path, expected: dict[str, str | int], sentence: str, announces: int | None
) -> None:
    site.announces = announces
    if announces == -1 and "size" in expected:
        sentence = "it has 6 bytes instead of 5"  # no more than that is read
    with pytest.raises(MessiError) as caught:
        get(site, tmp_path / "data.zip", **expected)
    assert sentence in str(caught.value)
    assert site.url in str(caught.value)
    assert left(tmp_path) == {}


def test_a_file_shorter_than_its_stated_length_is_incomplete(site: Site, tmp_path: Path) -> None:
    site.announces = len(CONTENT) + 1
    with pytest.raises(MessiError, match="it has 3000001 bytes instead of 3000000"):
        get(site, tmp_path / "data.zip", size=len(CONTENT))
    site.ranges = False
    with pytest.raises(MessiError, match="the connection broke after 3 MB"):
        get(site, tmp_path / "data.zip")
    assert "data.zip" not in left(tmp_path)


def test_a_stated_length_that_is_too_short_is_detected_by_the_checksum(site: Site, tmp_path: Path) -> None:
    site.announces = 10
    with pytest.raises(MessiError, match=f"its checksum is {sha256(CONTENT[:10])}"):
        get(site, tmp_path / "data.zip", checksum=sha256(CONTENT))
    assert left(tmp_path) == {}


def test_a_file_larger_than_the_free_space_is_refused_first(site: Site, tmp_path: Path) -> None:
    site.announces = 10**18
    with pytest.raises(MessiError, match=r"download of data.zip requires 1e\+06 TB, but the disk of .* has .* free"):
        get(site, tmp_path / "data.zip")
    assert left(tmp_path) == {}


@pytest.mark.parametrize(("status", "words"), [(404, "404 Not Found"), (500, "500 Internal Server Error")])
def test_an_http_error_is_one_sentence(site: Site, tmp_path: Path, status: int, words: str) -> None:
    site.status = status
    with pytest.raises(MessiError) as caught:
        get(site, tmp_path / "data.zip")
    assert str(caught.value) == (
        f"{site.url} could not be downloaded: the server answered {words}; "
        f"try again later or save the file as {tmp_path / 'data.zip'} yourself."
    )
    assert len(site.requests) == 1
    assert left(tmp_path) == {}


def test_a_silent_server_times_out(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    site.silence = threading.Event()
    with pytest.raises(MessiError, match="could not be downloaded: timed out; check the network"):
        get(site, tmp_path / "data.zip")
    assert left(tmp_path) == {}


def test_an_unknown_host_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(MessiError, match=r"could not be downloaded: Name or service not known; check the network"):
        download("https://nowhere.invalid/data.zip", tmp_path / "data.zip", size=None, checksum=None)


def test_a_refused_connection_is_one_sentence(site: Site, tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        site.port, port = bound.getsockname()[1], site.port
        with pytest.raises(MessiError, match="Connection refused"):
            get(site, tmp_path / "data.zip")
    site.port = port


def test_only_http_addresses_are_accepted(tmp_path: Path) -> None:
    with pytest.raises(MessiError, match="must start with https:// or http://"):
        download(f"file://{tmp_path}", tmp_path / "data.zip", size=None, checksum=None)

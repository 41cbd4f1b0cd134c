"""``messi serve`` with options, models and addresses that do not work: one sentence, and nothing is written."""

import shutil
import socket
from pathlib import Path

import pytest

from messi.core.tensorfile import read_tensors, write_tensors
from messi.serving.run_server import bind, is_loopback, url
from tests.command import messi


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "256.1.1.1"), "The address 256.1.1.1, port 8000, cannot be used"),
        (("--port", "70000"), "port 70000, cannot be used"),
        (("--queue", "0"), "The limit 'queue' must be above 0, but is 0."),
        (("--seconds", "nan"), "The limit 'seconds' must be above 0"),
        (("--body-bytes", "-1"), "The limit 'body_bytes' must be above 0"),
    ],
)
def test_bad_options_give_one_sentence(trained: Path, options: tuple[str, ...], message: str) -> None:
    done = messi("serve", trained / "run", *options, "--device", "cpu")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (trained / "run" / "novelty.safetensors").exists()


def test_a_used_port_gives_one_sentence(trained: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = messi("serve", trained / "run", "--port", str(port), "--device", "cpu")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "Address already in use; choose others with --host and --port" in done.stderr


def test_a_model_of_a_newer_version_gives_one_sentence(trained: Path, tmp_path: Path) -> None:
    tensors, description = read_tensors(trained / "run" / "model.safetensors")
    description["spec"]["colour_space"] = "lab"
    write_tensors(tmp_path / "new.safetensors", tensors, {**description, "version": "9.0.0"})
    done = messi("serve", tmp_path / "new.safetensors", "--port", "0", "--device", "cpu")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "was written by messi 9.0.0 and does not fit messi" in done.stderr
    assert "does not know spec.colour_space" in done.stderr


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("predict", "x.png")])
def test_a_setting_of_a_newer_version_gives_one_sentence(
    trained: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    tensors, description = read_tensors(trained / "run" / "model.safetensors")
    description["config"]["algorithm"]["new_option"] = 1
    write_tensors(tmp_path / "new.safetensors", tensors, {**description, "version": "9.0.0"})
    done = messi(command[0], tmp_path / "new.safetensors", *command[1:], "--device", "cpu")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "new.safetensors was written by messi 9.0.0 and does not fit messi" in done.stderr
    assert "There is no setting of MESSI.Config named 'new_option'" in done.stderr


def test_a_damaged_bank_gives_one_sentence(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    (tmp_path / "run" / "novelty.safetensors").write_bytes(b"damaged")
    done = messi("serve", tmp_path / "run", "--port", "0", "--device", "cpu")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "novelty.safetensors is damaged" in done.stderr


def test_addresses() -> None:
    with bind("localhost", 0) as local, bind("0.0.0.0", 0) as everywhere:  # noqa: S104
        assert is_loopback(local)
        assert not is_loopback(everywhere)
        assert url(local).startswith("http://127.0.0.1:") or url(local).startswith("http://[::1]:")

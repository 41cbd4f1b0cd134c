"""The hub that timm downloads weights from, where there may be no network."""

import contextlib
from collections.abc import Iterator

import huggingface_hub
from huggingface_hub import constants

_UNREACHABLE = {"NetworkError", "TimeoutException", "ConnectionError", "Timeout"}
"""The bases of what the hub's client raises for this, by name: its versions use different HTTP libraries."""


@contextlib.contextmanager
def cached_if_unreachable() -> Iterator[None]:
    """Let the hub's client use its cache alone where it cannot connect; it would try for a minute before it says so."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _is_reachable()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _is_reachable() -> bool:
    """Ask once, with the client's own settings, such as a proxy or a mirror; any answer will do."""
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except Exception as error:  # noqa: BLE001 (what is no broken connection is left to the download itself)
        return not _UNREACHABLE.intersection(base.__name__ for base in type(error).__mro__)
    return True

"""The folder is the registry: every file of a package is an entry of the same name; subpackages hold shared code."""

import hashlib
import importlib
import importlib.abc
import importlib.util
import logging
import pkgutil
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from messi.core.errors import MessiError, unknown_name


class UnnamedFileError(MessiError):
    """An entry is defined in a user's own file, which is only run if the caller names it."""


@dataclass(frozen=True)
class Registry:
    """The entries of one package; each of its files defines one class of the same name."""

    kind: str
    """What an entry is called in messages, such as 'algorithm'."""
    package: str

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        path = importlib.import_module(self.package).__path__
        return sorted(module.name for module in pkgutil.iter_modules(path) if not module.ispkg)

    def load(self, name: str) -> Any:
        """Return the class of an entry: the one named like its file, in any case and without underscores.

        A name that ends in ``.py`` is the path of a user's own file.
        """
        if name.endswith(".py"):
            module = _from_file(self.kind, Path(name) if name in _provided else Path(name).resolve())
        elif name in self.names():
            module = importlib.import_module(f"{self.package}.{name}")
        else:
            raise unknown_name(self.kind, name, self.names())
        wanted = short_name(name).replace("_", "").lower()
        classes = [value for key, value in vars(module).items() if isinstance(value, type) and key.lower() == wanted]
        own = [cls for cls in classes if cls.__module__ == module.__name__]
        if not own:
            raise MessiError(
                f"The {self.kind} file {name} must define a class named like the file, such as {_class_name(name)}."
            )
        return own[0]

    def permitted(self, name: object, digest: object, files: Collection[str | Path]) -> str:
        """Return the entry to load for a name that was read from a file: messi's own, or one of the caller's ``files``.

        Whoever wrote the file that was read must not decide which code is executed. ``digest`` identifies the content
        of the user's own file when it was used.
        """
        if not isinstance(name, str):
            raise MessiError(f"The {self.kind} must be a name, but is {name!r}.")
        if not name.endswith(".py"):
            return name
        for file in files:
            if short_name(str(file)) == short_name(name):
                if content_digest(file) != digest:
                    logging.getLogger("messi").warning(
                        "%s has changed since this was trained (its digest was %s), so results may differ.",
                        *(file, digest),
                    )
                return str(file)
        raise UnnamedFileError(
            f"The {self.kind} '{short_name(name)}' is defined in the file {name}, which is only run if you name it: "
            "with --algorithm FILE, or in Python with algorithm=FILE or files=[FILE]."
        )

    def config(self, name: str) -> Any:
        """Return the config class of an entry: the nested ``Config``, or the class itself if it is a config."""
        cls = self.load(name)
        config = getattr(cls, "Config", cls)
        if config.__module__ != cls.__module__:  # it would be saved under the name of the other file
            raise MessiError(
                f"The {self.kind} file {name} must define its own Config in {cls.__name__}, "
                f"such as 'class Config({config.__qualname__})'."
            )
        return config


def provide_file(path: str, content: bytes) -> None:
    """Use this content for a user's own file: a run on another machine uses the file of the machine that sent it."""
    _provided[path] = content


_provided: dict[str, bytes] = {}


def read_own_file(path: str | Path) -> bytes:
    """Return the content of a user's own file."""
    if str(path) in _provided:
        return _provided[str(path)]
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise MessiError(f"{path} cannot be read: {error.strerror}.") from error


def content_digest(file: str | Path) -> str:
    """Return 12 hex digits that identify the content of a user's own file."""
    return hashlib.sha256(read_own_file(file)).hexdigest()[:12]


def short_name(name: str) -> str:
    """Return the name of an entry to show: a user's own file without folder and suffix."""
    return Path(name).stem if name.endswith(".py") else name


class _OwnFileLoader(importlib.abc.SourceLoader):
    """Imports a user's own file; the name of the module is the path of the file."""

    def get_filename(self, fullname: str) -> str:
        return fullname

    def get_data(self, path: str) -> bytes:
        return read_own_file(path)


def _class_name(name: str) -> str:
    return short_name(name).title().replace("_", "")


def _from_file(kind: str, path: Path) -> ModuleType:
    """Import a file once. The module is named by its path, so a config made from it states where to find it."""
    if str(path) in sys.modules:
        return sys.modules[str(path)]
    if not (str(path) in _provided or path.is_file()):
        raise MessiError(f"There is no {kind} file {path}.")
    spec = importlib.util.spec_from_file_location(str(path), path, loader=_OwnFileLoader())
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 (for the type checker; it ends in .py)
    module = importlib.util.module_from_spec(spec)
    sys.modules[str(path)] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[str(path)]
        raise MessiError(f"The {kind} file {path} cannot be imported ({type(error).__name__}: {error}).") from error
    return module

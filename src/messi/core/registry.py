"""The folder is the registry: a public file in a package is an entry, and its name is the file's name."""

import importlib
import pkgutil
from dataclasses import dataclass
from typing import Any

from messi.core.errors import unknown_name


@dataclass(frozen=True)
class Registry:
    """The entries of one package; each of its public files defines one class of the same name."""

    kind: str
    """What an entry is called in messages, such as 'algorithm'."""
    package: str

    def names(self) -> list[str]:
        """Return the names of all entries, sorted."""
        path = importlib.import_module(self.package).__path__
        return sorted(m.name for m in pkgutil.iter_modules(path) if not m.name.startswith("_"))

    def load(self, name: str) -> Any:
        """Return the class that the file is about: the file's name in CamelCase."""
        if name not in self.names():
            raise unknown_name(self.kind, name, self.names())
        module = importlib.import_module(f"{self.package}.{name}")
        return getattr(module, name.title().replace("_", ""))

    def config(self, name: str) -> Any:
        """Return the config class of an entry: the ``Config`` in its class, or the class when it is one itself."""
        cls = self.load(name)
        return getattr(cls, "Config", cls)

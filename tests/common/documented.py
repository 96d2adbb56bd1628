"""The modules of a package whose names are documented, and the examples of their docstrings."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
from types import ModuleType

__all__ = ["examples", "modules"]

#: Modules whose examples need another package.
NEEDED = {"tfopt.interop.torch": "torch", "tfopt.mpi": "mpi4py", "tfopt.ray": "ray"}


def modules(package: ModuleType) -> list[ModuleType]:
    """Return a package and its modules, but for those that need what is not installed."""
    names = [m.name for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    names = [n for n in names if not n.rpartition(".")[2].startswith("_")]  # private, or Cython's
    for module, needed in NEEDED.items():
        if importlib.util.find_spec(needed) is None:
            names = [n for n in names if n != module and not n.startswith(f"{module}.")]
    return [package, *map(importlib.import_module, names)]


def examples(module: ModuleType) -> list[doctest.DocTest]:
    """Return those docstrings of a module that have examples."""
    typed = {"__name__": "__main__"}  # a class of an example is its user's
    found = doctest.DocTestFinder().find(module, extraglobs=typed)
    return [test for test in found if test.examples]

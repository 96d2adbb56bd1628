"""The programs of the build that lie beside the CUDA sources."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from host_library import SOURCES

__all__ = ["imported"]


def imported(name: str) -> ModuleType:
    """Import one, which belongs to no package, as setup.py does."""
    spec = importlib.util.spec_from_file_location(name, SOURCES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

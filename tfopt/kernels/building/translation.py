"""The translation of the modules to C, left out if nothing has changed."""

from __future__ import annotations

import gc
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy
from building import reuse  # as setup.py imports this folder
from Cython.Build import cythonize

__all__ = ["translate"]


def translate(
    modules: list[Any], folder: Path, directives: dict[str, Any], shared: str, anew: bool
) -> None:
    """Give modules their sources in C.

    Parameters
    ----------
    modules : list of Extension
        Of Cython's sources.
    folder : Path
        Where all sources are that these may need.
    directives : dict
        Cython's.
    shared : str
        The module that has the code of Cython's memoryviews.
    anew : bool
        Whether to translate what has not changed, too.
    """
    settings = sorted(directives.items()), version("cython"), numpy.__version__
    sources = sorted(path for kind in ("pyx", "pxd", "pxi") for path in folder.rglob(f"*.{kind}"))
    names = [*map(str, sources), *(module.name for module in modules)]
    of_settings = reuse.digest([], settings)
    made_of = reuse.digest(sources, settings, names)
    translated = [str(Path(module.sources[0]).with_suffix(".c")) for module in modules]
    there = all(map(os.path.exists, translated))
    if there and not anew and reuse.is_noted("translated", made_of):
        for module, source in zip(modules, translated, strict=True):
            module.sources = [source]
        return
    # Cython compares times, not directives
    anew = anew or not reuse.is_noted("settings", of_settings)
    # until all is, so that a build after an interrupted one is right
    reuse.note("translated", None)
    reuse.note("settings", None)
    # Looking for garbage among Cython's trees, most of which live on, would take as long as the
    # translation itself. Not collected they are 1.1 GB in the end.
    gc.disable()
    try:
        made = cythonize(
            modules,
            compiler_directives=directives,
            shared_utility_qualified_name=shared,
            force=anew,
            cache="CYTHON_CACHE_DIR" in os.environ,
        )
    finally:
        gc.enable()
        gc.collect()
    for module, new in zip(modules, made, strict=True):
        module.sources = new.sources
    reuse.note("settings", of_settings)
    reuse.note("translated", made_of)

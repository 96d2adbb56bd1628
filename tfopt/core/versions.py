"""Version information for bug reports."""

from __future__ import annotations

import os
import platform
import re
from importlib.util import find_spec
from typing import Any

import numpy as np

from tfopt import kernels, threads
from tfopt.imports import imported

__all__ = ["__version__", "show_versions", "versions"]

__version__ = "0.2.0"

#: What the extras for users install.
_OPTIONAL = (
    *("argcomplete", "backports.zstd", "dask", "distributed", "matplotlib", "ml_dtypes", "mpi4py"),
    *("onnxruntime", "pyarrow", "ray", "scikit-learn", "scipy", "skl2onnx", "torch", "tqdm"),
)
_OPENMP = re.compile(r"\S*/([^/\s]+/(?:lib(?:gomp|i?omp)|vcomp)[^/\s]*)$", re.MULTILINE)


def versions() -> dict[str, Any]:
    """Return the versions and the state of the kernels.

    Returns
    -------
    dict
        Serializable as JSON. ``optional`` maps each optional package to its version, or None if it
        is not installed; none of them is imported. ``openmp_runtimes`` lists the OpenMP libraries
        that this process has loaded, those of other packages too, each with its folder's name; it
        is None where only threadpoolctl could tell, and that is not installed.
    """
    cuda = imported("tfopt.cuda")  # here, because it would delay `import tfopt`

    return {
        "tfopt": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "optional": {name: _installed(name) for name in _OPTIONAL},
        "platform": platform.platform(),
        "instruction_set": kernels.cpu,
        "instruction_sets_available": list(kernels.available),
        "threads": threads.get_num_threads(),
        "openmp": threads.openmp(),
        "openmp_runtimes": _openmp_runtimes(),
        "blas": _blas(),
        "cuda": cuda.why_not() or "available",
    }


def show_versions() -> None:
    """Print the versions and the state of the kernels, one fact per line.

    Examples
    --------
    >>> import tfopt
    >>> tfopt.show_versions()  # doctest: +SKIP
    tfopt                       0.2.0
    python                      3.11.7
    ...
    """
    facts = versions()
    optional = facts.pop("optional")
    position = list(facts).index("numpy") + 1
    lines = list(facts.items())
    lines[position:position] = optional.items()
    for name, value in lines:
        missing = "not installed" if name in optional else "unknown"
        print(f"{name.replace('_', ' '):<28}{missing if value is None else _in_words(value)}")


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)


def _openmp_runtimes() -> list[str] | None:
    if os.path.exists("/proc/self/maps"):
        with open("/proc/self/maps") as file:
            paths = file.read()
    elif find_spec("threadpoolctl") is not None:
        threadpool_info = imported("threadpoolctl").threadpool_info

        paths = "\n".join(each["filepath"].replace("\\", "/") for each in threadpool_info())
    else:
        return None
    return sorted({*_OPENMP.findall(paths)})


def _blas() -> str | None:
    """Return the name and version of NumPy's BLAS, which factorizes and multiplies matrices."""
    try:
        facts = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{facts['name']} {facts['version']}"
    except (KeyError, TypeError):  # how NumPy was built decides what it knows
        return None


def _installed(name: str) -> str | None:
    # here, because it would double the time of `import tfopt`
    metadata = imported("importlib.metadata")
    try:
        version: str = metadata.version(name)
        return version
    except metadata.PackageNotFoundError:
        return None

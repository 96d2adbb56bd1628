"""The library of the CUDA tests: without a GPU, the sources compiled for the host."""

from __future__ import annotations

import os

import pytest
from devices import DEVICE
from host_library import SOURCES, build, compiler

import tfopt
import tfopt_ref
from tfopt.cuda import library


@pytest.fixture(scope="package", autouse=True)
def cuda_library():
    """Put the library in place, and take it away again afterwards."""
    if not DEVICE.on_host:
        assert library.load()
        yield
        return
    if compiler() is None:
        pytest.skip("there is no C++ compiler")
    if not (SOURCES / "table.h").exists():
        pytest.skip("the installed package has no sources of the CUDA library to compile")
    before = os.environ.get("TFOPT_CUDA_LIBRARY")
    flags = os.environ.get("TFOPT_CUDA_HOST_FLAGS", "").split()
    os.environ["TFOPT_CUDA_LIBRARY"] = str(build(*flags))
    library._load.cache_clear()
    yield
    library._load.cache_clear()
    del os.environ["TFOPT_CUDA_LIBRARY"]
    if before is not None:
        os.environ["TFOPT_CUDA_LIBRARY"] = before


@pytest.fixture
def gradual_underflow() -> None:
    """Let the host keep denormals, as a GPU does."""
    for package in (tfopt, tfopt_ref):
        package.set_flush_denormals(False)

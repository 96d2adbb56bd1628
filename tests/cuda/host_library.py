"""The CUDA sources, compiled for the host: the same kernels, thread after thread, without a GPU."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tfopt
from tfopt.rules import RULES

__all__ = ["SOURCES", "build", "compiler"]

SOURCES = Path(tfopt.__file__).parent / "cuda/src"
FLAGS = ["-std=c++17", "-O1", "-fPIC", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror"]
#: Arguments that some rules do not need; and loops to be unrolled by another compiler.
FLAGS += ["-Wno-unused-parameter", "-Wno-unknown-pragmas", "-x", "c++"]


def compiler() -> str | None:
    return shutil.which(os.environ.get("CXX", "g++"))


def build(*flags: str) -> Path:
    """Return the library; one that the same sources and flags have made before serves again."""
    texts = [path.read_text() for path in sorted(SOURCES.glob("*.[ch]*"))]
    texts += [path.read_text() for path in sorted((SOURCES / "../../kernels/platform").glob("*.h"))]
    key = hashlib.sha256("\0".join([*texts, *flags]).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"tfopt-cuda-on-host-{os.getuid()}-{key}"
    library = folder / "libtfopt_cuda_host.so"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:  # processes that need the same wait for one of them
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(library, flags)
    return library


def _compile(library: Path, flags: tuple[str, ...]) -> None:
    folder = library.parent
    jobs = [
        [f"{name}.cu", "-o", str(folder / f"{name}.o")]
        for name in ("clip", "api", "steps", "copy", "adafactor")
    ]
    jobs += [
        ["rule.cu", f"-DTFOPT_RULE={rule.name}", "-o", str(folder / f"{rule.name}.o")]
        for rule in RULES
    ]
    command = [str(compiler()), *FLAGS, *flags]

    def compile_one(job: list[str]) -> None:
        source, *rest = job
        subprocess.run([*command, "-c", str(SOURCES / source), *rest], check=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, jobs))
    linked = folder / "linked.so"
    objects = [job[-1] for job in jobs]
    subprocess.run([str(compiler()), "-shared", *flags, *objects, "-o", str(linked)], check=True)
    linked.replace(library)


if __name__ == "__main__":
    print(build(*os.environ.get("TFOPT_CUDA_HOST_FLAGS", "").split()))

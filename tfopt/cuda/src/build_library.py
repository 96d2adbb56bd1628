"""Compile the CUDA library with nvcc, for setup.py."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension
from setuptools.errors import CompileError

SOURCES = Path("tfopt/cuda/src")
#: The GPUs that get machine code, if the compiler supports them; later ones use PTX.
ARCHITECTURES = ("80", "90", "100")
#: IEEE division and square root, gradual underflow, no contraction of products and sums.
DEVICE_FLAGS = ["-std=c++17", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false"]
FLAGS = [
    *DEVICE_FLAGS,
    # nvcc's -O is for host code, and comes after -Xcompiler; device code is optimized without it.
    # The host code only fills in the arguments of launches, and was a third of the library at -O3.
    "-Xcompiler=-Os,-fno-exceptions,-fno-asynchronous-unwind-tables",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off",
    "--compress-mode=size",
]


def find_nvcc() -> str | None:
    """Return the path of nvcc, or None if there is none."""
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    candidates = [Path(folder, "bin/nvcc") for folder in folders if folder]
    return next((str(path) for path in candidates if path.exists()), shutil.which("nvcc"))


class CudaLibrary(Extension):
    """The CUDA library: it contains no Python and is loaded by tfopt/cuda/library.py."""

    def __init__(self, rules: list[str], table: list[str]) -> None:
        """Take the names of the rules that are compiled, and the files that their table is in."""
        nvcc = find_nvcc()
        if not nvcc:
            raise SystemExit(
                "TFOPT_CUDA=1 requires nvcc, but it is not in CUDA_HOME, CUDA_PATH, "
                "/usr/local/cuda or PATH: install the CUDA toolkit or set CUDA_HOME"
            )
        self.nvcc = nvcc
        sources = sorted(str(path) for path in SOURCES.iterdir() if path.suffix in (".cu", ".h"))
        super().__init__("tfopt.cuda.libtfopt_cuda", sources, depends=table)
        self.rules = rules

    def architectures(self) -> list[str]:
        known = subprocess.run(
            [self.nvcc, "--list-gpu-code"], capture_output=True, text=True
        ).stdout
        only = os.environ.get("TFOPT_CUDA_ARCH")
        chosen = [only] if only else [a for a in ARCHITECTURES if f"sm_{a}" in known.split()]
        codes = [f"sm_{a}" for a in chosen]
        flags = [f"-gencode=arch=compute_{chosen[0]},code=[{codes[0]},compute_{chosen[0]}]"]
        return flags + [
            f"-gencode=arch=compute_{a},code={code}"
            for a, code in zip(chosen[1:], codes[1:], strict=True)
        ]

    def build(self, folder: Path, library: str, processors: int) -> None:
        """Compile each rule separately, one per processor at a time, and link."""
        folder.mkdir(parents=True, exist_ok=True)
        ptx = os.environ.get("TFOPT_CUDA_PTX")  # where to leave it, for the tests
        flags = FLAGS + self.architectures()
        # the slowest first
        jobs = [
            [f"{name}.cu", "-o", str(folder / f"{name}.o")]
            for name in ("api", "clip", "steps", "copy", "adafactor")
        ]
        jobs += [
            ["rule.cu", f"-DTFOPT_RULE={name}", "-o", str(folder / f"{name}.o")]
            for name in self.rules
        ]

        def compile_one(job: list[str]) -> None:
            source, *rest = job
            command = [self.nvcc, *flags, "-c", str(SOURCES / source), *rest]
            if ptx:  # a folder for each job, because every rule's file is rule.ptx
                kept = Path(ptx, Path(rest[-1]).stem)
                kept.mkdir(parents=True, exist_ok=True)
                command += ["--keep", "--keep-dir", str(kept)]
            self.run(command)

        with ThreadPoolExecutor(processors) as pool:
            list(pool.map(compile_one, jobs))
        objects = [job[-1] for job in jobs]
        self.run(
            [self.nvcc, *flags, "-shared", "-cudart=static", "-Xlinker=-s", *objects, "-o", library]
        )

    @staticmethod
    def run(command: list[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(done.stdout, done.stderr, sep="", file=sys.stderr)
            raise CompileError(f"{command[0]} failed with {done.returncode}")

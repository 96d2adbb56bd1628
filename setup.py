"""Builds the kernels; everything else about the package is in pyproject.toml."""

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
from Cython.Build import cythonize
from Cython.Tempita import Template
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import BaseError, CCompilerError, CompileError

KERNELS = Path("tfopt/kernels")
RULES = Path("tfopt/rules")
MODULES = (
    "runtime",
    "layout",
    "memory",
    "arguments",
    "calls",
    "row_calls",
    "groups",
    "merge",
    "rows",
    "summed",
    "training",
    "commit",
    "together",
    "locking",
    "catch_up",
    "norms",
    "capsules",
    "clip",
    "sdca",
    "sdca_pack",
    "csr",
    "fingerprint",
    "fingerprint_table",
    "sdca_solver",
    "sdca_blocks",
    "sdca_classes",
    "curvature",
    "curvature_products",
)
#: The engine of gradients, and the way back.
GRADIENTS = ("core/engine", "autodiff/backward")
#: The code of Cython's memoryviews, which each module would have a copy of otherwise. Python's list
#: of modules has it without the package's name.
SHARED = "kernels._tfopt_cython_memoryviews"
PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
X86 = platform.machine().lower() in ("x86_64", "amd64")
#: The compiler flags of each instruction set that `steps` is compiled for.
SETS = {"baseline": [], **({"v3": ["-march=x86-64-v3"]} if X86 else {})}
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": True,
    "warn.maybe_uninitialized": True,
}
# Contraction to FMA would make bits depend on the instruction set; without -fno-math-errno GCC
# vectorizes no square root. Never -ffast-math.
FLAGS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
if "-g" not in os.environ.get("CFLAGS", ""):
    FLAGS.append("-g0")  # Python's own flags ask for symbols, which would be most of the wheel


CUDA = Path("tfopt/cuda")
#: The GPUs that get machine code, if the compiler knows them; PTX serves the later ones.
CUDA_ARCHITECTURES = ("80", "90", "100")
#: IEEE division and root, gradual underflow, and no product contracted with a sum.
CUDA_FLAGS = ["-std=c++17", "-O3", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false"]
CUDA_FLAGS += ["-Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off", "--compress-mode=size"]


def import_file(name: str, path: Path) -> ModuleType:
    """Import a file or folder by itself: the package it is in needs what is built of it."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # by which its parts find one another
    spec.loader.exec_module(module)
    return module


TABLE = import_file("tfopt_rules", RULES / "__init__.py")
TRANSLATOR = import_file("translate_rules", CUDA / "translate_rules.py")


def write(target: Path, source: str) -> str:
    """Write a file, if it is not there as it is to be, and return its path."""
    if not target.exists() or target.read_text() != source:
        target.write_text(source)
    return str(target)


def render(template: Path, target: Path, **names: object) -> str:
    """Write what a template makes of the names, and return its path."""
    source = Template.from_filename(str(template), encoding="utf-8").substitute(names)
    return write(target, source)


def render_functions() -> None:
    """Write the modules whose functions follow from the table, for Python and its tools to read."""

    def wrapped(text: str) -> str:
        return "\n    ".join(textwrap.wrap(text, 95))

    def tuple_of(names: Sequence[str]) -> str:
        return f"({', '.join(names)}{',' if len(names) == 1 else ''})"

    def flags_of(rule: Any) -> str:
        bits = [f"{1 << k} if {flag} else 0" for k, flag in enumerate(rule.flags)] or ["0"]
        return " | ".join(f"({bit})" for bit in bits) if len(bits) > 1 else bits[0]

    helpers = {"wrapped": wrapped, "tuple_of": tuple_of, "flags_of": flags_of}
    for name in ("training_ops", "raw_ops"):
        template = Path("tfopt", f"{name}.py.tp")
        target = template.with_suffix("")
        render(template, target, TABLE=TABLE.RULES, OPS=TABLE.OPS, FORMS=TABLE.FORMS, **helpers)


def render_steps(instruction_set: str) -> str:
    """Write the loops around the table's rules and return the file's path.

    One copy per instruction set, because each is an extension module of its own.
    """

    def typed(expression: str, number: str) -> str:
        # a bare literal would make C compute in double
        return re.sub(r"(?<![\w.])(\d+)(?![\w.])", rf"<{number}><double>\1", expression)

    target = KERNELS / f"steps_{instruction_set}.pyx"
    return render(KERNELS / "steps.pyx.tp", target, TABLE=TABLE.RULES, typed=typed)


def extension(name: str, source: str, flags: list[str]) -> Extension:
    return Extension(
        f"tfopt.{name}",
        [source],
        include_dirs=[numpy.get_include(), str(KERNELS)],
        extra_compile_args=FLAGS + flags,
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        depends=[
            *(str(KERNELS / name) for name in ("machine.h", "halves.h", "rules.pxd")),
            *map(str, RULES.glob("*.py")),
        ],
    )


def find_nvcc() -> str | None:
    """Return CUDA's compiler, if the build is to use one."""
    wanted = os.environ.get("TFOPT_CUDA", "")
    if wanted == "0" or not sys.platform.startswith("linux"):
        return None
    folders = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [Path(folder, "bin/nvcc") for folder in folders if folder]
    found = next((str(place) for place in places if place.exists()), shutil.which("nvcc"))
    if wanted == "1" and not found:
        raise SystemExit(
            "TFOPT_CUDA=1 demands CUDA, but there is no nvcc: looked in CUDA_HOME, CUDA_PATH, "
            "/usr/local/cuda and PATH"
        )
    return found


class CudaLibrary(Extension):
    """The shared library of the CUDA path: no Python in it, loaded by tfopt/cuda/library.py."""

    def __init__(self, nvcc: str) -> None:
        self.nvcc = nvcc
        sources = sorted(str(path) for path in CUDA.iterdir() if path.suffix in (".cu", ".h"))
        super().__init__(
            "tfopt.cuda.libtfopt_cuda",
            sources,
            depends=[str(path) for path in RULES.glob("*.py")],
            optional=os.environ.get("TFOPT_CUDA") != "1",
        )
        self.rules = [rule.name for rule in TABLE.RULES]

    def architectures(self) -> list[str]:
        known = subprocess.run(
            [self.nvcc, "--list-gpu-code"], capture_output=True, text=True
        ).stdout
        only = os.environ.get("TFOPT_CUDA_ARCH")
        chosen = [only] if only else [a for a in CUDA_ARCHITECTURES if f"sm_{a}" in known.split()]
        codes = [f"sm_{a}" for a in chosen]
        flags = [f"-gencode=arch=compute_{chosen[0]},code=[{codes[0]},compute_{chosen[0]}]"]
        return flags + [
            f"-gencode=arch=compute_{a},code={code}"
            for a, code in zip(chosen[1:], codes[1:], strict=True)
        ]

    def build(self, folder: Path, library: str) -> None:
        """Compile each rule on its own, as many at a time as there are processors, and link."""
        folder.mkdir(parents=True, exist_ok=True)
        flags = CUDA_FLAGS + self.architectures()
        # these first, for they take the longest
        jobs = [[f"{name}.cu", "-o", str(folder / f"{name}.o")] for name in ("face", "clip")]
        jobs += [
            ["rule.cu", f"-DTFOPT_RULE={name}", "-o", str(folder / f"{name}.o")]
            for name in self.rules
        ]

        def compile_one(job: list[str]) -> None:
            source, *rest = job
            self.run([self.nvcc, *flags, "-c", str(CUDA / source), *rest])

        with ThreadPoolExecutor(PROCESSORS) as pool:
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


class Sources(sdist):
    """The archive of sources: what a build needs, for what is generated is made anew."""

    GENERATED = (
        *("tfopt/**/*.c", "tfopt/**/*.so*", "tfopt/kernels/steps_*.pyx"),
        *("tfopt/cuda/rules.h", "tfopt/cuda/table.h"),
        *("tfopt/training_ops.py", "tfopt/raw_ops.py"),
    )

    def make_distribution(self) -> None:
        # the tests need helpers and data that a clone has
        for pattern in (*self.GENERATED, "tests/**"):
            self.filelist.exclude(pattern)
        super().make_distribution()


class BuildKernels(build_ext):
    """build_ext that goes without OpenMP where there is none, and says what a build needs."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or PROCESSORS

    def get_ext_filename(self, name: str) -> str:
        if name.endswith("libtfopt_cuda"):
            return name.replace(".", os.sep) + ".so.1"  # .so alone is a module's ending
        return super().get_ext_filename(name)

    def build_extension(self, extension: Extension) -> None:
        if not isinstance(extension, CudaLibrary):
            super().build_extension(extension)
            return
        library = Path(self.get_ext_fullpath(extension.name))
        newest = max(Path(path).stat().st_mtime for path in extension.sources + extension.depends)
        if self.force or not library.exists() or library.stat().st_mtime < newest:
            library.parent.mkdir(parents=True, exist_ok=True)
            extension.build(Path(self.build_temp, "cuda"), str(library))

    def build_extensions(self) -> None:
        if not self.compiles(""):
            raise BaseError(
                "tfopt needs a C compiler, and none works here: install one "
                "(Debian, Ubuntu: apt install build-essential; Fedora: dnf install gcc; "
                "macOS: xcode-select --install) and run pip again"
            )
        if self.compiles("#include <omp.h>", "-fopenmp"):
            for module in self.extensions:
                module.extra_compile_args.append("-fopenmp")
                module.extra_link_args.append("-fopenmp")
        else:
            print(
                "tfopt: the compiler has no OpenMP, so the kernels will run on one thread "
                "(Debian, Ubuntu: apt install libgomp1 gcc; macOS: brew install gcc, CC=gcc-14)",
                file=sys.stderr,
            )
        super().build_extensions()

    def compiles(self, code: str, *flags: str) -> bool:
        """Whether a program with these lines compiles and links."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(f"{code}\nint main(void) {{ return 0; }}\n")
            try:
                objects = self.compiler.compile(
                    [str(source)], output_dir=folder, extra_postargs=list(flags)
                )
                # setuptools takes LDFLAGS for shared libraries alone; without them a sanitizer that
                # CFLAGS asks for lacks its run-time library
                linked = [*flags, *shlex.split(os.environ.get("LDFLAGS", ""))]
                self.compiler.link_executable(
                    objects, "probe", output_dir=folder, extra_postargs=linked
                )
            except (CCompilerError, OSError):
                return False
        return True


render_functions()
render(CUDA / "table.h.tp", CUDA / "table.h", TABLE=TABLE.RULES)  # the tests need no nvcc
write(CUDA / "rules.h", TRANSLATOR.cuda_rules((KERNELS / "rules.pxd").read_text()))
nvcc = find_nvcc()
setup(
    ext_modules=cythonize(
        [
            extension(f"kernels.steps_{name}", render_steps(name), flags)
            for name, flags in SETS.items()
        ]
        + [extension(f"kernels.{name}", str(KERNELS / f"{name}.pyx"), []) for name in MODULES]
        + [extension(name.replace("/", "."), f"tfopt/{name}.pyx", []) for name in GRADIENTS]
        + [extension(SHARED, f"tfopt/{SHARED.replace('.', '/')}.c", [])],
        compiler_directives=DIRECTIVES,
        shared_utility_qualified_name=f"tfopt.{SHARED}",
    )
    + ([CudaLibrary(nvcc)] if nvcc else []),
    cmdclass={"build_ext": BuildKernels, "sdist": Sources},
)

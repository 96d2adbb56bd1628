"""Builds the kernels; everything else about the package is in pyproject.toml."""

import os
import platform
import re
import runpy
import sys
import tempfile
from pathlib import Path

import numpy
from Cython.Build import cythonize
from Cython.Tempita import Template
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

KERNELS = Path("tfopt/kernels")
MODULES = (
    "runtime",
    "layout",
    "memory",
    "arguments",
    "calls",
    "groups",
    "merge",
    "rows",
    "training",
    "norms",
    "clip",
)
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


def render_steps(instruction_set: str) -> str:
    """Write the loops around the table's rules and return the file's path.

    One copy per instruction set, because each is an extension module of its own.
    """

    def typed(expression: str, number: str) -> str:
        # a bare literal would make C compute in double
        return re.sub(r"(?<![\w.])(\d+)(?![\w.])", rf"<{number}><double>\1", expression)

    table = runpy.run_path("tfopt/rules.py")["RULES"]
    template = Template.from_filename(str(KERNELS / "steps.pyx.tp"), encoding="utf-8")
    source = template.substitute(TABLE=table, typed=typed)
    rendered = KERNELS / f"steps_{instruction_set}.pyx"
    if not rendered.exists() or rendered.read_text() != source:
        rendered.write_text(source)
    return str(rendered)


def extension(name: str, source: str, flags: list[str]) -> Extension:
    return Extension(
        f"tfopt.kernels.{name}",
        [source],
        include_dirs=[numpy.get_include(), str(KERNELS)],
        extra_compile_args=FLAGS + flags,
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
        depends=[str(KERNELS / "machine.h"), str(KERNELS / "rules.pxd"), "tfopt/rules.py"],
    )


class BuildKernels(build_ext):
    """build_ext that goes without OpenMP where there is none, and says what a build needs."""

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
                self.compiler.link_executable(
                    objects, "probe", output_dir=folder, extra_postargs=list(flags)
                )
            except (CCompilerError, OSError):
                return False
        return True


setup(
    ext_modules=cythonize(
        [extension(f"steps_{name}", render_steps(name), flags) for name, flags in SETS.items()]
        + [extension(name, str(KERNELS / f"{name}.pyx"), []) for name in MODULES],
        compiler_directives=DIRECTIVES,
    ),
    cmdclass={"build_ext": BuildKernels},
)

"""What the compiler of a build can do, found out by small programs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from setuptools.errors import CCompilerError

__all__ = ["OPENMP", "compiles", "left_out", "processor_has"]

#: Whether a program can be run once it is built.
RUNS = "_PYTHON_HOST_PLATFORM" not in os.environ
#: What a compiler has OpenMP for: its header and its library, which some come without. The library
#: may be another C library's, as that of musl-gcc is: programs link with it, and do not start.
OPENMP = """
#include <omp.h>
int parallel(void) {
    int threads = 0;
    #pragma omp parallel reduction(+: threads)
    threads += omp_get_num_threads();
    return threads;
}"""
#: All flags of a compiler that knows none of the others.
MSVC_FLAGS = ["/O2", "/fp:precise"]


def compiles(compiler: Any, code: str, *flags: str, run: bool = False, returns: str = "0") -> bool:
    """Return whether a program with this code compiles and links, and if wanted, returns 0."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "probe.c")
        source.write_text(f"{code}\nint main(void) {{ return {returns}; }}\n", "utf-8")
        try:
            objects = compiler.compile([str(source)], output_dir=folder, extra_postargs=list(flags))
            # setuptools uses LDFLAGS only for shared libraries; without them a sanitizer in
            # CFLAGS lacks its run-time library
            linked = [*flags, *shlex.split(os.environ.get("LDFLAGS", ""))]
            compiler.link_executable(objects, "probe", output_dir=folder, extra_postargs=linked)
            if run and RUNS:
                program = Path(folder, compiler.executable_filename("probe"))
                subprocess.run([program], stderr=subprocess.DEVNULL, check=True)
        except (CCompilerError, OSError, subprocess.CalledProcessError):
            return False
    return True


def processor_has(compiler: Any, level: str, header: Path) -> bool:
    """Return whether this machine's processor has an instruction set: v3 or v4."""
    code = f'#include "{header.resolve()}"'
    return RUNS and compiles(compiler, code, run=True, returns=f"!cpu_has_{level}()")


def left_out(compiler: Any, modules: list[Any], indispensable: Collection[str]) -> list[Any]:
    """Drop the flags that the compiler does not know; return the modules that need one of them.

    These are of an instruction set, which others do instead of.
    """
    msvc = compiler.compiler_type == "msvc"  # which accepts all, and ignores most
    strict = ["-Werror"] if compiles(compiler, "", "-Werror") else []  # clang warns of some

    def spelled(flag: str) -> str | None:
        if msvc or flag in indispensable:
            return None if msvc else flag
        ways = dict.fromkeys((flag, flag.replace("=x86-64-", "=x86_64_")))  # gcc's, and zig's
        return next((way for way in ways if compiles(compiler, "", *strict, way)), None)

    known = {
        flag: spelled(flag)
        for flag in sorted({flag for module in modules for flag in module.extra_compile_args})
    }
    without = []
    for module in modules:
        lacking = [flag for flag in module.extra_compile_args if known[flag] is None]
        module.extra_compile_args = [*filter(None, map(known.get, module.extra_compile_args))]
        if msvc:
            module.extra_compile_args = [*MSVC_FLAGS]
        if any(flag.startswith("-march=") for flag in lacking):
            without.append(module)
            print(
                f"tfopt: {module.name} is left out, without which kernels are slower: the "
                f"compiler does not know {' '.join(lacking)}",
                file=sys.stderr,
            )
    return without

"""The compiler keeps every operation apart and exact, which only its output can tell.

In the PTX of all kernels there is no fused multiply-add, no flushed denormal and no approximation,
and each sum, difference, product, quotient and root of floats names its rounding: one that did not
might be contracted later. CUDA's own `pow`, which FTRL calls for powers other than the square root,
is made of such operations, so FTRL is looked at without it.

The steps of all rules are compiled, which takes seconds, and the whole kernels of two. If a build
of the library has left its PTX in the folder `TFOPT_CUDA_PTX`, as in `.ci/run`, that of every rule
is looked at.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from build_files import imported
from host_library import SOURCES

from tfopt.rules import RULES, Rule

BUILD = imported("build_library")
FORBIDDEN = re.compile(
    r"\b(?:fma|mad)\.(?:\w+\.)*f(?:32|64)|\.ftz\b|\.approx\b|\brsqrt\b|\bex2\b|\blg2\b"
)
ARITHMETIC = re.compile(r"\b(?:add|sub|mul|div|sqrt)\.((?:\w+\.)*)f(?:32|64)\b")


needs_nvcc = pytest.mark.skipif(BUILD.find_nvcc() is None, reason="there is no nvcc")


def ptx_of(folder: Path, source: str, chosen: list[str], *options: str) -> str:
    target = folder / "made.ptx"
    # a function that only the host has is compiled with a warning, and fails on a GPU
    options = (*options, "-Werror=all-warnings", "-arch=compute_80", "-ptx", f"-I{SOURCES}")
    command = [str(BUILD.find_nvcc()), *chosen, *options, str(SOURCES / source)]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target.read_text()


def ptx_of_rule(folder: Path, name: str, chosen: list[str]) -> str:
    return ptx_of(folder, "rule.cu", chosen, "-DTFOPT_NO_POWER", f"-DTFOPT_RULE={name}")


#: What a build of the library has left: for each source and rule a folder.
BUILT = os.environ.get("TFOPT_CUDA_PTX")


def faults(ptx: str) -> list[str]:
    unnamed = [match[0] for match in ARITHMETIC.finditer(ptx) if "rn." not in match[1]]
    return FORBIDDEN.findall(ptx) + unnamed


#: A kernel that calls each step of a rule, for float and for double.
STEPS = """
#include "table.h"
template <class R, class real>
__global__ void steps_of(real *x, real g, const real *s, int constants) {
    R::dense(x, g, s, constants);
    if constexpr (R::reduction != Reduction::NONE) {
        double sums[R::sums] = {};
        R::first(x, g, s, sums);
        R::reduce(x, s, constants, sums, sums[0], x + R::arrays);
    } else {
        R::rows(x, g, s, constants);
        R::width1(x, g, s, constants);
        if constexpr (R::steps_absent_rows)
            R::absent(x, s, constants);
    }
}
"""


@needs_nvcc
def test_every_step_is_exact(tmp_path: Path) -> None:
    kernels = [
        f"template __global__ void steps_of<{rule.name}>({real} *, {real}, const {real} *, int);\n"
        for rule in RULES
        for real in ("float", "double")
    ]
    source = tmp_path / "steps.cu"
    source.write_text(STEPS + "".join(kernels))
    ptx = ptx_of(tmp_path, str(source), BUILD.DEVICE_FLAGS, "-DTFOPT_NO_POWER")
    of_each = ptx.split(".entry")[1:]
    assert len(of_each) == len(kernels)
    assert all(ARITHMETIC.search(kernel) for kernel in of_each)
    assert not faults(ptx)


def whole() -> list[Rule]:
    """Return the rules whose kernels are compiled: one of each kind."""
    kinds = "adam", "keras_adam", "lamb", "rowwise_adagrad"
    return [rule for rule in RULES if BUILT or rule.name in kinds]


@needs_nvcc
@pytest.mark.parametrize("rule", whole(), ids=lambda rule: rule.name)
def test_every_operation_is_exact(rule, tmp_path: Path) -> None:
    ptx = Path(BUILT, rule.name, "rule.ptx").read_text() if BUILT else ""
    if not ptx or faults(ptx):  # which may be those of pow
        ptx = ptx_of_rule(tmp_path, rule.name, BUILD.DEVICE_FLAGS)
    assert len(ARITHMETIC.findall(ptx)) > 10
    assert not faults(ptx)


@needs_nvcc
@pytest.mark.parametrize("name", ["clip", "adafactor"])
def test_what_is_no_rule_is_exact(name: str, tmp_path: Path) -> None:
    built = Path(BUILT, name, f"{name}.ptx") if BUILT else None
    ptx = built.read_text() if built else ptx_of(tmp_path, f"{name}.cu", BUILD.DEVICE_FLAGS)
    assert {match[0] for match in ARITHMETIC.finditer(ptx)} > {"add.rn.f64", "sqrt.rn.f64"}
    assert not faults(ptx)


@needs_nvcc
@pytest.mark.parametrize("name", ["copy", "steps"])
def test_copies_are_exact(name: str, tmp_path: Path) -> None:
    built = Path(BUILT, name, f"{name}.ptx") if BUILT else None
    ptx = built.read_text() if built else ptx_of(tmp_path, f"{name}.cu", BUILD.DEVICE_FLAGS)
    assert not faults(ptx)


@needs_nvcc
def test_other_flags_are_found_out(tmp_path: Path) -> None:
    for one in BUILD.DEVICE_FLAGS:
        if one in ("-fmad=false", "-ftz=false", "-prec-sqrt=true", "-prec-div=true"):
            name, value = one.split("=")
            spoiled = f"{name}={'true' if value == 'false' else 'false'}"
            others = [flag for flag in BUILD.DEVICE_FLAGS if flag != one]
            assert faults(ptx_of_rule(tmp_path, "adam", [*others, spoiled])), spoiled

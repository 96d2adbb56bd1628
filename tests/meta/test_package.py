"""The package as a whole: imports, built modules, and the error of an unbuilt tree."""

from __future__ import annotations

import ast
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import tfopt
import tfopt_ref
from tfopt.kernels.platform import runtime

HERE = Path(tfopt.__file__).parent
ROOT = Path(__file__).parents[2]


def python(*arguments: str, cwd: Path | None = None, **environment: str):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, cwd=cwd,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["tfopt", "tfopt_ref"])
def test_importing_needs_only_numpy(name: str) -> None:
    """Of all other packages nothing is loaded, the other of the two included.

    NumPy's own submodules may be: it loads some of them, numpy.fft among them, at their first use,
    and the rules name their functions. They come with NumPy and need no other package.
    """
    code = f"import sys, numpy; before = {{*sys.modules}}; import {name}; "
    code += (
        "print(*{m.split('.')[0] for m in {*sys.modules} - before} - {*sys.stdlib_module_names})"
    )
    loaded = {*python("-c", code).stdout.split()}
    of_cython = {module for module in loaded if "cython" in module}  # its runtime is its own
    assert loaded - of_cython - {"numpy"} == {name}


#: Where users look with `dir`, which a notebook completes names from.
SHOWN = sorted({
    *(f"tfopt.{name}" for name in tfopt._MODULES - {"interop"}),
    *("tfopt", "tfopt.errors", "tfopt.threads", "tfopt.optimizers.schedules"),
})  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_dir_shows_public_names_only(name: str) -> None:
    try:
        module = import_module(name)
    except ImportError as error:
        pytest.skip(str(error))
    shown = {each for each in dir(module) if not each.startswith("__")}
    assert shown == {*module.__all__, *(tfopt._MODULES if name == "tfopt" else ())} - {
        "__version__"
    }


def test_help_is_a_tour() -> None:
    """Its first screen says where to go, also without what some modules need."""
    lines = (tfopt.__doc__ or "").splitlines()
    assert len(lines) <= 13
    named = {*re.findall(r"`(\w+)`", tfopt.__doc__ or "")}
    assert named <= {*dir(tfopt)}
    assert named >= tfopt._MODULES
    code = "import sys; sys.modules.update(dict.fromkeys(['sklearn', 'dask', 'scipy', 'ray'])); "
    shown = python("-c", code + "import tfopt; help(tfopt)", PAGER="cat")
    assert lines[0] in shown.stdout, shown.stderr
    assert "linear_model" not in python("-c", code + "import tfopt; print(dir(tfopt))").stdout


def test_documented_modules_are_attributes() -> None:
    # the last ones load others
    names = ["checkpoints", "cuda", "interop", "io", "linear_model", "dask", "mpi", "ray", "scipy"]
    code = f"""
import tfopt
for name in {names}:
    print(name in vars(tfopt), getattr(tfopt, name).__name__)
"""
    shown = python("-c", code)
    assert [*map(str.split, shown.stdout.splitlines())] == [
        ["False", f"tfopt.{name}"] for name in names
    ], shown.stderr


def test_public_names_exist_and_are_the_same() -> None:
    for package in (tfopt, tfopt_ref):
        for name in package.__all__:
            assert hasattr(package, name)
    assert {*tfopt_ref.__all__} < {*tfopt.__all__}


def test_type_checkers_see_what_is_loaded_late() -> None:
    tree = ast.parse((HERE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    named = {alias.name: str(node.module) for node in imports for alias in node.names}
    late = python("-c", "import tfopt; print(*{*dir(tfopt)} - {*vars(tfopt)})").stdout.split()
    assert named.keys() == {*late}
    for name, module in named.items():
        if module != "tfopt":
            assert getattr(import_module(module), name) is getattr(tfopt, name)


def test_importing_loads_no_more_than_the_kernels() -> None:
    """Optimizers and the tape take twice as long to import as NumPy, pathlib a tenth as long."""
    code = (
        "import sys, numpy; before = {*sys.modules}; import tfopt; print(*{*sys.modules} - before)"
    )
    loaded = set(python("-c", code).stdout.split())
    packages = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("tfopt.")}
    light = {"core", "denormals", "errors", "imports", "kernels", "printable", "rules", "threads"}
    assert packages == {f"tfopt.{name}" for name in light}
    assert not loaded & {"inspect", "pathlib", "dataclasses", "typing_extensions"}


@pytest.mark.parametrize(
    "first",
    [
        "v[1:]",
        "v.T",
        "v.real",
        "v.sum()",
        "np.exp(v)",
        "np.sum(v)",
        "np.add.reduce(v)",
        "dir(v)",
        "v + [1, 2, 3]",
    ],
)
def test_what_numpy_makes_of_a_variable_may_come_first(first: str) -> None:
    """Nothing else has loaded the operations before."""
    code = f"import numpy as np; import tfopt; v = tfopt.Variable(np.ones(3)); print({first})"
    done = python("-W", "error", "-c", code)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_an_unbuilt_tree_has_a_one_line_error(tmp_path: Path) -> None:
    rendered = {HERE / "training_ops.py", HERE / "raw_ops.py", HERE / "rules/signatures.py"}
    for path in {*HERE.rglob("*.py")} - rendered:
        copy = tmp_path / "tfopt" / path.relative_to(HERE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    done = python("-m", "tfopt", cwd=tmp_path)
    assert done.returncode != 0
    (line,) = done.stderr.strip().splitlines()
    assert "kernels are not built" in line and "pip install -e ." in line


@pytest.mark.skipif(
    platform.machine() != "x86_64" or not Path("/proc/cpuinfo").exists(),
    reason="the processor's features are listed by Linux on x86-64 alone",
)
def test_the_sets_are_those_that_the_system_lists() -> None:
    """All features of x86-64-v3 and -v4, whose definition is the psABI's."""
    (line, *_) = re.findall(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    found = set(line.split())
    v3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"} <= found
    v4 = v3 and {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= found
    assert (runtime.has_v3(), runtime.has_v4()) == (v3, v4)


def test_tfopt_cpu_forces_an_instruction_set() -> None:
    show = "import tfopt.kernels as k; print(k.cpu)"
    for cpu in tfopt.kernels.available:
        assert python("-c", show, TFOPT_CPU=cpu).stdout.strip() == cpu
    assert python("-c", show, TFOPT_CPU="").stdout.strip() == tfopt.kernels.available[-1]
    wrong = python("-c", show, TFOPT_CPU="v9")
    assert "ImportError: TFOPT_CPU=v9: this machine can run baseline" in wrong.stderr


needs_objdump = pytest.mark.skipif(
    shutil.which("objdump") is None, reason="objdump is not installed"
)


def _machine_code(module: str, folder: str = "update") -> str:
    (library,) = (HERE / "kernels" / folder).glob(f"{module}.*.so")
    command = ["objdump", "-d", "--no-show-raw-insn", str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _loops(cpu: str) -> dict[str, str]:
    """Return the machine code of every loop of an instruction set, by the loop's name."""
    functions = re.findall(
        r"^\w+ <(\w+)>:\n((?:.+\n)*)", _machine_code(f"steps_{cpu}"), re.MULTILINE
    )
    named = (
        (re.search(r"fuse_([01]).*_((?:dense|rows|absent|row|first|step)_\w+)$", name), code)
        for name, code in functions
    )
    return {f"{match[2]}-{match[1]}": code for match, code in named if match}


@needs_objdump
@pytest.mark.skipif("v3" not in tfopt.kernels.available, reason="this machine has no v3 to look at")
def test_the_loops_are_vector_code() -> None:
    """A branch, a division that tests for zero, a set without its flags: each fails silently."""
    for cpu, register in (("baseline", "xmm"), ("v3", "ymm")):
        loops = _loops(cpu)
        for rule in tfopt.rules.RULES:
            for number, constants in enumerate(rule.variants):
                if dict(zip(rule.constants, constants, strict=True)).get("square_root") is False:
                    continue  # calls pow
                kinds = rule.steps.keys() - {"width1"}
                names = [f"{kind}_{rule.name}_{number}" for kind in kinds]
                if rule.reduction == "row":
                    names = [f"row_{rule.name}_{number}"]
                elif rule.reduction:
                    names = [f"{kind}_{rule.name}" for kind in ("first", "step")]
                for name in names:
                    for type_, packed in ((0, "mulps"), (1, "mulpd")):
                        code = loops[f"{name}-{type_}"]
                        found = [line for line in code.splitlines() if packed in line]
                        assert any(register in line for line in found), (cpu, name)
        assert not any("vfmadd" in code for code in loops.values())


@needs_objdump
@pytest.mark.parametrize(("cpu", "register"), [("v3", "ymm"), ("v4", "zmm")])
def test_the_loops_over_16_bits_are_vector_code(cpu: str, register: str) -> None:
    if cpu not in tfopt.kernels.available:
        pytest.skip(f"this machine does not run {cpu}")
    found = re.findall(r"<\w*_(b?float16)_(\w+_\d+)>:\n((?:.+\n)*)", _machine_code(f"steps_{cpu}"))
    loops = {(storage, step): code for storage, step, code in found}
    storages = {"v3": ("float16", "bfloat16"), "v4": ("bfloat16",)}[cpu]
    for rule in tfopt.rules.ELEMENTWISE:
        for number, constants in enumerate(rule.variants):
            if dict(zip(rule.constants, constants, strict=True)).get("square_root") is False:
                continue  # calls pow
            for storage in storages:
                for kind in rule.steps.keys() & {"dense", "rows"}:
                    code = loops[storage, f"{kind}_{rule.name}_{number}"]
                    packed = [line for line in code.splitlines() if "mulps" in line]
                    assert packed and all(register in line for line in packed), (rule.name, kind)
                    single = re.search(r"v(mul|add|sub|div|sqrt)ss", code)
                    assert not single and "vfmadd" not in code, (rule.name, kind, storage)


@needs_objdump
@pytest.mark.parametrize(("cpu", "register"), [("v3", "ymm"), ("v4", "zmm")])
def test_the_loops_over_blocks_are_vector_code(cpu: str, register: str) -> None:
    if cpu not in tfopt.kernels.available:
        pytest.skip(f"this machine does not run {cpu}")
    found = re.findall(r"<\w*_block_(\w+_\d+)>:\n((?:.+\n)*)", _machine_code(f"steps_{cpu}"))
    loops = dict(found)
    coded = [rule for rule in tfopt.rules.ELEMENTWISE if {*rule.codes} == {*rule.slots} != set()]
    assert coded and len(loops) == sum(len(rule.variants) for rule in coded)
    for rule in coded:
        for number in range(len(rule.variants)):
            code = loops[f"{rule.name}_{number}"]
            packed = [line for line in code.splitlines() if "mulps" in line]
            assert packed and all(register in line for line in packed), rule.name
            assert "pmaxsd" in code and "vfmadd" not in code, rule.name
            assert not re.search(r"v(mul|add|sub|div|sqrt)ss", code), rule.name


@needs_objdump
@pytest.mark.skipif("v3" not in tfopt.kernels.available, reason="this machine has no v3 to look at")
def test_norms_are_vector_code() -> None:
    """A sum in one accumulator would not be; the lanes are what makes it so."""
    for cpu, register in (("baseline", "xmm"), ("v3", "ymm")):
        functions = re.findall(r"<(\w*_add_squares)>:\n((?:.+\n)*)", _machine_code(f"steps_{cpu}"))
        assert len(functions) == 2
        for _, code in functions:
            for packed in ("mulpd", "addpd"):
                found = [line for line in code.splitlines() if packed in line]
                assert any(register in line for line in found), cpu


@needs_objdump
@pytest.mark.skipif("v3" not in tfopt.kernels.available, reason="this machine has no v3 to look at")
@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("second_order", "outer_products"),
        ("interior_point", "outer_products"),
        ("multiclass", "tile_product"),
    ],
)
def test_each_instruction_set_adds_up_products_in_its_registers(module: str, function: str) -> None:
    code = _machine_code(module, "linear")
    functions = dict(re.findall(rf"<{function}_(\w+)>:\n((?:.+\n)*)", code))
    for cpu, register in (("baseline", "xmm"), ("v3", "ymm"), ("v4", "zmm")):
        products = [line for line in functions[cpu].splitlines() if "mulpd" in line]
        assert products and all(register in line for line in products), cpu
        assert "vfmadd" not in functions[cpu]


@needs_objdump
@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86's name of the instruction")
def test_sparse_rows_are_prefetched() -> None:
    """The compiler drops calls to functions that do nothing but prefetch."""
    assert "prefetch" in _machine_code("sparse")


def test_no_division_tests_for_zero() -> None:
    sources = list((HERE / "kernels/update").glob("steps_*.c"))
    if not sources:
        pytest.skip("the installed package has no generated sources")
    for source in sources:
        assert "ZeroDivisionError" not in source.read_text()


def test_modules_that_use_numpys_c_api_import_it() -> None:
    """Cython does so for `cimport numpy` alone; others would read the address 0."""
    sources = [source for source in HERE.rglob("*.pyx") if "numpy_api" in source.read_text()]
    if not sources:
        pytest.skip("the installed package has no sources of modules")
    for source in sources:
        assert "\ncnp.import_array()\n" in source.read_text(), source


def test_filters_of_warnings_are_not_changed() -> None:
    """They are the process's, so changing them for a while would confuse what threads see."""
    for source in HERE.rglob("*.py"):
        if source.relative_to(HERE).parts[0] in ("cli", "selftest"):
            continue  # commands, which have no other threads; and one call at a time
        for node in ast.walk(ast.parse(source.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            assert name not in ("catch_warnings", "simplefilter", "filterwarnings"), source


def test_wheels_and_ci_are_for_the_pythons_that_are_promised() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, wheels = config["project"], config["tool"]["cibuildwheel"]["build"]
    named = " ".join(project["classifiers"])
    promised = [int(minor) for minor in re.findall(r"Python :: 3\.(\d+)", named)]
    assert promised == [*range(promised[0], promised[-1] + 1)]
    assert project["requires-python"] == f">=3.{promised[0]}"
    assert [int(minor) for each in wheels for minor in re.findall(r"cp3(\d+)-", each)] == promised
    has_no_gil = [each for each in wheels if each.endswith("t-*")]
    assert bool(has_no_gil) == ("Free Threading" in named)
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    (line,) = re.findall(r"python: \[.*\]", workflow)
    versions = re.findall(r'"3\.(\d+t?)"', line)
    assert {str(promised[0]), str(promised[-1])} <= {*versions}
    assert {f"cp3{each}-*" for each in versions} <= {*wheels}


def test_typed() -> None:
    for package in (tfopt, tfopt_ref):
        assert (Path(package.__file__).parent / "py.typed").exists()

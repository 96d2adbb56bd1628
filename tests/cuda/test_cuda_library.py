"""Loading the CUDA library: one line says what is missing, and imports never fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from host_library import compiler

import tfopt
from tfopt.cuda import library
from tfopt.rules import RULES

#: A library without a device, in C; RULE_COUNT and so on make it fit or not.
STUB = """
static const char *names[] = {%s};
static const int arrays[] = {%s}, scalars[] = {%s};
int tfopt_cuda_abi(void) { return ABI; }
int tfopt_cuda_rules(void) { return N_RULES; }
const char *tfopt_cuda_rule(int i, int *a, int *s) {
    *a = arrays[i]; *s = scalars[i]; return names[i];
}
int tfopt_cuda_devices(int *n) { *n = DEVICES; return 0; }
int tfopt_cuda_versions(int *driver, int *runtime) {
    *driver = DRIVER; *runtime = 13000; return 0;
}
int tfopt_cuda_try(void) { return TRY; }
const char *tfopt_cuda_error(int code) { return "no kernel image"; }
#ifndef INCOMPLETE
int tfopt_cuda_rows(void) { return 0; }
#endif
"""
#: What is loaded, and not called by a test.
REST = [f for f in library._FUNCTIONS if f != "rows" and f"tfopt_cuda_{f}(" not in STUB]
FITTING = {"ABI": library.ABI, "N_RULES": len(RULES), "DEVICES": 1, "DRIVER": 13000, "TRY": 0}

WHY_NOT = {
    "another version": ({"ABI": 99}, "has version 99, but tfopt needs"),
    "another table": ({"N_RULES": len(RULES) - 1}, "another table"),
    "no driver": ({"DRIVER": 0}, "no NVIDIA driver"),
    "an old driver": ({"DRIVER": 12020}, "driver supports CUDA 12.2, but the library needs 13.0"),
    "no device": ({"DEVICES": 0}, "no CUDA device"),
    "a device it has no code for": ({"TRY": 209}, r"no kernel image \(error 209\)"),
    "a function that is missing": ({"INCOMPLETE": 1}, "cannot be loaded.*rows"),
}


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch):
    """Let a file be the library."""

    def use_file(path: Path) -> None:
        monkeypatch.setenv("TFOPT_CUDA_LIBRARY", str(path))
        library._load.cache_clear()

    yield use_file
    library._load.cache_clear()


def stub(folder: Path, name: str = "stub", **differing: int) -> Path:
    columns = (
        ", ".join(f'"{rule.name}"' for rule in RULES),
        ", ".join(str(len(rule.slots) + 1) for rule in RULES),
        ", ".join(str(len(rule.scalars)) for rule in RULES),
    )
    source, made = folder / "stub.c", folder / f"{name}.so"  # a loaded file's name stays its own
    rest = "".join(f"int tfopt_cuda_{name}(void) {{ return 0; }}\n" for name in REST)
    source.write_text(STUB % columns + rest)
    defined = [f"-D{name}={value}" for name, value in {**FITTING, **differing}.items()]
    subprocess.run(
        [str(compiler()), "-x", "c", "-w", "-shared", "-fPIC", *defined, str(source), "-o", made],
        check=True,
    )
    return made


def test_a_fitting_library(use, tmp_path: Path) -> None:
    use(stub(tmp_path))
    assert tfopt.cuda.why_not() is None
    assert tfopt.cuda.is_available()
    tfopt.cuda.synchronize()


@pytest.mark.parametrize("name", WHY_NOT)
def test_why_not(use, tmp_path: Path, name: str) -> None:
    differing, message = WHY_NOT[name]
    use(stub(tmp_path, **differing))
    assert not tfopt.cuda.is_available()
    why = tfopt.cuda.why_not()
    assert why and "\n" not in why
    with pytest.raises(library.LibraryError, match=message):
        tfopt.cuda.synchronize()


def test_no_library(use, tmp_path: Path) -> None:
    use(tmp_path / "none.so")
    assert "built without CUDA" in (tfopt.cuda.why_not() or "")


def test_a_file_that_is_no_library(use, tmp_path: Path) -> None:
    file = tmp_path / "text.so"
    file.write_text("text")
    use(file)
    assert "cannot be loaded" in (tfopt.cuda.why_not() or "")


def test_a_table_in_another_order(use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(stub(tmp_path))
    monkeypatch.setattr(library, "RULES", RULES[::-1])
    assert "another table" in (tfopt.cuda.why_not() or "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child(use, tmp_path: Path) -> None:
    """CUDA does not survive a fork; the child says so, unless the parent had not begun."""
    use(stub(tmp_path))
    program = (
        "import os, sys, tfopt\n"
        "if 'used' in sys.argv: assert tfopt.cuda.is_available()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    print(tfopt.cuda.why_not(), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    for argument, expected in (("used", "spawn"), ("not", "None")):
        done = subprocess.run(
            [sys.executable, "-c", program, argument], capture_output=True, text=True, check=True
        )
        assert expected in done.stdout


def test_import_does_not_load_it() -> None:
    program = "import sys, tfopt; print([m for m in sys.modules if m.startswith('tfopt.cuda')])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_info_says_it(use, tmp_path: Path) -> None:
    use(stub(tmp_path, DRIVER=0))
    assert tfopt.core.versions.versions()["cuda"] == "there is no NVIDIA driver"
    use(stub(tmp_path, "another"))
    assert tfopt.core.versions.versions()["cuda"] == "available"

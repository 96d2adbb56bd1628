"""What a build takes over from the last one depends on contents alone."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).parents[2] / "tfopt/kernels/building/reuse.py"


@pytest.fixture
def reuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module, in an empty folder."""
    spec = importlib.util.spec_from_file_location("reuse", SOURCE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    return module


def test_a_digest_is_of_contents_and_settings(reuse: ModuleType) -> None:
    for name, text in (("a", "1"), ("b", "2"), ("c", "1")):
        Path(name).write_text(text)
    found = reuse.digest(["a", "b"], ["-O2"])
    os.utime("a", (1, 1))
    assert reuse.digest(["c", "b"], ["-O2"]) == found
    others = [(["b", "a"], ["-O2"]), (["a"], ["-O2"]), (["a", "b"], ["-O3"])]
    assert found not in [reuse.digest(files, flags) for files, flags in others]


def test_what_is_made_of_the_same_is_taken_over(reuse: ModuleType) -> None:
    target = Path("lib/pkg/module.so")
    assert not reuse.restored("pkg.module", "of-1", target)
    target.parent.mkdir(parents=True)
    target.write_bytes(b"first")
    reuse.keep("pkg.module", "of-1", target)
    target.write_bytes(b"damaged")
    assert not reuse.restored("pkg.module", "of-2", target)
    assert not reuse.restored("pkg.other", "of-1", target)
    assert reuse.restored("pkg.module", "of-1", target)
    assert target.read_bytes() == b"first"
    target.unlink()
    target.parent.rmdir()
    assert reuse.restored("pkg.module", "of-1", target)
    before = target.stat().st_mtime_ns
    assert reuse.restored("pkg.module", "of-1", target)
    assert target.stat().st_mtime_ns == before  # what is right is not written again


def test_the_latest_are_kept(reuse: ModuleType) -> None:
    target = Path("module.so")
    for k in range(reuse.MOST + 2):
        target.write_bytes(bytes([k]))
        reuse.keep("module", f"of-{k}", target)
        os.utime(reuse.KEPT / f"module-of-{k}", (k, k))
    found = [reuse.restored("module", f"of-{k}", target) for k in range(reuse.MOST + 2)]
    assert found == [False] * 2 + [True] * reuse.MOST


def test_a_step_is_noted_once_it_is_complete(reuse: ModuleType) -> None:
    assert not reuse.is_noted("translated", "of-1")
    reuse.note("translated", "of-1")
    assert reuse.is_noted("translated", "of-1")
    assert not reuse.is_noted("translated", "of-2")
    reuse.note("translated", None)  # it begins
    assert not reuse.is_noted("translated", "of-1")

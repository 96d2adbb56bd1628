"""Builds a copy of the checkout that holds many mutants."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from campaign.mutants.draw import ROOT, drawn
from campaign.mutants.groups import Group
from campaign.mutants.schemata import HEADER, MODULE, with_mutants
from campaign.mutants.sites import Mutant

__all__ = ["built"]

#: A message of Cython's compiler about a line.
MESSAGE = re.compile(r"^(tfopt/\S+\.(?:pyx|pxd|pxi)):(\d+):\d+: ", re.MULTILINE)
#: What is changed in the copy besides: it has no CUDA sources, rendered files stay as they are
#: mutated, and a child of a server computes on several threads, since the server has no threads
#: that could be lost.
CHANGES = {
    "setup.py": (
        ('write(CUDA / "rules.h", TRANSLATOR', "(lambda *_: None)(CUDA, lambda: TRANSLATOR"),
        (
            '    if not target.exists() or target.read_text("utf-8") != source:\n',
            "    if target.exists() and 'tfopt_mutated' in target.read_text('utf-8'):\n"
            "        return str(target)\n"
            '    if not target.exists() or target.read_text("utf-8") != source:\n',
        ),
    ),
    "tfopt/kernels/platform/runtime.pyx": (
        (
            "in_forked_child(_after_fork)\n",
            "cdef void _unless_served() noexcept nogil:\n"
            "    if not tfopt_served():\n"
            "        _after_fork()\n\n"
            "in_forked_child(_unless_served)\n",
        ),
    ),
}


#: Without other instruction sets, a build takes half as long.
ALONE = (('X86 = sysconfig.get_platform().endswith(("x86_64", "amd64"))', "X86 = False"),)


def built(
    folder: Path, seed: int, count: int, instruction_set: str
) -> list[tuple[int, Group, Mutant]]:
    """Build the mutants of a seed in a folder; return them with their numbers, from 1."""
    kept = folder / "stillborn.json"
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / "copy"
    _bring(copy)
    while True:
        stillborn = json.loads(kept.read_text()) if kept.exists() else []
        mutants = drawn(seed, count, stillborn, instruction_set)
        chosen = [(k + 1, *one) for k, one in enumerate(mutants)]
        _write(copy, chosen, instruction_set)
        faults = _compile(folder, copy)
        if not faults:
            return chosen
        lost = {mutant.key for _, _, mutant in _at(copy, faults, chosen)}
        if not lost:
            raise SystemExit(f"the copy does not compile: {faults}")
        print(f"{len(lost)} mutants do not compile", flush=True)
        kept.write_text(json.dumps(sorted({*stillborn, *lost}), indent=1))


def _bring(copy: Path) -> None:
    """Copy what is new in the checkout, except what is mutated."""
    ours = {copy / file for file in {*_written(copy), *CHANGES}}

    def if_new(source: str, target: str) -> str:
        there = Path(target)
        known = there in ours or (
            there.exists() and there.read_bytes() == Path(source).read_bytes()
        )
        return target if known and there.exists() else shutil.copy2(source, target)

    ignored = shutil.ignore_patterns("*.so*", "*.c", "build", ".*", "_build", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=ignored, copy_function=if_new, dirs_exist_ok=True)
    for name, text in (("tfopt_mutants.py", MODULE), ("tfopt/kernels/platform/mutants.h", HEADER)):
        if not (copy / name).exists() or (copy / name).read_text() != text:
            (copy / name).write_text(text)


def _write(copy: Path, chosen: list[tuple[int, Group, Mutant]], instruction_set: str) -> None:
    """Write all files that are mutated, or were in an earlier round."""
    files: dict[str, list[tuple[int, Mutant]]] = {}
    for number, _, mutant in chosen:
        files.setdefault(mutant.file, []).append((number, mutant))
    for file in {*files, *CHANGES, *_written(copy)}:
        path = ROOT / file
        text = path.read_text(encoding="utf-8")
        mutants = files.get(file, [])
        if mutants or file == "tfopt/kernels/platform/runtime.pyx":
            text = with_mutants(text, mutants, path.suffix != ".py")
        changes = CHANGES.get(file, ())
        if file == "setup.py" and instruction_set == "baseline":
            changes += ALONE
        for old, new in changes:
            if text.count(old) != 1:
                raise SystemExit(f"{file} has changed: {old}")
            text = text.replace(old, new)
        target = copy / file
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")
    (copy / "written.json").write_text(json.dumps(sorted(files)))


def _written(copy: Path) -> list[str]:
    listed = copy / "written.json"
    found: list[str] = json.loads(listed.read_text()) if listed.exists() else []
    return found


def _compile(folder: Path, copy: Path) -> list[tuple[str, int]]:
    """Compile what has changed; return the lines that Cython refuses."""
    compiler = folder / "cc"
    cached = ROOT / ".ci/cc" if "TFOPT_CI_CACHE" in os.environ else "cc"
    compiler.write_text(f'#!/bin/sh\nexec {cached} "$@" -O1 -w\n')
    compiler.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=copy,
        env={**os.environ, "CC": str(compiler), "TFOPT_CUDA": "0"},
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return []
    said = done.stdout + done.stderr
    (folder / "build.log").write_text(said)
    faults = [(file, int(line)) for file, line in MESSAGE.findall(said)]
    if not faults:
        raise SystemExit(said[-3000:])
    return faults


def _at(
    copy: Path, faults: list[tuple[str, int]], chosen: list[tuple[int, Group, Mutant]]
) -> list[tuple[int, Group, Mutant]]:
    """Return the mutants at lines of the copy: numbers are in the line, or in the one before."""
    numbers = set()
    for file, line in faults:
        lines = (copy / file).read_text(encoding="utf-8").splitlines()
        for k in range(line - 1, max(-1, line - 12), -1):  # a mutant may go over several lines
            found = re.findall(r"tfopt_mutated\((\d+)\)", lines[k])
            if found:
                numbers |= {*map(int, found)}
                break
    return [one for one in chosen if one[0] in numbers]

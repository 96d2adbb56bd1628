"""Draws mutants: those of a seed are the same as long as their lines are."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from campaign.mutants.groups import SETS, Group
from campaign.mutants.sites import Mutant, mutants_of

__all__ = ["ROOT", "all_mutants", "drawn"]

ROOT = Path(__file__).resolve().parents[3]
#: So that a line with many operators does not stand for its file.
MOST_OF_A_LINE = 2
#: The loops around the rules are rendered from a template, each many times.
RENDERED, REPEATED = "tfopt/kernels/update/steps_baseline.pyx", 16


def all_mutants(instruction_set: str = "baseline") -> dict[str, list[Mutant]]:
    """Return the mutants of each group; a file belongs to the first that names it."""
    taken: set[Path] = set()
    found = {}
    for group in SETS[instruction_set]:
        paths = {path for pattern in group.sources for path in ROOT.glob(pattern)}
        ours = sorted(path for path in paths - taken if _is_source(path))
        taken |= paths
        found[group.name] = [mutant for path in ours for mutant in mutants_of(path, ROOT)]
    return found


def _is_source(path: Path) -> bool:
    other_sets = path.name.startswith("steps_") and path.stem != "steps_baseline"
    return path.suffix in (".py", ".pyx", ".pxd", ".pxi") and not other_sets


def drawn(
    seed: int, count: int, stillborn: Collection[str] = (), instruction_set: str = "baseline"
) -> list[tuple[Group, Mutant]]:
    """Return about `count` mutants, except those that do not compile."""
    found = []
    groups = zip(SETS[instruction_set], all_mutants(instruction_set).values(), strict=True)
    for group, mutants in groups:
        wanted = round(count * group.share / 100)
        of_a_line: Counter[tuple[str, int]] = Counter()
        for mutant in _in_order(seed, mutants):
            place = (mutant.file, mutant.line)
            if wanted == 0:
                break
            if mutant.key in stillborn or of_a_line[place] == MOST_OF_A_LINE:
                continue
            of_a_line[place] += 1
            wanted -= 1
            found.append((group, mutant))
    return found


def _in_order(seed: int, mutants: list[Mutant]) -> list[Mutant]:
    """Return mutants in the order in which they are drawn: of a file, the root of their number.

    So large files, and those rendered from a table, do not stand for all.
    """
    files: dict[str, list[Mutant]] = {}
    for mutant in sorted(mutants, key=lambda mutant: _rank(seed, mutant)):
        files.setdefault(mutant.file, []).append(mutant)
    placed = []
    for file, ours in files.items():
        size = len(ours) / (REPEATED if file == RENDERED else 1)
        placed += [((k + 0.5) / size**0.5, mutant) for k, mutant in enumerate(ours)]
    return [mutant for _, mutant in sorted(placed, key=lambda one: (one[0], _rank(seed, one[1])))]


def _rank(seed: int, mutant: Mutant) -> bytes:
    return hashlib.sha256(f"{seed} {mutant.key}".encode()).digest()

"""`tfopt selftest`: compares this machine's results with recorded ones."""

from __future__ import annotations

import argparse
from typing import Any

from tfopt import selftest, threads
from tfopt.cli.files import CommandError, print_json
from tfopt.core.versions import versions
from tfopt.errors import InvalidArgumentError

__all__ = ["run"]

_SHOWN = ("tfopt", "python", "numpy", "platform", "instruction_set", "instruction_sets_available")


def run(arguments: argparse.Namespace) -> int:
    """Run `tfopt selftest`: print what was compared; return 1 if any digest differs."""
    report = {name: fact for name, fact in versions().items() if name in _SHOWN}
    compared: dict[Any, int]
    differing: dict[str, list[Any]]
    if arguments.gpu:
        (compared, differing), skipped = _compared_on_gpu(), {}
    else:
        compared, differing = _compared(sorted({1, 3, threads.get_num_threads()}))
        skipped = selftest.skipped()
    if arguments.json:
        print_json({**report, "compared": compared, "differing": differing, "skipped": skipped})
        return int(bool(differing))
    facts = {name.replace("_", " "): fact for name, fact in report.items()}
    for team, n in compared.items():
        wrong = sum(team in teams for teams in differing.values())
        where = "on the GPU" if team == "gpu" else f"threads: {team}"
        facts[where] = f"{n - wrong} of {n} digests are the recorded ones"
    how = "differs on the GPU" if arguments.gpu else "differs on threads: {}"
    facts |= {name: how.format(teams) for name, teams in differing.items()}
    facts |= {name: f"skipped, for {why}" for name, why in skipped.items()}
    for name, fact in facts.items():
        print(f"{name:<28}{', '.join(map(str, fact)) if isinstance(fact, list) else fact}")
    return int(bool(differing))


def _compared_on_gpu() -> tuple[dict[str, int], dict[str, list[str]]]:
    """Return how many digests were compared on the GPU, and which differ."""
    try:
        expected, found = selftest.recorded(), selftest.digests(device="gpu")
    except InvalidArgumentError as error:
        raise CommandError(str(error)) from None
    differing = {name: ["gpu"] for name, digest in found.items() if digest != expected.get(name)}
    return {"gpu": len(found)}, differing


def _compared(teams: list[int]) -> tuple[dict[int, int], dict[str, list[int]]]:
    """Return how many digests were compared on each number of threads, and where which differ."""
    expected, before = selftest.recorded(), threads.get_num_threads()
    compared: dict[int, int] = {}
    differing: dict[str, list[int]] = {}
    try:
        for team in teams:
            threads.set_num_threads(team)
            found = selftest.digests(offset=team % 64)
            compared[team] = len(found)
            for name, digest in found.items():
                if digest != expected.get(name):
                    differing.setdefault(name, []).append(team)
    finally:
        threads.set_num_threads(before)
    return compared, differing

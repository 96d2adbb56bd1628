"""Write the table of laws into docs/trust.md: ``python -m laws``, in tests/."""

from __future__ import annotations

import sys
from importlib import import_module

from laws.law import LAWS, TESTS, Law, covering, found, pairs

PAGE = TESTS.parent / "docs/trust.md"
BEGIN, END = "<!-- laws -->", "<!-- end of laws -->"


def factors(law: Law) -> str:
    """Return the factors of a law, each with the number of its levels."""
    named = [f"{name} {len(levels)}" for name, levels in law.factors.items()]
    return ", ".join(named + ([f"events {len(law.events)}"] if law.events else []))


def row(name: str) -> str:
    """Return the row of a law: what it says, its factors, and what an ordinary run tries."""
    law = found(name)
    says = (import_module(f"laws.{name}").__doc__ or "").partition("\n")[0].rstrip(".")
    draws = [*covering(law, seed=0)]
    covered = len(set().union(*map(pairs, draws)))
    tried = len(draws) + law.further
    return f"| `{name}` | {says} | {factors(law)} | {covered:,} | {tried:,} |"


def table() -> str:
    """Return the table of all laws."""
    head = ["| law | what it says | factors, with their levels | pairs | programs |"]
    return "\n".join([*head, "| --- | --- | --- | --- | --- |", *map(row, LAWS)])


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        sys.exit(f"{PAGE} has no place for the table")
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", encoding="utf-8")

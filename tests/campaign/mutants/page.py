"""The results, and the table of docs/trust.md: ``python -m campaign.mutants.page``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from campaign.mutants.equivalent import EQUIVALENT

__all__ = ["PAGE", "read", "survivors", "write", "written"]

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).resolve().parents[3] / "docs/trust.md"
BEGIN, END = "<!-- mutants -->", "<!-- end of mutants -->"


def read() -> dict[str, Any]:
    """Return the results of the last run."""
    run: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return run


def write(report: dict[str, Any]) -> None:
    """Write results."""
    text = json.dumps(report, indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n", encoding="utf-8")


def survivors() -> list[dict[str, Any]]:
    """Return the mutants that survived, and are not named as equivalent."""
    return [mutant for mutant in read()["survived"] if mutant["key"] not in EQUIVALENT]


def table() -> str:
    """Return the table of the groups, and what survived."""
    run = read()
    lines = ["| mutants of | tried | killed | equivalent | survived |"]
    lines.append("| --- | --- | --- | --- | --- |")
    groups: dict[str, list[int]] = {}
    for name, (tried, killed) in run["files"].items():
        group, _, file = name.partition(": ")
        ours = [mutant for mutant in run["survived"] if mutant["key"].startswith(f"{file}::")]
        equivalent = sum(mutant["key"] in EQUIVALENT for mutant in ours)
        row = (tried, killed, equivalent, len(ours) - equivalent)
        groups[group] = [a + b for a, b in zip(groups.get(group, [0] * 4), row, strict=True)]
    groups["all"] = [sum(column) for column in zip(*groups.values(), strict=True)]
    lines += [f"| {name} | {' | '.join(map(str, row))} |" for name, row in groups.items()]
    command = f"python -m campaign.mutants --seed {run['seed']} --count {run['count']}"
    lines += ["", f"*{run['date']} at {run['commit']}:* `{command}`"]
    named = survivors()
    if named:
        lines += ["", "Survived:", ""]
        lines += [f"- line {mutant['line']} of `{mutant['key']}`" for mutant in named]
    return "\n".join(lines)


def written(page: str) -> str:
    """Return the page with the table between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

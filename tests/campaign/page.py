"""Write the table of docs/trust.md from the results of a run: ``python -m campaign.page``."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = Path(__file__).with_name("results.json"), ROOT / "docs/trust.md"
BEGIN, END = "<!-- campaign -->", "<!-- end of campaign -->"


def table() -> str:
    """Return the table of the results, with what they were measured on."""
    run = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = ["| check | a case is | tried | lost |", "| --- | --- | --- | --- |"]
    for check in run["checks"]:
        tried, lost = f"{check['tried']:,}", len(check["lost"])
        lines.append(f"| `{check['check']}` | {check['tries']} | {tried} | {lost} |")
    seconds = sum(check["seconds"] for check in run["checks"])
    sets = ", ".join(run["sets"])
    about = f"{run['date']} at {run['commit']}, {seconds / 60:.0f} minutes; on {sets}"
    command = f"python -m campaign --seconds {run['seconds']:.0f} --seed {run['seed']}"
    return "\n".join([*lines, "", f"*{about}:* `{command}`"])


def written(page: str) -> str:
    """Return the page with the table between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

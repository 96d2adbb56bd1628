"""The command: ``python -m campaign.mutants [--seconds N] [--seed S] [--count N] [--sample]``.

It builds a copy of this checkout, beside it, with the mutants of the seed, and runs them until the
time is over; begun again, it goes on. Verdicts are kept there by the mutants' lines, so that after
a change only what has changed is tried again, and what survived.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from campaign.mutants import page
from campaign.mutants.build import built
from campaign.mutants.draw import ROOT
from campaign.mutants.equivalent import EQUIVALENT
from campaign.mutants.groups import SETS, Group, test_files
from campaign.mutants.sites import Mutant

#: The seconds that the tests of a mutant may take without it: first, and as long as it survives.
PATIENCE = (2.0, 8.0, 60.0)
Chosen = list[tuple[int, Group, Mutant]]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _serve(
    folder: Path,
    instruction_set: str,
    name: str,
    numbers: list[int],
    chosen: Chosen,
    most: float = 0.0,
    sample: bool = False,
) -> Server:
    """Start a server that runs some mutants, or records what tests reach if there are none."""
    own = folder / name
    own.mkdir(exist_ok=True)
    (own / "verdicts").write_text("")
    copy = folder / "copy"
    keys = "\n".join(mutant.key for _, _, mutant in chosen)
    files = test_files(copy / "tests")
    job = {
        "folder": str(own),
        "record": str(folder / f"record{'.sample' * sample}.json"),
        "sample": sample,
        "mutants": numbers,
        "most": most,
        "anew": most == PATIENCE[-1],
        "tests": {str(file): _digest(file.read_bytes()) for file in files},
        "numbering": _digest(keys.encode()),
    }
    (own / "job.json").write_text(json.dumps(job))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(copy), str(copy / "tests")]),
        "TFOPT_CPU": instruction_set,
        "HYPOTHESIS_PROFILE": "gate",
        "TMPDIR": str(own),
    }
    with (own / "said").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "campaign.mutants.server", str(own / "job.json")],
            cwd=copy,
            env=environment,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    return Server(process, own)


class Server(NamedTuple):
    """A process, and its folder."""

    process: subprocess.Popen[bytes]
    folder: Path

    def verdicts(self, end: float) -> list[dict[str, Any]]:
        """Wait for it, and return its verdicts."""
        try:
            self.process.wait(timeout=max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait()
        return [json.loads(line) for line in (self.folder / "verdicts").read_text().splitlines()]


def _report(chosen: Chosen, verdicts: dict[str, Any], seed: int, count: int) -> dict[str, Any]:
    """Return what the page is made of: how many were tried and killed, and which survived."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    files: dict[str, list[int]] = {}
    survived = []
    for _, group, mutant in chosen:
        counts = files.setdefault(f"{group.name}: {mutant.file}", [0, 0])
        if mutant.key in verdicts or mutant.key in EQUIVALENT:  # which are not tried again
            by = verdicts.get(mutant.key)
            counts[0] += 1
            counts[1] += by is not None
            if by is None:
                survived.append(mutant)
    return {
        "date": date.today().isoformat(),
        "commit": commit.stdout.strip(),
        "seed": seed,
        "count": count,
        "files": files,
        "survived": [{"line": mutant.line, "key": mutant.key} for mutant in survived],
    }


def main(arguments: list[str] | None = None) -> int:
    """Build, run, and write the results; return how many survivors are not named equivalent."""
    parser = argparse.ArgumentParser(prog="python -m campaign.mutants", description=__doc__)
    parser.add_argument("--seconds", type=float, default=36000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--only", default="*", help="a pattern of files")
    parser.add_argument("--set", choices=SETS, default="baseline", help="of instructions")
    parser.add_argument("--again", action="store_true", help="also try what was killed before")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--sample", action="store_true", help="only what pytest runs by default")
    parser.add_argument("--out", action="store_true", help="write the results that the page shows")
    parser.add_argument("--folder", type=Path, help="for the copy; by default beside the checkout")
    options = parser.parse_args(arguments)
    ending = "" if options.set == "baseline" else f".{options.set}"
    folder = options.folder or ROOT.with_name(f"{ROOT.name}.mutants{ending}")
    end = time.monotonic() + options.seconds
    chosen = built(folder, options.seed, options.count, options.set)
    print(f"{len(chosen)} mutants", flush=True)
    kept = folder / "verdicts.json"
    verdicts: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    mutants = {number: mutant for number, _, mutant in chosen}
    numbers = [
        number
        for number, mutant in mutants.items()
        if (options.again or verdicts.get(mutant.key) is None)
        and mutant.key not in EQUIVALENT
        and fnmatch.fnmatch(mutant.file, options.only)
    ]
    if numbers:
        _serve(folder, options.set, "recorder", [], chosen, sample=options.sample).verdicts(end)
    for most in PATIENCE:
        shares = [numbers[k :: options.jobs] for k in range(options.jobs)]
        servers = [
            _serve(folder, options.set, f"server{k}", share, chosen, most, options.sample)
            for k, share in enumerate(shares)
            if share
        ]
        numbers = []
        for server in servers:
            for verdict in server.verdicts(end):
                mutant = mutants[verdict["number"]]
                verdicts[mutant.key] = verdict["by"]
                if verdict["by"] is None:
                    numbers.append(verdict["number"])
        kept.write_text(json.dumps(verdicts, indent=1))
        print(f"{len(numbers)} survived {most:.0f} s of tests", flush=True)
    for number in numbers:
        print(f"survived: {mutants[number].key} (line {mutants[number].line})")
    report = _report(chosen, verdicts, options.seed, options.count)
    if options.out and options.set == "baseline":
        page.write(report)
    tried, killed = (sum(counts[k] for counts in report["files"].values()) for k in (0, 1))
    print(f"{len(chosen)} made, {tried} tried, {killed} killed")
    return len(report["survived"])


if __name__ == "__main__":
    sys.exit(min(1, main()))

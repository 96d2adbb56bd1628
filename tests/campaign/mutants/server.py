"""A pytest that collects its tests once, and runs those that reach a mutant in a fork for each.

It runs in the copy: ``python -m campaign.mutants.server JOB``, where the job is a JSON file that
names the tests and the mutants. The first fork runs all tests without a mutant and records the
mutants that each reaches. A mutant is killed by a test that fails, a process that dies, or one that
takes much longer than it did. What survives, and was reached when modules were imported, is tried
again in a process that imports them with the mutant.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from campaign.mutants.schemata import Page

#: Seconds for a test that took none, and how many times as long others may take as without mutants.
PATIENCE, SLOWER = 20.0, 10.0
#: The memory of a test's process: a mutant may ask for any.
MEMORY = 8 * 2**30


class Server:
    """The plugin that runs the loop."""

    def __init__(self, job: dict[str, Any], page: Page) -> None:
        self._job, self._page = job, page
        self._folder = Path(job["folder"])
        self._progress = self._folder / "progress"
        self._failed: list[str] = []
        self._kills: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self._failed.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the mutants instead of the tests."""
        if session.testsfailed:
            raise SystemExit("tests cannot be collected")
        at_import = {*self._page.reached()}
        items = {item.nodeid: item for item in session.items}
        record = self._recorded(items)
        for number in self._job["mutants"]:
            reaching = self._chosen(number, record)
            begun = time.monotonic()
            by = self._fate(number, [items[name] for name in reaching], record)
            if by is None and number in at_import and self._job["anew"]:
                names = [*reaching, *self._chosen(None, record)]
                by = self._anew(number, [*dict.fromkeys(names)])
            verdict = {
                "number": number,
                "by": by,
                "tests": len(reaching),
                "imported": number in at_import,
                "seconds": round(time.monotonic() - begun, 2),
            }
            with (self._folder / "verdicts").open("a") as file:
                file.write(json.dumps(verdict) + "\n")
        return True

    def _chosen(self, number: int | None, record: dict[str, tuple[float, set[int]]]) -> list[str]:
        """Return tests that look for a mutant: as many as take the seconds it is given.

        Those come first that reach few mutants, and so are about this one, and of these the
        shortest. For what is done at import, they are the shortest of each file.
        """
        by_file: Counter[str] = Counter()
        ranks = {}
        for name, (seconds, reached) in sorted(record.items(), key=lambda entry: entry[1][0]):
            if number is None:
                file = name.partition("::")[0]
                ranks[name] = by_file[file], seconds
                by_file[file] += 1
            elif number in reached:
                ranks[name] = len(reached), seconds
        chosen, left = [], self._job["most"]
        for name in sorted(ranks, key=lambda name: ranks[name]):
            if record[name][0] <= left or not chosen:
                left -= record[name][0]
                chosen.append(name)
        return sorted(chosen, key=lambda name: -self._kills.get(name, 0))

    def _recorded(self, items: dict[str, pytest.Item]) -> dict[str, tuple[float, set[int]]]:
        """Return of each test that passes its seconds and the mutants that it reaches."""
        file, new = Path(self._job["record"]), self._folder / "record.new"
        tests = {os.path.relpath(name): digest for name, digest in self._job["tests"].items()}
        known = json.loads(file.read_text()) if file.exists() else {}
        done: dict[str, Any] = {}
        if known.get("numbering") == self._job["numbering"]:
            same = {name for name, digest in known["tests"].items() if tests.get(name) == digest}
            done = {k: v for k, v in known["entries"].items() if k.partition("::")[0] in same}
        for _ in range(20):  # a test that dies or hangs without a mutant is left out
            rest = {name: item for name, item in items.items() if name not in done}
            if not rest:
                break
            new.write_text("")
            status, at = self._forked(lambda rest=rest: self._record(rest, new), 600)
            for line in new.read_text().splitlines():
                done |= json.loads(line)
            if status:
                done[at] = None
        if not self._job["mutants"]:
            whole = {"numbering": self._job["numbering"], "tests": tests, "entries": done}
            file.write_text(json.dumps(whole))
        return {
            name: (entry[0], {*entry[1]})
            for name, entry in done.items()
            if entry is not None and name in items
        }

    def _record(self, items: dict[str, pytest.Item], to: Path) -> None:
        self._page.reached()
        with to.open("w") as file:
            for name, item, following in _in_turn(items.values()):
                self._note(name)
                begun = time.monotonic()
                self._failed.clear()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                took = round(time.monotonic() - begun, 4)
                reached = self._page.reached()
                file.write(json.dumps({name: None if self._failed else [took, reached]}) + "\n")
                file.flush()

    def _fate(
        self, number: int, items: list[pytest.Item], record: dict[str, tuple[float, set[int]]]
    ) -> str | None:
        """Return what a mutant is killed by."""
        if not items:
            return None
        slowest = max(record[item.nodeid][0] for item in items)
        self._page.choose(number)
        status, at = self._forked(lambda: self._run(items), PATIENCE + SLOWER * slowest)
        self._page.choose(0)
        if status == 0:
            return None
        self._kills[at] = self._kills.get(at, 0) + 1
        return f"{at}{_how(status)}"

    def _run(self, items: list[pytest.Item]) -> None:
        for name, item, following in _in_turn(items):
            self._note(name)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                os._exit(1)

    def _anew(self, number: int, names: list[str]) -> str | None:
        """Run tests in a process that imports modules with the mutant."""
        page = Page(self._folder / "page_anew")
        page.choose(number)
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        run = subprocess.Popen(
            [*command, *names],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = run.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            _end(run.pid)
            run.communicate()  # or its end would be a warning in the next mutants' tests
            said = "takes too long"
        _end(run.pid)
        os.environ["TFOPT_MUTANTS"] = str(self._page.path)
        if run.returncode == 0:
            return None
        named = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return " ".join([*(named or [said[-200:]])[:1], "(at import)"])

    def _note(self, name: str) -> None:
        with self._progress.open("a") as file:
            file.write(name + "\n")

    def _forked(self, work: Callable[[], None], patience: float) -> tuple[int, str]:
        """Do something in a child; return its status (-100 if it takes too long), and where it was.

        It takes too long if a test does.
        """
        self._progress.write_text("")
        self._page.choose(self._page.chosen, served=True)
        child = os.fork()
        if child == 0:
            os.setsid()
            code = 3
            try:
                self._page.choose(self._page.chosen)
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                work()
                code = 0
            finally:
                os._exit(code)
        size, since = 0, time.monotonic()
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            now = self._progress.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > patience:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                status = None
                break
            time.sleep(0.01)
        _end(child)
        names = self._progress.read_text().splitlines()
        code = -100 if status is None else os.waitstatus_to_exitcode(status)
        return code, names[-1] if names else ""


def _end(group: int) -> None:
    """End what a child has left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _how(status: int) -> str:
    if status == -100:
        return " (takes too long)"
    return f" (signal {-status})" if status < 0 else ""


def _in_turn(items: Any) -> Any:
    """Yield each test with its name and the one after it."""
    listed = list(items)
    for item, following in zip(listed, [*listed[1:], None], strict=True):
        yield item.nodeid, item, following


def main() -> None:
    """Run a job."""
    job = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(job["folder"])
    page = Page(folder / "page")
    options = ["-q", "-p", "no:cacheprovider", "--no-header", f"--basetemp={folder / 'tmp'}"]
    options += ["--sample"] * job["sample"]
    sys.exit(pytest.main([*options, *job["tests"]], plugins=[Server(job, page)]))


if __name__ == "__main__":
    main()

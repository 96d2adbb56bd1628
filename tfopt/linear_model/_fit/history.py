"""The history of a fit: a record of each iteration, with the reason of its solver."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tfopt.linear_model._fit.certificate import Certificate
from tfopt.linear_model.parameters import SOLVERS

__all__ = ["History"]

#: The solvers in the order of their codes in checkpoints.
CODES = list(SOLVERS)
#: The entries of a record, besides the number of the problem and the reason.
ENTRIES = ("iteration", "solver", "seconds", "objective", "gap", "certified")


class History:
    """The records of one problem.

    Parameters
    ----------
    number : int
        That of the problem.
    report : callable, optional
        Called with each record.

    Attributes
    ----------
    records : list of dict
    reasons : dict of str
        Why a solver takes iterations, for each that does.
    """

    def __init__(self, number: int, report: Callable[[dict[str, Any]], object] | None) -> None:
        self.number, self.report, self.started = number, report, time.perf_counter()
        self.records: list[dict[str, Any]] = []
        self.reasons: dict[str, str] = {}

    def explain(self, solver: str, why: str) -> None:
        """Note why a solver takes the next iterations."""
        self.reasons[solver] = f"{solver}: {why}"

    def certified(self, point: Certificate, solver: str) -> None:
        """Add the record of a certificate."""
        stated = point._replace(gap=point.stated_gap)
        self._add(solver, point.objective, stated.relative_gap, True)

    def estimated(self, solver: str, relative_gap: float) -> None:
        """Add the record of an iteration without a certificate."""
        self._add(solver, math.nan, relative_gap, False)

    def _add(self, solver: str, objective: float, gap: float, certified: bool) -> None:
        seconds = time.perf_counter() - self.started
        values = (len(self.records) + 1, solver, seconds, objective, gap, certified)
        record = self._record(values)
        self.records.append(record)
        if self.report:
            self.report(record)

    def _record(self, values: Iterable[Any]) -> dict[str, Any]:
        """Return a record with these entries, and with the reason of the solver."""
        entries = dict(zip(ENTRIES, values, strict=True))
        reason = self.reasons.get(entries["solver"], "")
        return {"problem": self.number, **entries, "reason": reason}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: a column for each entry, solvers as their codes.

        Reasons are by the numbers of the iterations from which on they hold, and the last ones by
        the names of the solvers.
        """
        columns = {name: [record[name] for record in self.records] for name in ENTRIES}
        columns["solver"] = [CODES.index(name) for name in columns["solver"]]
        changes, last = {}, None
        for record in self.records:
            if record["reason"] != last:
                changes[str(record["iteration"])] = last = record["reason"]
        history = {name: np.array(column) for name, column in columns.items()}
        return {"history": history, "reasons": changes | self.reasons}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue a history, as if no time had passed since its last record."""
        columns = {name: state["history"][name].tolist() for name in ENTRIES}
        columns["solver"] = [CODES[code] for code in columns["solver"]]
        reasons, self.records = state.get("reasons", {}), []
        for row in zip(*columns.values(), strict=True):
            solver, number = self._record(row)["solver"], str(len(self.records) + 1)
            self.reasons[solver] = reasons.get(number, self.reasons.get(solver, ""))
            self.records.append(self._record(row))
        self.reasons |= {name: text for name, text in reasons.items() if name in SOLVERS}
        seconds = self.records[-1]["seconds"] if self.records else 0.0
        self.started = time.perf_counter() - seconds

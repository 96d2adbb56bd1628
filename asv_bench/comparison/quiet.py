"""The share of the machine taken by other programs during measurements."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter, sleep

__all__ = ["BUSY", "Others", "Patience"]

#: The share of the CPUs' time from which on other programs spoil a measurement: two threads that
#: wait for each other lose a time slice whenever one of them has to give way.
BUSY = 0.05


class Others:
    """Measures from its creation on; the result is None if the system does not report it."""

    def __init__(self) -> None:
        self.started = perf_counter()
        self.before = _seconds()

    def share(self) -> float | None:
        """Return the share of CPU time taken by others, including the host of this machine."""
        now = _seconds()
        if self.before is None or now is None:
            return None
        wall = (perf_counter() - self.started) * (os.cpu_count() or 1)
        return max(0.0, (now - self.before) / wall)


class Patience:
    """A budget of seconds for waiting until other programs have finished."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def wait(self) -> bool:
        """Wait until the machine is quiet; return whether it became quiet in time."""
        while self.left > 0:
            watch = Others()
            sleep(0.5)
            self.left -= 0.5
            if (watch.share() or 0.0) <= BUSY:
                return True
        return False


def _seconds() -> float | None:
    """Return the seconds of all CPUs that were neither idle nor of this process or its children."""
    try:
        first, *fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = (int(x) for x in fields[:8])
    busy = (user + nice + system + sum(interrupts_and_stolen)) / os.sysconf("SC_CLK_TCK")
    own = os.times()
    return busy - sum(own[:4]) if first == "cpu" else None

"""Digests of results computed in various ways, compared with the recorded ones."""

from __future__ import annotations

import os

import numpy as np
from common.selftest_digests import digests

import tfopt
from campaign.calls import one
from campaign.check import drawn
from tfopt import selftest


def _case(random: np.random.Generator) -> int:
    """A digest of a rule, clipping, SDCA or storage, in any environment: is the recorded one."""
    names = random.choice([*selftest.recorded()], 6, replace=False).tolist()
    environment = {
        "OMP_DYNAMIC": one(random, ("true", "false")),
        "OMP_WAIT_POLICY": one(random, ("passive", "active")),
        "OMP_NUM_THREADS": str(random.integers(1, 9)),
        "OMP_SCHEDULE": one(random, ("static,1", "dynamic,7", "guided")),
        "OMP_PROC_BIND": one(random, ("true", "false")),
        "PYTHONMALLOC": one(random, ("malloc", "pymalloc")),
        "MALLOC_PERTURB_": str(random.integers(0, 256)),
    }
    if random.integers(2):
        environment["OMP_THREAD_LIMIT"] = str(random.integers(1, 5))
    cpus = sorted(os.sched_getaffinity(0))
    cpu = one(random, tfopt.kernels.available)
    way = (int(random.integers(1, 17)), int(random.integers(64)), one(random, ("", "fork")))
    os.sched_setaffinity(0, cpus[: int(random.integers(1, len(cpus) + 1))])
    try:
        found = digests(cpu, (*way, environment), names)
    finally:
        os.sched_setaffinity(0, cpus)
    recorded = selftest.recorded()
    wrong = [name for name in names if found[name] != recorded[name]]
    assert not wrong, f"{wrong} differ on {cpu}, {way}, {environment}"
    return len(names)


CHECK = drawn("digests", _case)

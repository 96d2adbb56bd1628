"""The number of threads that kernels use.

The default is the number of CPUs this process may use, according to its affinity, the limits of
its control groups and ``OMP_NUM_THREADS``. A limit set later by ``threadpoolctl`` caps it as long
as it is in effect. Results never depend on the number of threads. A forked child runs on one
thread, because OpenMP's threads do not survive a fork.
"""

from __future__ import annotations

import operator
import os

from tfopt.errors import InvalidArgumentError, InvalidTypeError
from tfopt.kernels.platform import runtime

__all__ = ["get_num_threads", "openmp", "set_num_threads"]

# Not pathlib, whose import would be a tenth of this package's.
_GROUPS = "/sys/fs/cgroup"


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name)) as file:
        return file.read()


def _quota(folder: str) -> float:
    """Return the number of CPUs that a control group allows, infinity if it sets no limit."""
    try:
        granted, period = _read(folder, "cpu.max").split()  # version 2
    except (OSError, ValueError):
        try:
            granted = _read(folder, "cpu.cfs_quota_us")  # version 1
            period = _read(folder, "cpu.cfs_period_us")
        except OSError:
            return float("inf")
    try:
        cpus = float(granted) / float(period)
    except (ValueError, ZeroDivisionError):  # "max"
        return float("inf")
    return cpus if cpus > 0 else float("inf")


def _control_groups() -> list[str]:
    """Return the folders of this process's control groups and of their parents."""
    folders = [_GROUPS, os.path.join(_GROUPS, "cpu")]
    try:
        lines = _read("/proc/self", "cgroup").splitlines()
    except OSError:
        return folders
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = os.path.join(_GROUPS, "cpu") if controllers else _GROUPS
        for name in filter(None, path.split("/")):
            group = os.path.join(group, name)
            folders.append(group)
    return folders


def _usable_cpus() -> int:
    """Return the number of CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        cpus = len(os.sched_getaffinity(0))
    else:
        cpus = os.cpu_count() or 1
    quota = min(map(_quota, _control_groups()))
    return max(1, cpus if quota >= cpus else int(quota))


def set_num_threads(n: int) -> None:
    """Set the maximum number of threads per kernel.

    Parameters
    ----------
    n : int
        From 1 to 4096. More threads than CPUs are allowed, but slow.

    Raises
    ------
    InvalidTypeError
        If `n` is not an integer.
    InvalidArgumentError
        If `n` is out of range.

    Examples
    --------
    >>> import tfopt
    >>> before = tfopt.threads.get_num_threads()
    >>> tfopt.threads.set_num_threads(1)
    >>> tfopt.threads.get_num_threads()
    1
    >>> tfopt.threads.set_num_threads(before)
    """
    try:
        count = operator.index(n)
    except TypeError:
        raise InvalidTypeError(f"n must be an integer, not {type(n).__name__}") from None
    if not 1 <= count <= 4096:
        raise InvalidArgumentError(f"n must be between 1 and 4096, not {count}")
    runtime.set_threads(count)


def get_num_threads() -> int:
    """Return how many threads a large kernel call would use now."""
    return runtime.get_threads()


def openmp() -> bool:
    """Return whether the kernels were built with OpenMP; otherwise they use one thread."""
    return runtime.has_openmp()


runtime.set_threads(min(_usable_cpus(), runtime.allowed_threads()))


def __dir__() -> list[str]:
    return __all__

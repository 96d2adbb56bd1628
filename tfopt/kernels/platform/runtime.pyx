"""Settings of all kernels: the number of threads, denormals, and the effect of a fork."""

from libc.string cimport memset

from tfopt.errors import InvalidArgumentError

from tfopt.kernels.platform.machine cimport (
    TFOPT_CAN_FLUSH, TFOPT_OPENMP, cpu_has_v3, cpu_has_v4, in_forked_child, omp_get_max_threads,
    omp_get_wtime,
)

cdef int _threads = 1
# The limit of OpenMP at import. A lower limit later (threadpoolctl, omp_set_num_threads) was set
# on purpose and caps the count; a higher one does not.
cdef int _allowed_at_import = omp_get_max_threads()
cdef int _flush = 1
# OpenMP's threads do not survive a fork, and a parallel region in the child would wait for them
# forever, whichever library started them. So a forked child runs on one thread.
cdef int _forked = 0


cdef void _after_fork() noexcept nogil:
    global _forked
    _forked = 1

in_forked_child(_after_fork)


cdef int flush_denormals() noexcept nogil:
    return _flush


cdef int team_size(Py_ssize_t elements, int operands) noexcept nogil:
    """The number of threads for an update; all operands but one are also written."""
    cdef Py_ssize_t worth = elements * (2 * operands - 1) // MOVED
    if worth < 2 or _threads == 1 or _forked or not TFOPT_OPENMP:
        return 1
    cdef int allowed = omp_get_max_threads()
    cdef int threads = _threads
    if allowed < _allowed_at_import and allowed < threads:
        threads = allowed
    return <int>worth if worth < threads else threads


# ---- busy machines

# At the end of a parallel region its caller waits for the other threads, and where other programs
# keep the cores busy that takes whole time slices of theirs: milliseconds for a call of
# microseconds. So there are accounts of the seconds that threads save, one for each size of calls,
# as what ruins a short call is little to a long one. While an account is overdrawn, calls run on
# their callers' threads alone, and try the others again after pauses that grow with the debt.
cdef struct account:
    double balance
    double alone_until

cdef enum:
    SIZES = 16          # each twice the one before

cdef account[SIZES] _saved      # of all callers; a race between two of them loses an entry
memset(_saved, 0, sizeof(_saved))

cdef double MOST_SAVED = 0.01       # so that savings of long ago do not pay for a busy machine
cdef double MOST_OWED = 0.125
cdef double PAUSE = 8               # seconds alone per second owed


cdef void _enter(account *a, double now, double saved) noexcept nogil:
    """Enter what a call has saved, or what it lost if that is negative."""
    if saved < 0 and a.balance < 0:
        saved += a.balance          # a second loss in a row doubles the debt
    a.balance = max(-MOST_OWED, min(a.balance + saved, MOST_SAVED))
    if saved < 0 and a.balance < 0:
        a.alone_until = now - PAUSE * a.balance


cdef team gather_team(Py_ssize_t elements, int operands) noexcept nogil:
    """The threads for an update: one while waiting for others does not pay."""
    cdef team t
    cdef Py_ssize_t worth = elements * operands // MOVED
    t.others = t.asked = t.began = t.ended = 0
    t.work = 0
    t.size = team_size(elements, operands)
    if t.size > 1:
        while worth > 1 and t.work < SIZES - 1:
            worth //= 2
            t.work += 1
        t.asked = omp_get_wtime()
        if t.asked < _saved[t.work].alone_until:
            t.size = 1
    return t


cdef void dismiss_team(const team *t) noexcept nogil:
    """Enter what the threads of an update that is complete have saved.

    Each thread has spared the caller a share as long as its own; but threads share caches and
    memory, so the caller alone would have taken less than all of them. Half is the estimate.
    """
    cdef double now, own, others = t.others
    if t.size > 1:
        if others == 0:
            others = <double>(t.size - 1) / 2
        now, own = omp_get_wtime(), t.ended - t.began
        _enter(&_saved[t.work], now, own * others - (now - t.asked - own))


def pauses(calls):
    """When the threads would be tried again after each of some calls, with an account of their own.

    Parameters
    ----------
    calls : iterable of (float, float)
        When each ends, and the seconds that it has saved.
    """
    cdef account a = account(0, 0)
    times = []
    for now, saved in calls:
        _enter(&a, now, saved)
        times.append(a.alone_until)
    return times


# ---- settings

def set_threads(int threads):
    global _threads
    if threads < 1:
        raise InvalidArgumentError(f"there must be at least one thread, not {threads}")
    _threads = threads


def get_threads():
    return team_size(<Py_ssize_t>MOVED * 4096, 2)


def allowed_threads():
    return _allowed_at_import


def set_flush(bint flush):
    global _flush
    _flush = flush


def get_flush():
    return bool(_flush and TFOPT_CAN_FLUSH)


def has_openmp():
    return bool(TFOPT_OPENMP)


def has_v3():
    return bool(cpu_has_v3())


def has_v4():
    return bool(cpu_has_v4())

"""Settings of all kernels: the number of threads, denormals, and the effect of a fork."""

from cython.parallel cimport parallel
from libc.math cimport ldexp
from libc.string cimport memset

from tfopt.errors import InvalidArgumentError

from tfopt.kernels.platform.machine cimport (
    TFOPT_CAN_FLUSH, TFOPT_OPENMP, cpu_has_v3, cpu_has_v4, in_forked_child, omp_get_max_threads,
    omp_get_num_threads, omp_get_thread_num, omp_get_wtime,
)
from tfopt.kernels.platform.shared_numbers cimport (
    share_double, share_int, shared_double, shared_int,
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
    share_int(&_forked, 1)

in_forked_child(_after_fork)


cdef int flush_denormals() noexcept nogil:
    return shared_int(&_flush)


cdef int team_size(Py_ssize_t elements, int operands) noexcept nogil:
    """The number of threads for an update; all operands but one are also written."""
    cdef Py_ssize_t worth = elements * (2 * operands - 1) // MOVED
    cdef int threads = shared_int(&_threads)
    if worth < 2 or threads == 1 or shared_int(&_forked) or not TFOPT_OPENMP:
        return 1
    cdef int allowed = omp_get_max_threads()
    if allowed < _allowed_at_import and allowed < threads:
        threads = allowed
    return <int>worth if worth < threads else threads


# ---- busy machines

# At the end of a parallel region its caller waits for the other threads. If other programs keep the
# cores busy, that takes whole time slices of theirs: milliseconds for a call of microseconds. So
# there are accounts of the seconds that threads save, one for each size of calls, because a delay
# that ruins a short call hardly matters to a long one. After a loss that savings do not cover there
# is a pause, in which calls run on their callers' threads only; then they try the others again.
# Pauses after losses in a row double.
cdef struct account:
    double balance
    double alone_until
    int losses          # in a row

cdef enum:
    SIZES = 16          # each twice the one before

cdef account[SIZES] _saved      # of all callers, of whom one at a time may lose an entry
memset(_saved, 0, sizeof(_saved))

cdef double TOLERATED = 1.2         # a call that takes so many times as long as alone is no loss
cdef double WAKING = 2e-4           # seconds that threads may take to wake up: no loss yet
cdef double MOST_SAVED = 0.01       # so that savings of long ago do not pay for a busy machine
cdef double PAUSE = 8               # seconds alone per second lost
cdef double LONGEST = 1             # pause


cdef void _enter(account *a, double now, double took, double alone) noexcept nogil:
    """Enter what a call took, and what it would have taken on its caller's thread alone."""
    cdef double balance = shared_double(&a.balance), pause
    cdef int losses = shared_int(&a.losses)
    if took <= TOLERATED * alone:
        balance = min(balance + max(alone - took, 0), MOST_SAVED)
        losses = 0
    else:
        balance -= took - alone
        if balance < -WAKING:
            pause = min(ldexp(-PAUSE * balance, losses), LONGEST)
            share_double(&a.alone_until, now + pause)
            balance = 0
            losses = min(losses + 1, SIZES)
    share_double(&a.balance, balance)
    share_int(&a.losses, losses)


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
        if t.asked < shared_double(&_saved[t.work].alone_until):
            t.size = 1
    return t


cdef void dismiss_team(const team *t) noexcept nogil:
    """Enter what the threads of an update that is complete have saved.

    Each thread has spared the caller a share as long as its own; but threads share caches and
    memory, so the caller alone would have taken less than all of them: however many they are, not
    more than eight further shares.
    """
    cdef double now, others = t.others
    if t.size > 1:
        if others == 0:
            others = <double>(t.size - 1) / (1 + <double>(t.size - 1) / 8)
        now = omp_get_wtime()
        _enter(&_saved[t.work], now, now - t.asked, (t.ended - t.began) * (1 + others))


cdef void run_team(team t, share_t share, const void *work) noexcept nogil:
    """Have each thread of a team do its share of some work, and return when all are done."""
    if t.size == 1:
        share(work, 0, 1)
        return
    with parallel(num_threads=t.size):      # no prange: its end would be a second barrier
        begin_share(&t)
        share(work, omp_get_thread_num(), omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)


def pauses(calls):
    """When the threads would be tried again after each of some calls, with an account of their own.

    Parameters
    ----------
    calls : iterable of (float, float, float)
        When each ends, the seconds that it took, and those that it would have taken alone.
    """
    cdef account a = account(0, 0, 0)
    times = []
    for now, took, alone in calls:
        _enter(&a, now, took, alone)
        times.append(a.alone_until)
    return times


# ---- settings

def set_threads(int threads):
    if threads < 1:
        raise InvalidArgumentError(f"there must be at least one thread, not {threads}")
    share_int(&_threads, threads)


def get_threads():
    return team_size(<Py_ssize_t>MOVED * 4096, 2)


def allowed_threads():
    return _allowed_at_import


def set_flush(bint flush):
    share_int(&_flush, flush)


def get_flush():
    return bool(shared_int(&_flush) and TFOPT_CAN_FLUSH)


def has_openmp():
    return bool(TFOPT_OPENMP)


def has_v3():
    return bool(cpu_has_v3())


def has_v4():
    return bool(cpu_has_v4())

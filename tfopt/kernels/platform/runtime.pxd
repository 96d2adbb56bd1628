# cython: language_level=3

from tfopt.kernels.platform.machine cimport omp_get_thread_num, omp_get_wtime

cdef enum:
    BLOCK = 8192        # elements in a unit of parallel work
    # Elements read and written that justify a thread: with fewer it costs more than it gains,
    # even when the pool is awake (docs/performance.md has the measurement).
    MOVED = 7 * 8192

# The threads of a call, the size of its work, and when the caller asked for them, began its own
# share and ended it. `others` is how much longer than its own share the caller would take for all
# of them, as a multiple; 0 if they are alike.
cdef struct team:
    int size, work
    double others, asked, began, ended

# What a thread of a team does.
ctypedef void (*share_t)(const void *work, int thread, int threads) noexcept nogil

# `run_team` runs all teams but those of functions of typed views, which no pointer can be to: these
# have a region of their own, which reports what its threads save as the one of `run_team` does.
cdef int flush_denormals() noexcept nogil
cdef int team_size(Py_ssize_t elements, int operands) noexcept nogil
cdef team gather_team(Py_ssize_t elements, int operands) noexcept nogil
cdef void dismiss_team(const team *t) noexcept nogil
cdef void run_team(team t, share_t share, const void *work) noexcept nogil


cdef inline team at_most(team t, Py_ssize_t threads) noexcept nogil:
    """The first threads of a team; all of them if `threads` is 0."""
    if 0 < threads < t.size:
        t.size = <int>threads
    return t


cdef inline void begin_share(team *t) noexcept nogil:
    if t.size > 1 and omp_get_thread_num() == 0:
        t.began = omp_get_wtime()


cdef inline void end_share(team *t) noexcept nogil:
    if t.size > 1 and omp_get_thread_num() == 0:
        t.ended = omp_get_wtime()


cdef inline Py_ssize_t share_of(Py_ssize_t n, int thread, int threads) noexcept nogil:
    """Where a thread's share of n elements begins, at the start of a block."""
    cdef Py_ssize_t blocks = (n + BLOCK - 1) // BLOCK
    cdef Py_ssize_t start = blocks * thread // threads * BLOCK
    return start if start < n else n

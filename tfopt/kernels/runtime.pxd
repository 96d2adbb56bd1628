# cython: language_level=3

cdef enum:
    # Elements of one unit of parallel work. Below one block a second thread costs more than it
    # brings, even when the pool is awake (docs/performance.md has the measurement).
    BLOCK = 16384

cdef int flush_denormals() noexcept nogil
cdef int team_size(Py_ssize_t elements) noexcept nogil

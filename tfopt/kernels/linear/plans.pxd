# cython: language_level=3
"""The order in which examples are visited: random numbers, shuffles, and who rests."""

from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef inline uint64_t next_number(uint64_t *state) noexcept nogil:
    """splitmix64 (Steele, Lea and Flood, 2014)."""
    cdef uint64_t z
    state[0] += <uint64_t>0x9E3779B97F4A7C15
    z = state[0]
    z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
    return z ^ (z >> 31)


cdef inline double uniform(uint64_t *state) noexcept nogil:
    """A random number in [0, 1)."""
    return (next_number(state) >> 11) * 2.0**-53


cdef inline uint64_t generator(uint64_t seed, uint64_t epoch) noexcept nogil:
    """The state of a separate generator for each seed and epoch."""
    cdef uint64_t state = seed
    state = next_number(&state) ^ epoch
    return next_number(&state)


cdef inline void shuffle(int64_t *items, Py_ssize_t n, uint64_t *state) noexcept nogil:
    """The Fisher-Yates shuffle."""
    cdef Py_ssize_t k, j
    for k in range(n - 1, 0, -1):
        j = <Py_ssize_t>(next_number(state) % <uint64_t>(k + 1))
        items[k], items[j] = items[j], items[k]


cdef inline Py_ssize_t n_buckets(Py_ssize_t n, Py_ssize_t bucket) noexcept nogil:
    """How many buckets n examples have at most."""
    return (n + 2 * (bucket - 1)) // bucket


cdef inline void shuffle_in_buckets(Py_ssize_t n, Py_ssize_t bucket, uint64_t seed,
                                    uint64_t epoch, int64_t *buckets,
                                    int64_t *plan) noexcept nogil:
    """All n examples in random order; see `visits.shuffled`. `buckets` has room for `n_buckets`."""
    cdef uint64_t state = generator(seed, epoch)
    cdef Py_ssize_t shift = <Py_ssize_t>(next_number(&state) % <uint64_t>bucket)
    cdef Py_ssize_t k, i, low, high, start = 0, size = (n + shift + bucket - 1) // bucket
    for k in range(size):
        buckets[k] = k
    shuffle(buckets, size, &state)
    for k in range(size):
        low = max(<Py_ssize_t>0, buckets[k] * bucket - shift)
        high = min(n, (buckets[k] + 1) * bucket - shift)
        for i in range(low, high):
            plan[start + i - low] = i
        shuffle(plan + start, high - low, &state)
        start += high - low


cdef inline Py_ssize_t find_awake(const uint8_t *idle, Py_ssize_t n, uint64_t sweep,
                                  int64_t *found) noexcept nogil:
    """Write the examples that a sweep visits, and return how many; see `visits.awake`."""
    cdef Py_ssize_t i, n_found = 0
    for i in range(n):
        found[n_found] = i
        n_found += (sweep + <uint64_t>i) & ((<uint64_t>1 << (idle[i] & 63)) - 1) == 0
    return n_found

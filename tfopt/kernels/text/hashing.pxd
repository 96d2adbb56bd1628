# cython: language_level=3
"""MurmurHash3 (x86, 32 bits, seed 0) of text that comes in parts."""

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef struct murmur:
    uint32_t h
    uint32_t length
    uint64_t left       # the bytes after the last whole four
    int n_left


cdef inline uint32_t rotated(uint32_t x, int by) noexcept nogil:
    return x << by | x >> (32 - by)


cdef inline uint32_t mixed(uint32_t block) noexcept nogil:
    return rotated(block * 0xCC9E2D51u, 15) * 0x1B873593u


cdef inline void mix_block(murmur *m) noexcept nogil:
    m.h = rotated(m.h ^ mixed(<uint32_t>m.left), 13) * 5 + 0xE6546B64u
    m.left >>= 32


cdef inline void feed(murmur *m, const uint8_t *text, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t k
    m.length += <uint32_t>n
    while n >= 4:
        m.left |= <uint64_t>(text[0] | <uint32_t>text[1] << 8 | <uint32_t>text[2] << 16
                             | <uint32_t>text[3] << 24) << 8 * m.n_left
        mix_block(m)
        text += 4
        n -= 4
    for k in range(n):
        m.left |= <uint64_t>text[k] << 8 * (m.n_left + k)
    m.n_left += <int>n
    if m.n_left >= 4:
        mix_block(m)
        m.n_left -= 4


cdef inline uint32_t hash_of(const murmur *m) noexcept nogil:
    """The hash of what has been fed, which may go on."""
    cdef uint32_t h = m.h ^ mixed(<uint32_t>m.left) ^ m.length
    h = (h ^ h >> 16) * 0x85EBCA6Bu
    h = (h ^ h >> 13) * 0xC2B2AE35u
    return h ^ h >> 16


cdef inline int32_t column_of(uint32_t h, uint32_t n_features, int *sign) noexcept nogil:
    """A hash's column, and the sign of its values: that of the hash as a number with a sign."""
    sign[0] = 1
    if h >> 31:
        sign[0] = -1
        h = 0 - h
    return <int32_t>(h % n_features)

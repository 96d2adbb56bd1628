"""FarmHash's 128-bit fingerprint, by which TensorFlow's SDCA identifies examples.

All arithmetic is modulo 2^64. The function is the 128-bit CityHash of 2011, which FarmHash kept
(Pike and Alakuijala, https://github.com/google/farmhash).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_Check
from cython.parallel cimport parallel
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.platform.machine cimport omp_get_num_threads, omp_get_thread_num, prefetch_line
from tfopt.kernels.platform.runtime cimport begin_share, dismiss_team, end_share, gather_team, team

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object, Py_ssize_t *) except NULL
    PyObject *PyList_GET_ITEM(object, Py_ssize_t)

ctypedef const unsigned char *text

cdef enum:
    WORTH = 16      # hashing a string takes as long as processing this many elements
    TURN = 512      # strings checked before they are hashed
    AHEAD = 16

cdef uint64_t K0 = <uint64_t>0xC3A5C85C97CB3127
cdef uint64_t K1 = <uint64_t>0xB492B66FBE98F273
cdef uint64_t K2 = <uint64_t>0x9AE16A3B2F90404F
cdef uint64_t KM = <uint64_t>0x9DDFEA08EB382D69

cdef struct pair:
    uint64_t a
    uint64_t b


cdef inline uint64_t load4(text s) noexcept nogil:
    """The little-endian number in four bytes; all machines with NumPy wheels are little-endian."""
    cdef uint32_t v = 0
    memcpy(&v, s, 4)
    return v


cdef inline uint64_t load8(text s) noexcept nogil:
    cdef uint64_t v = 0
    memcpy(&v, s, 8)
    return v


cdef inline uint64_t rotate(uint64_t v, int k) noexcept nogil:
    return v >> k | v << (64 - k)


cdef inline uint64_t fold(uint64_t v) noexcept nogil:
    return v ^ v >> 47


cdef inline uint64_t mix(uint64_t u, uint64_t v, uint64_t m) noexcept nogil:
    return fold((v ^ fold((u ^ v) * m)) * m) * m


cdef inline uint64_t hash_short(text s, uint64_t n) noexcept nogil:
    """The fingerprint of at most 16 bytes."""
    cdef uint64_t m = K2 + 2 * n, p, r
    if n >= 8:
        p = load8(s) + K2
        r = load8(s + n - 8)
        return mix(rotate(r, 37) * m + p, (rotate(p, 25) + r) * m, m)
    if n >= 4:
        return mix(n + (load4(s) << 3), load4(s + n - 4), m)
    if n > 0:
        p = s[0] + (<uint64_t>s[n >> 1] << 8)
        r = n + (<uint64_t>s[n - 1] << 2)
        return fold(p * K2 ^ r * K0) * K2
    return K2


cdef inline pair weak(text s, uint64_t a, uint64_t b) noexcept nogil:
    """Hash 32 bytes with two seeds."""
    cdef uint64_t start, z = load8(s + 24)
    cdef pair result
    a += load8(s)
    b = rotate(b + a + z, 21)
    start = a
    a += load8(s + 8) + load8(s + 16)
    result.a, result.b = a + z, b + rotate(a, 44) + start
    return result


cdef inline pair hash_medium(text s, uint64_t n, uint64_t a, uint64_t b) noexcept nogil:
    """The fingerprint of less than 128 bytes, with two seeds."""
    cdef uint64_t c, d, i
    cdef pair result
    if n <= 16:
        a = fold(a * K1) * K1
        c = b * K1 + hash_short(s, n)
        d = fold(a + (load8(s) if n >= 8 else c))
    else:
        c = mix(load8(s + n - 8) + K1, a, KM)
        d = mix(b + n, c + load8(s + n - 16), KM)
        a += d
        i = 0
        while i < n - 16:
            a = (a ^ fold(load8(s + i) * K1) * K1) * K1
            b ^= a
            c = (c ^ fold(load8(s + i + 8) * K1) * K1) * K1
            d ^= c
            i += 16
    a = mix(a, c, KM)
    b = mix(d, b, KM)
    result.a, result.b = a ^ b, mix(b, a, KM)
    return result


cdef pair hash_long(text s, uint64_t n, uint64_t x, uint64_t y) noexcept nogil:
    """The fingerprint of at least 128 bytes, with two seeds."""
    cdef uint64_t z = n * K1, i = 0, left = n % 128, back = 32
    cdef pair v, w, result
    cdef text tail
    v.a = rotate(y ^ K1, 49) * K1 + load8(s)
    v.b = rotate(v.a, 42) * K1 + load8(s + 8)
    w.a = rotate(y + z, 35) * K1 + x
    w.b = rotate(x + load8(s + 88), 53) * K1
    while i < n - left:
        x = rotate(x + y + v.a + load8(s + i + 8), 37) * K1
        y = rotate(y + v.b + load8(s + i + 48), 42) * K1
        x ^= w.b
        y += v.a + load8(s + i + 40)
        z = rotate(z + w.a, 33) * K1
        v = weak(s + i, v.b * K1, x + w.a)
        w = weak(s + i + 32, z + w.b, y + load8(s + i + 16))
        z, x = x, z
        i += 64
    x += rotate(v.a + z, 49) * K0
    y = y * K0 + rotate(w.b, 37)
    z = z * K0 + rotate(w.a, 27)
    w.a *= 9
    v.a *= K0
    while back < left + 32:         # from the end, overlapping what has already been hashed
        tail = s + (n - back)
        y = rotate(x + y, 42) * K0 + v.b
        w.a += load8(tail + 16)
        x = x * K0 + w.a
        z += w.b + load8(tail)
        w.b += v.a
        v = weak(tail, v.a + z, v.b)
        v.a *= K0
        back += 32
    x = mix(x, v.a, KM)
    y = mix(y + z, w.a, KM)
    result.a, result.b = mix(x + v.b, w.b, KM) + y, mix(x + w.b, y + v.b, KM)
    return result


cdef inline void fingerprint(text s, uint64_t n, int64_t *row) noexcept nogil:
    """Low halves 0 and 1 are avoided: they mark keys of TensorFlow's table."""
    cdef uint64_t a = K0, b = K1
    cdef pair result
    if n >= 16:
        a, b = load8(s), load8(s + 8) + K0
        s += 16
        n -= 16
    result = hash_medium(s, n, a, b) if n < 128 else hash_long(s, n, a, b)
    row[0] = <int64_t>(result.a - 2 if result.a < 2 else result.a)
    row[1] = <int64_t>result.b


# ---- many strings

cdef struct string:
    text start
    Py_ssize_t size


cdef void _hash(const string *strings, Py_ssize_t n, int64_t[:, ::1] rows,
                Py_ssize_t first) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        fingerprint(strings[i].start, strings[i].size, &rows[first + i, 0])


cdef void _hash_field(text first, Py_ssize_t stride, Py_ssize_t width, int64_t[:, ::1] rows,
                      int thread, int threads) noexcept nogil:
    cdef Py_ssize_t i, size, n = rows.shape[0]
    cdef text start
    for i in range(n * thread // threads, n * (thread + 1) // threads):
        start, size = first + i * stride, width
        while size > 0 and start[size - 1] == 0:
            size -= 1
        fingerprint(start, size, &rows[i, 0])


def of_strings(list items not None):
    """The fingerprints of bytes and str; a str is encoded as UTF-8.

    Checking and hashing alternate, so that strings are still in cache when they are hashed.

    Returns
    -------
    ndarray of int64, shape (n, 2)
    """
    cdef Py_ssize_t i, start = 0, n = len(items)
    cdef int64_t[:, ::1] rows = np.empty((n, 2), np.int64)
    cdef string[TURN] strings
    cdef object item
    while start < n:
        for i in range(min(TURN, n - start)):
            if start + i + AHEAD < n:
                prefetch_line(<const char *>PyList_GET_ITEM(items, start + i + AHEAD))
            item = <object>PyList_GET_ITEM(items, start + i)
            if PyBytes_Check(item):
                strings[i].start = <text>PyBytes_AS_STRING(item)
                strings[i].size = PyBytes_GET_SIZE(item)
            elif PyUnicode_Check(item):
                try:
                    strings[i].start = <text>PyUnicode_AsUTF8AndSize(item, &strings[i].size)
                except UnicodeEncodeError as error:
                    raise InvalidArgumentError(
                        f"input[{start + i}] is not valid UTF-8: {error}") from None
            else:
                raise InvalidTypeError(
                    f"input must be strings, and input[{start + i}] is {type(item).__name__}"
                )
        with nogil:
            _hash(strings, min(TURN, n - start), rows, start)
        start += TURN
    return np.asarray(rows)


def of_bytes(cnp.ndarray array not None):
    """The fingerprints of a NumPy vector of bytes, without the trailing zeros of padding.

    Returns
    -------
    ndarray of int64, shape (n, 2)
    """
    if cnp.PyArray_NDIM(array) != 1 or cnp.PyArray_TYPE(array) != cnp.NPY_STRING:
        raise InvalidTypeError(f"input must be a vector of bytes, not {array.dtype}")
    cdef int64_t[:, ::1] rows = np.empty((array.shape[0], 2), np.int64)
    cdef text first = <text>cnp.PyArray_DATA(array)
    cdef Py_ssize_t stride = array.strides[0], width = cnp.PyArray_ITEMSIZE(array)
    cdef team t = gather_team(array.shape[0] * WORTH, 1)
    with nogil, parallel(num_threads=t.size):
        begin_share(&t)
        _hash_field(first, stride, width, rows, omp_get_thread_num(), omp_get_num_threads())
        end_share(&t)
    dismiss_team(&t)
    return np.asarray(rows)

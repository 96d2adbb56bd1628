# cython: language_level=3
"""Cholesky's factorization. The bits of LAPACK's would depend on its number of threads."""

from libc.math cimport sqrt


cdef inline bint factorize(double *U, Py_ssize_t n, Py_ssize_t width,
                           const double *least) noexcept nogil:
    """Overwrite the upper triangle of a symmetric A, by rows, with U: U^T U = A.

    Returns whether all pivots are above the least ones; above 0, if these are NULL.
    """
    cdef Py_ssize_t i, j, k
    cdef double s, s0, s1, s2, s3
    cdef double *row
    cdef const double *r0
    cdef const double *r1
    cdef const double *r2
    cdef const double *r3
    for i in range(n):
        row, k = U + i * width, 0
        while k + 4 <= i:   # four rows above at a time, for each number of this one
            r0 = U + k * width
            r1, r2, r3 = r0 + width, r0 + 2 * width, r0 + 3 * width
            s0, s1, s2, s3 = r0[i], r1[i], r2[i], r3[i]
            for j in range(i, n):
                row[j] = row[j] - s0 * r0[j] - s1 * r1[j] - s2 * r2[j] - s3 * r3[j]
            k += 4
        while k < i:
            r0 = U + k * width
            s0 = r0[i]
            for j in range(i, n):
                row[j] -= s0 * r0[j]
            k += 1
        if not row[i] > (least[i] if least != NULL else 0):
            return False
        s = 1 / sqrt(row[i])
        for j in range(i, n):
            row[j] *= s
    return True


cdef inline void substitute(const double *U, Py_ssize_t n, Py_ssize_t width,
                            double *b) noexcept nogil:
    """Solve U^T U x = b; overwrites b by x."""
    cdef Py_ssize_t i, j
    cdef double s
    for i in range(n):
        b[i] /= U[i * width + i]
        for j in range(i + 1, n):
            b[j] -= U[i * width + j] * b[i]
    for i in range(n - 1, -1, -1):
        s = b[i]
        for j in range(i + 1, n):
            s -= U[i * width + j] * b[j]
        b[i] = s / U[i * width + i]

# cython: language_level=3
"""Sums of outer products of rows, in tiles that stay in registers, for each instruction set."""

cdef extern from "outer_products.h" nogil:
    enum:
        TILE
    void outer_products_baseline(double *A, Py_ssize_t width, Py_ssize_t n, const double *left,
                                 const double *right, Py_ssize_t rows, Py_ssize_t height,
                                 const char *next, const char *end) noexcept
    void outer_products_v3(double *A, Py_ssize_t width, Py_ssize_t n, const double *left,
                           const double *right, Py_ssize_t rows, Py_ssize_t height,
                           const char *next, const char *end) noexcept

# cython: language_level=3
"""Sums of outer products of rows, in tiles that stay in registers, for each instruction set."""

cdef extern from "outer_products.h" nogil:
    enum:
        TILE
    ctypedef void (*outer_products_t)(double *A, Py_ssize_t width, Py_ssize_t n,
                                      const double *left, const double *right, Py_ssize_t rows,
                                      Py_ssize_t height, const char *next,
                                      const char *end) noexcept
    outer_products_t outer_products_for(const char *instruction_set)
    ctypedef void (*tile_product_t)(double *A, const double *left, Py_ssize_t across,
                                    Py_ssize_t along, const double *right,
                                    Py_ssize_t rows) noexcept
    tile_product_t tile_product_for(const char *instruction_set)

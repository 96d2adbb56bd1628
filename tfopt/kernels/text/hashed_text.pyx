"""Delimited text, and Vowpal Wabbit's, into rows of hashed features, on all threads.

The text is cut at ends of rows. Each piece fills arrays of its own, which are then joined. What is
wrong with a row is for the caller to say: a fault is reported by its kind and place.
"""

from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr

import numpy as np

from tfopt.errors import InvalidArgumentError, InvalidTypeError

from tfopt.kernels.platform.machine cimport claim
from tfopt.kernels.platform.runtime cimport at_most, gather_team, run_team
from tfopt.kernels.text.delimited cimport read_fields
from tfopt.kernels.text.hashed_row cimport (
    BAD_PRODUCT, CATEGORY, LEFT_OUT, NOTHING, WRONG_COUNT, add_crosses, close_row, column,
    end_of_row, fault, grow, piece, plan, row,
)
from tfopt.kernels.text.hashing cimport feed
from tfopt.kernels.text.vowpal_wabbit cimport read_namespaces

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef enum:
    PIECE = 1 << 18         # bytes that are worth a piece of their own


cdef Py_ssize_t _cut(piece *pieces, int n, const uint8_t *start, const uint8_t *end,
                     const plan *to, bint is_last, int *used) noexcept nogil:
    """Cut the whole rows of text into at most n pieces; return how many bytes these are."""
    cdef Py_ssize_t length = (end - start + n - 1) // n
    cdef const uint8_t *first = start
    cdef const uint8_t *p = start
    cdef const uint8_t *stop
    used[0] = 0
    if not to.has_quotes and not is_last:   # any newline ends a row
        while end > start and end[-1] != c"\n":
            end -= 1
    while p < end:
        if to.has_quotes:
            stop = end_of_row(p, end, to, is_last)
            if stop == NULL:
                break
        else:
            stop = end_of_row(p + min(length, end - p - 1), end, to, True)
        p = stop + (stop < end)
        if p - start >= length or p == end:
            pieces[used[0]].start, pieces[used[0]].end = start, p
            used[0] += 1
            start = p
    if p > start:
        pieces[used[0]].start, pieces[used[0]].end = start, p
        used[0] += 1
    return p - first


cdef void _read(piece *it, const plan *to) noexcept nogil:
    """Read the rows of a piece; the first fault ends it, unless faults are skipped."""
    cdef const uint8_t *p = it.start
    cdef const uint8_t *stop
    cdef const uint8_t *end
    cdef Py_ssize_t first
    cdef row one
    cdef fault wrong
    while p < it.end:
        stop = end_of_row(p, it.end, to, True)
        end = stop - (stop > p and stop[-1] == c"\r")
        if end > p:
            first, it.n_features = it.n_entries, 0
            one.label, one.weight = NAN, 1.0
            wrong = fault(NOTHING, p, end - p, 0)
            if to.is_vw:
                wrong.what = read_namespaces(p, end, it, &one, to, &wrong)
            else:
                wrong.what = read_fields(p, end, it, &one, to, &wrong)
            if wrong.what == NOTHING and to.n_crosses:
                wrong.what = add_crosses(it, to)
            if wrong.what == WRONG_COUNT or wrong.what == BAD_PRODUCT:  # of the whole row
                wrong.at, wrong.length = p, end - p
            if it.n_rows == it.most_rows and not grow(
                <void **>&it.rows, &it.most_rows, it.n_rows + 1, sizeof(row)
            ):
                it.is_full = True
            if it.is_full:
                return
            if wrong.what == NOTHING:
                close_row(it, first, to.single)
                one.end = it.n_entries
                it.rows[it.n_rows] = one
                it.n_rows += 1
            else:
                it.n_entries = first
                if it.n_bad == 0:
                    it.first = wrong
                it.n_bad += 1
                if not to.skips:
                    return
        p = stop + 1


# ---- pieces, which threads claim


cdef struct joined:
    double *labels
    double *weights
    int64_t *ends
    int32_t *indices
    void *values

cdef struct pile:
    piece *pieces
    Py_ssize_t n
    Py_ssize_t claimed
    const plan *to
    const joined *table     # where rows are written; NULL: they are read


cdef void _join(const piece *it, Py_ssize_t first, Py_ssize_t entry, const pile *p) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(it.n_rows):
        p.table.labels[first + k] = it.rows[k].label
        p.table.weights[first + k] = it.rows[k].weight
        p.table.ends[first + k] = entry + it.rows[k].end
    for k in range(it.n_entries):
        p.table.indices[entry + k] = <int32_t>(it.entries[k].key >> 32)
    if p.to.single:
        for k in range(it.n_entries):
            (<float *>p.table.values)[entry + k] = <float>it.entries[k].value
    else:
        for k in range(it.n_entries):
            (<double *>p.table.values)[entry + k] = it.entries[k].value


cdef void _claim_pieces(const void *given, int thread, int threads) noexcept nogil:
    cdef pile *p = <pile *>given
    cdef Py_ssize_t k = claim(&p.claimed), j, rows, entries
    while k < p.n:
        if p.table == NULL:
            _read(&p.pieces[k], p.to)
        else:
            rows = entries = 0
            for j in range(k):
                rows += p.pieces[j].n_rows
                entries += p.pieces[j].n_entries
            _join(&p.pieces[k], rows, entries, p)
        k = claim(&p.claimed)


def parse(const uint8_t[::1] text not None, bint is_last, list names not None, bytes roles,
          list crosses not None, int n_hashes, int separator, bint has_quotes, bint single,
          bint skips):
    """Read text into arrays.

    Parameters
    ----------
    text : buffer of bytes
        Begins with a row.
    is_last : bool
        Whether the text ends where the file does, so that its end ends a row.
    names : list of bytes
        Of the columns; or, of Vowpal Wabbit's text, of the namespaces that are crossed.
    roles : bytes or None
        Of each column: 0 left out, 1 category, 2 number, 3 label, 4 weight; None: Vowpal Wabbit's
        text.
    crosses : list of (int, int)
        Pairs of positions in `names`.
    n_hashes : int
    separator : int
        A byte.
    has_quotes : bool
        Whether a field may be in quotes.
    single : bool
        Whether values become float32, and not float64.
    skips : bool
        Whether rows that are wrong are left out, and not the end.

    Returns
    -------
    labels, weights : ndarray of float64
        NaN and 1 where the text has none.
    values : ndarray of float32 or float64
    indices : ndarray of int32
    indptr : ndarray of int64
    n_read : int
        The bytes of the rows that are whole.
    n_bad : int
        How many rows are wrong; at most one unless they are skipped.
    fault : (int, int, int, int) or None
        Of the first wrong row the kind, where it is in the text, how long, and the number of its
        fields.
    """
    if n_hashes < 1 or not 0 <= separator < 256 or (roles is not None and len(roles) != len(names)):
        raise InvalidArgumentError(
            f"n_hashes must be at least 1, a separator a byte, and each name have a role: "
            f"{n_hashes}, {separator}, {roles!r}"
        )
    cdef tuple kept = tuple(names), pairs_of = tuple(crosses)   # as they are checked
    for name in kept:
        if type(name) is not bytes:
            raise InvalidTypeError(f"names must be bytes, not {name!r}")
    cdef Py_ssize_t size = text.shape[0], rows = 0, entries = 0, n_bad = 0, n_read = 0
    cdef const uint8_t *start = &text[0] if size else NULL
    cdef int n = max(1, min(size // PIECE, 1 << 12)), k, n_columns = len(kept)
    cdef piece *pieces = <piece *>calloc(n + 1, sizeof(piece))
    cdef column *columns = <column *>calloc(n_columns + 1, sizeof(column))
    cdef int *pairs = <int *>calloc(2 * len(pairs_of) + 1, sizeof(int))
    cdef bint is_full = False
    cdef pile all_pieces
    cdef plan to
    cdef joined table
    try:
        if pieces == NULL or columns == NULL or pairs == NULL:
            raise MemoryError
        for k in range(n_columns):
            columns[k].name = <const uint8_t *><const char *>(<bytes>kept[k])
            columns[k].n_name = len(<bytes>kept[k])
            columns[k].role = LEFT_OUT if roles is None else roles[k]
            feed(&columns[k].state, columns[k].name, columns[k].n_name)
            if columns[k].role == CATEGORY:
                feed(&columns[k].state, <const uint8_t *>b"=", 1)
        for k in range(len(pairs_of)):
            pairs[2 * k], pairs[2 * k + 1] = pairs_of[k]
        for k in range(2 * len(pairs_of)):
            if not 0 <= pairs[k] < n_columns:
                raise InvalidArgumentError(f"crosses must be among {n_columns} names: {crosses}")
            columns[pairs[k]].is_crossed = True
        to = plan(columns, n_columns, pairs, len(pairs_of), separator, has_quotes, roles is None,
                  single, skips, n_hashes)
        with nogil:
            if size:
                to.has_quotes = has_quotes and memchr(start, c'"', size) != NULL
                n_read = _cut(pieces, n, start, start + size, &to, is_last, &n)
            else:
                n = 0
            all_pieces = pile(pieces, n, 0, &to, NULL)
            run_team(at_most(gather_team(size, 4), n), _claim_pieces, &all_pieces)
        fault_of = None
        for k in range(n):
            is_full |= pieces[k].is_full
            if pieces[k].n_bad and fault_of is None:
                fault_of = (
                    <int>pieces[k].first.what, pieces[k].first.at - start,
                    pieces[k].first.length, pieces[k].first.count,
                )
            n_bad += pieces[k].n_bad
            rows += pieces[k].n_rows
            entries += pieces[k].n_entries
        if is_full:
            raise MemoryError
        labels, weights, indptr = np.empty(rows), np.empty(rows), np.empty(rows + 1, np.int64)
        indices = np.empty(entries, np.int32)
        values = np.empty(entries, np.float32 if single else np.float64)
        indptr[0] = 0
        table = joined(
            <double *>cnp.PyArray_DATA(labels), <double *>cnp.PyArray_DATA(weights),
            <int64_t *>cnp.PyArray_DATA(indptr) + 1, <int32_t *>cnp.PyArray_DATA(indices),
            cnp.PyArray_DATA(values),
        )
        with nogil:
            all_pieces = pile(pieces, n, 0, &to, &table)
            run_team(at_most(gather_team(size, 4), n), _claim_pieces, &all_pieces)
    finally:
        if pieces != NULL:
            for k in range(n):
                free(pieces[k].rows)
                free(pieces[k].entries)
                free(pieces[k].features)
        free(pieces)
        free(columns)
        free(pairs)
    return labels, weights, values, indices, indptr, n_read, n_bad, fault_of

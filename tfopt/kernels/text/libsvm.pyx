"""Lines of LIBSVM text into the arrays of a CSR matrix, on all threads.

The text is cut at line ends. A first pass counts lines and colons, which says how much memory the
rows of each piece need at most; a second one writes the numbers where they belong. What is wrong
with a line is for the caller to say: a fault is reported by the line's place.

`survey` reads labels, the first and the last index of each row, and no values: enough to know how
large a model will be, at the speed of memory.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memmove

import numpy as np

from tfopt.errors import InvalidArgumentError

from tfopt.kernels.platform.machine cimport claim
from tfopt.kernels.platform.runtime cimport at_most, gather_team, run_team
from tfopt.kernels.text.decimals cimport (
    LEAST_POWER, MOST_POWER, NO_NUMBER, UNDECIDED, is_digit, scan_number, scanned,
)

cimport tfopt.kernels.platform.numpy_api as cnp

cnp.import_array()

cdef enum:
    PIECE = 1 << 18     # bytes that are worth a piece of their own
    COUNTED = 255       # bytes whose count fits in one

cdef uint64_t[2 * (MOST_POWER - LEAST_POWER + 1)] FIVES


cdef int _make_fives() except -1:
    """The first 128 bits of each power of five, rounded up where it is a fraction."""
    cdef object five, power     # Python's integers
    cdef int k = 0
    for power in range(LEAST_POWER, MOST_POWER + 1):
        five = pow(5, abs(power))
        if power < 0:
            length = (five - 1).bit_length()
            five = (1 << (length + 127 if power >= -27 else 2 * length + 128)) // five + 1
        five = five << 128 >> five.bit_length()
        FIVES[k], FIVES[k + 1] = five >> 64, five & 0xFFFFFFFFFFFFFFFF
        k += 2
    return 0


_make_fives()


cdef struct piece:
    const uint8_t *start
    const uint8_t *end
    Py_ssize_t lines        # all, with those that hold no row
    Py_ssize_t row          # where its rows begin
    Py_ssize_t entry        # where its entries begin
    Py_ssize_t most_rows    # memory for so many, should the text change meanwhile
    Py_ssize_t most_entries
    Py_ssize_t n_rows
    Py_ssize_t n_entries
    Py_ssize_t n_faults
    const uint8_t *fault    # the first line that is wrong, or NULL
    Py_ssize_t fault_line   # its number in the piece
    bint has_queries

cdef struct table:
    double *labels
    int64_t *ends           # of each row, in its piece; then in the whole table
    int64_t *lines          # of each row, its number in the piece; then in the text
    int64_t *queries
    int32_t *indices
    void *values
    bint single             # whether values are float32
    int64_t first_index
    int64_t last_index
    bint skips


cdef inline bint _is_blank(uint8_t c) noexcept nogil:
    return c == c" " or c == c"\t" or c == c"\r" or c == c"\v" or c == c"\f"


cdef Py_ssize_t _count(const uint8_t *start, const uint8_t *end, uint8_t wanted) noexcept nogil:
    cdef Py_ssize_t total = 0, k, n
    cdef uint8_t part
    while start < end:
        n = min(end - start, <Py_ssize_t>COUNTED)
        part = 0
        for k in range(n):
            part += start[k] == wanted
        total += part
        start += n
    return total


cdef double _decided(const uint8_t *start, const uint8_t *end) noexcept with gil:
    """A number that needs all its digits, by Python."""
    try:
        return float(start[:end - start])
    except ValueError:
        return 0.0      # it has been read as a number before


cdef inline bint _finite(const uint8_t **at, const uint8_t *end, double *value) noexcept nogil:
    """Read a finite number that a blank, or the end, follows."""
    cdef const uint8_t *start = at[0]
    cdef scanned answer = scan_number(at, end, value, FIVES)
    if answer == NO_NUMBER or not (at[0] == end or _is_blank(at[0][0])):
        return False
    if answer == UNDECIDED:
        value[0] = _decided(start, at[0])
    return value[0] - value[0] == 0


cdef bint finite_number(const uint8_t *start, const uint8_t *end, double *value) noexcept nogil:
    """Read text that is one finite number, with blanks around it or without."""
    while start < end and _is_blank(start[0]):
        start += 1
    while start < end and _is_blank(end[-1]):
        end -= 1
    return _finite(&start, end, value) and start == end


cdef inline bint _whole(const uint8_t **at, const uint8_t *end, int64_t last,
                        int64_t *value) noexcept nogil:
    """Read a whole number that is not negative, and at most *last*."""
    cdef const uint8_t *p = at[0]
    cdef int64_t number = 0
    if p == end or not is_digit(p[0]):
        return False
    while p < end and is_digit(p[0]):
        number = 10 * number + (p[0] - c"0")
        if number > last:
            return False
        p += 1
    at[0], value[0] = p, number
    return True


cdef bint _query(const uint8_t **at, const uint8_t *end, int64_t *value) noexcept nogil:
    """Read ``qid:`` and a number, if they come next; False if the number is none."""
    cdef const uint8_t *p = at[0]
    if end - p < 4 or p[0] != c"q" or p[1] != c"i" or p[2] != c"d" or p[3] != c":":
        return True
    p += 4
    if not _whole(&p, end, 10 ** 17 - 1, value) or not (p == end or _is_blank(p[0])):
        return False
    at[0] = p
    return True


cdef bint _row(const uint8_t *p, const uint8_t *end, piece *it, const table *to) noexcept nogil:
    """Read a line that is not blank into the next row; False if it is wrong."""
    cdef Py_ssize_t row = it.row + it.n_rows, entry = it.entry + it.n_entries
    cdef int64_t index, previous = to.first_index - 1, query = -1
    cdef double value
    if not _finite(&p, end, &to.labels[row]):
        return False
    while p < end and _is_blank(p[0]):
        p += 1
    if not _query(&p, end, &query):
        return False
    while True:
        while p < end and _is_blank(p[0]):
            p += 1
        if p == end:
            break
        if p[0] == c"+":
            p += 1
        if not _whole(&p, end, to.last_index, &index) or index <= previous or p == end \
                or p[0] != c":":
            return False
        p += 1
        if not _finite(&p, end, &value) or entry - it.entry >= it.most_entries:
            return False
        to.indices[entry] = <int32_t>(index - to.first_index)
        if to.single:
            (<float *>to.values)[entry] = <float>value
        else:
            (<double *>to.values)[entry] = value
        previous = index
        entry += 1
    to.queries[row] = query
    it.has_queries |= query >= 0
    it.n_entries = entry - it.entry
    to.ends[row] = it.n_entries
    return True


cdef void _read(piece *it, const table *to) noexcept nogil:
    """Read the rows of a piece; the first fault ends it, unless faults are skipped."""
    cdef const uint8_t *line = it.start
    cdef const uint8_t *stop
    cdef const uint8_t *end
    cdef const uint8_t *p
    cdef Py_ssize_t number = 0
    while line < it.end:
        stop = <const uint8_t *>memchr(line, c"\n", it.end - line)
        if stop == NULL:
            stop = it.end
        p, end = line, <const uint8_t *>memchr(line, c"#", stop - line)
        if end == NULL:
            end = stop
        while p < end and _is_blank(p[0]):
            p += 1
        if p < end:
            if it.n_rows < it.most_rows and _row(p, end, it, to):
                to.lines[it.row + it.n_rows] = number
                it.n_rows += 1
            else:
                it.n_faults += 1
                if it.fault == NULL:
                    it.fault, it.fault_line = line, number
                if not to.skips:
                    return
        line = stop + 1
        number += 1


cdef void _close_up(piece *pieces, int n, const table *to, Py_ssize_t itemsize) noexcept nogil:
    """Move the rows of each piece to the end of those before it, and number them throughout."""
    cdef Py_ssize_t rows = 0, entries = 0, lines = 0, r
    cdef piece *it
    cdef int k
    for k in range(n):
        it = &pieces[k]
        if rows != it.row:
            memmove(to.labels + rows, to.labels + it.row, it.n_rows * sizeof(double))
            memmove(to.ends + rows, to.ends + it.row, it.n_rows * sizeof(int64_t))
            memmove(to.lines + rows, to.lines + it.row, it.n_rows * sizeof(int64_t))
            memmove(to.queries + rows, to.queries + it.row, it.n_rows * sizeof(int64_t))
        if entries != it.entry:
            memmove(to.indices + entries, to.indices + it.entry, it.n_entries * sizeof(int32_t))
            memmove(<char *>to.values + entries * itemsize,
                    <char *>to.values + it.entry * itemsize, it.n_entries * itemsize)
        for r in range(rows, rows + it.n_rows):
            to.ends[r] += entries
            to.lines[r] += lines
        rows += it.n_rows
        entries += it.n_entries
        lines += it.lines


cdef int _cut(piece *pieces, int n, const uint8_t *start, const uint8_t *end) noexcept nogil:
    """Cut text into at most n pieces of whole lines; return how many."""
    cdef Py_ssize_t length = (end - start + n - 1) // n
    cdef const uint8_t *stop
    cdef int k = 0
    while start < end:
        stop = end
        if end - start > length:
            stop = <const uint8_t *>memchr(start + length, c"\n", end - start - length)
            stop = end if stop == NULL else stop + 1
        pieces[k].start, pieces[k].end = start, stop
        start = stop
        k += 1
    return k


# Threads claim pieces, so that a slow one gets fewer.

cdef struct pile:
    piece *pieces           # that threads claim one after another
    Py_ssize_t n
    Py_ssize_t claimed
    const table *to         # what they are read to; NULL: they are counted


cdef void _claim_pieces(const void *given, int thread, int threads) noexcept nogil:
    cdef pile *p = <pile *>given
    cdef piece *one
    cdef Py_ssize_t k = claim(&p.claimed)
    while k < p.n:
        one = &p.pieces[k]
        if p.to != NULL:
            _read(one, p.to)
        else:
            one.lines = _count(one.start, one.end, c"\n") + (one.end[-1] != c"\n")
            one.n_entries = _count(one.start, one.end, c":")
        k = claim(&p.claimed)


def parse(const uint8_t[::1] text not None, bint single, int first_index, int last_index,
          bint skips):
    """Read LIBSVM text into arrays.

    Parameters
    ----------
    text : buffer of bytes
        Whole lines; the last one need not end in a newline.
    single : bool
        Whether values become float32, and not float64.
    first_index : int
        0 or 1: what features are counted from.
    last_index : int
        The largest index that is accepted.
    skips : bool
        Whether lines that are wrong are left out, and not the end.

    Returns
    -------
    labels : ndarray of float64
    values : ndarray of float32 or float64
    indices : ndarray of int32
        Counted from 0.
    indptr : ndarray of int64
    lines : ndarray of int64
        The number of each row's line, counted from 0.
    queries : ndarray of int64 or None
        Each row's qid, or -1; None if no row has one.
    n_lines : int
        How many lines the text has.
    fault : (int, int) or None
        Where in the text the first wrong line begins, and its number.
    n_faults : int
        How many lines are wrong; at most one unless they are skipped.
    """
    if not 0 <= first_index <= 1 or last_index < 0:
        raise InvalidArgumentError(
            f"first_index must be 0 or 1 and last_index not negative: {first_index}, {last_index}"
        )
    cdef Py_ssize_t size = text.shape[0], rows = 0, entries = 0, n_lines = 0, n_faults = 0
    cdef const uint8_t *start = &text[0] if size else NULL
    cdef int n = max(1, min(size // PIECE, 1 << 12)), k
    cdef piece *pieces = <piece *>calloc(n, sizeof(piece))
    cdef pile all_pieces
    cdef table to
    if pieces == NULL:
        raise MemoryError
    try:
        n = _cut(pieces, n, start, start + size) if size else 0
        with nogil:
            all_pieces = pile(pieces, n, 0, NULL)
            run_team(at_most(gather_team(size, 4), n), _claim_pieces, &all_pieces)
        for k in range(n):
            pieces[k].row, pieces[k].entry = rows, entries
            rows += pieces[k].lines
            entries += pieces[k].n_entries
            pieces[k].most_rows = pieces[k].lines
            pieces[k].most_entries, pieces[k].n_entries = pieces[k].n_entries, 0
        labels, queries = np.empty(rows), np.empty(rows, np.int64)
        lines, indptr = np.empty(rows, np.int64), np.empty(rows + 1, np.int64)
        indices = np.empty(entries, np.int32)
        values = np.empty(entries, np.float32 if single else np.float64)
        indptr[0] = 0
        to.labels = <double *>cnp.PyArray_DATA(labels)
        to.ends = <int64_t *>cnp.PyArray_DATA(indptr) + 1
        to.lines = <int64_t *>cnp.PyArray_DATA(lines)
        to.queries = <int64_t *>cnp.PyArray_DATA(queries)
        to.indices = <int32_t *>cnp.PyArray_DATA(indices)
        to.values = cnp.PyArray_DATA(values)
        to.single, to.skips = single, skips
        to.first_index, to.last_index = first_index, last_index
        with nogil:
            all_pieces = pile(pieces, n, 0, &to)
            run_team(at_most(gather_team(size, 4), n), _claim_pieces, &all_pieces)
        _close_up(pieces, n, &to, 4 if single else 8)
        rows = entries = 0
        fault, has_queries = None, False
        for k in range(n):
            if pieces[k].fault != NULL and fault is None:
                fault = pieces[k].fault - start, n_lines + pieces[k].fault_line
            n_faults += pieces[k].n_faults
            rows += pieces[k].n_rows
            entries += pieces[k].n_entries
            n_lines += pieces[k].lines
            has_queries |= pieces[k].has_queries
    finally:
        free(pieces)
    return (
        labels[:rows], values[:entries], indices[:entries], indptr[:rows + 1], lines[:rows],
        queries[:rows] if has_queries else None, n_lines, fault, n_faults,
    )


cdef struct extremes:
    Py_ssize_t n_rows
    Py_ssize_t n_entries
    int64_t least
    int64_t largest


cdef bint _survey_row(const uint8_t *p, const uint8_t *end, double *label, int64_t last_index,
                      extremes *seen) noexcept nogil:
    """Note what a line that is not blank says; False unless that is certain."""
    cdef const uint8_t *q
    cdef int64_t index
    if not _finite(&p, end, label):
        return False
    while p < end and _is_blank(p[0]):
        p += 1
    if not _query(&p, end, &index):
        return False
    while p < end and _is_blank(p[0]):
        p += 1
    if p == end:
        return True
    q = p + (p[0] == c"+")
    if not _whole(&q, end, last_index, &index) or q == end or q[0] != c":":
        return False
    seen.least = min(seen.least, index)
    seen.n_entries += _count(p, end, c":")
    q = end - 1
    while q > p and q[0] != c":":
        q -= 1
    while q > p and is_digit(q[-1]):
        q -= 1
    if not _whole(&q, end, last_index, &index) or q == end or q[0] != c":":
        return False
    seen.largest = max(seen.largest, index)
    return True


cdef bint _survey(const uint8_t *line, const uint8_t *last, double *labels, Py_ssize_t most_rows,
                  int64_t last_index, extremes *seen) noexcept nogil:
    cdef const uint8_t *stop
    cdef const uint8_t *end
    cdef const uint8_t *p
    while line < last:
        stop = <const uint8_t *>memchr(line, c"\n", last - line)
        if stop == NULL:
            stop = last
        p, end = line, <const uint8_t *>memchr(line, c"#", stop - line)
        if end == NULL:
            end = stop
        while p < end and _is_blank(p[0]):
            p += 1
        if p < end:
            if seen.n_rows == most_rows \
                    or not _survey_row(p, end, &labels[seen.n_rows], last_index, seen):
                return False
            seen.n_rows += 1
        line = stop + 1
    return True


def survey(const uint8_t[::1] text not None, int last_index):
    """What rows of LIBSVM text have in common, if none of them is malformed.

    Parameters
    ----------
    text : buffer of bytes
        Whole lines; the last one need not end in a newline.
    last_index : int
        The largest index that is accepted.

    Returns
    -------
    labels : ndarray of float64
    n_values : int
    least, largest : int
        Of the indices as they are written; `last_index` and -1 if there are none.

    Or None, if a line is found to be malformed. Values, and indices between a row's first and last
    one, may be malformed all the same.
    """
    cdef Py_ssize_t size = text.shape[0], most_rows
    cdef const uint8_t *start = &text[0] if size else NULL
    cdef double *label
    cdef bint certain
    cdef extremes seen
    seen.n_rows = seen.n_entries = 0
    seen.least, seen.largest = last_index, -1
    with nogil:
        most_rows = _count(start, start + size, c"\n") + 1
    labels = np.empty(most_rows)
    label = <double *>cnp.PyArray_DATA(labels)
    with nogil:
        certain = _survey(start, start + size, label, most_rows, last_index, &seen)
    if not certain:
        return None
    return labels[:seen.n_rows], seen.n_entries, seen.least, seen.largest

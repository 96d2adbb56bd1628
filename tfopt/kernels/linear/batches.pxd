# cython: language_level=3
"""Batches of a stream's rows, whose features are numbered.

The lines of a large table that a batch needs are asked for long before: a cursor reads ahead over
the entries of the rows to come, of the batches to come, too.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from tfopt.kernels.arrays.csr cimport extent, index, once, row_length, within
from tfopt.kernels.platform.machine cimport prefetch_line, prefetch_row, raise_flag

cdef enum:
    AHEAD = 64      # entries ahead whose weights are asked for
    ROWS_AHEAD = 4      # and rows ahead of these whose entries are
    LINE = 64
    PARTS = 3       # of a weight: itself, the sum of squares, the linear term

#: A CSR matrix' rows in an order, and the entry from which on weights have not been asked for.
cdef struct stream:
    const int64_t *order
    Py_ssize_t n_rows
    Py_ssize_t row          # in the order: the next one to ask for
    Py_ssize_t entry        # of the row before that
    Py_ssize_t stop
    const double *table
    Py_ssize_t width        # numbers of the table's row
    Py_ssize_t asked        # rows of the order whose entries have been asked for
    const char *data        # the entries
    Py_ssize_t size         # in bytes

#: The rows of a batch, and their features, numbered as they are met.
cdef struct batch:
    Py_ssize_t n_rows
    const int64_t *rows
    Py_ssize_t *starts      # of each row, among the matrix' entries
    Py_ssize_t *lengths
    Py_ssize_t most_entries     # memory for so many, should the matrix change meanwhile
    Py_ssize_t most_features
    uint64_t factor         # a hash is the product by it, without its last bits
    int shift
    uint32_t *places        # the hash table: numbers + 1; 0 between batches
    uint32_t *numbers       # of each entry's feature
    Py_ssize_t n_features
    int64_t *features       # by number + 1
    uint32_t *used          # the places of these features
    double *parts[PARTS]    # by number and score
    double *gradients
    double *slopes          # of each row and score
    double *bias            # by score and part


cdef inline void *carve(size_t *end, size_t size) noexcept nogil:
    """The next part of a block of memory, where a line of the cache begins."""
    cdef size_t start = end[0]
    end[0] = (start + size + 63) & ~<size_t>63
    return <void *>start


cdef inline void set_hash(batch *b, Py_ssize_t n_columns, Py_ssize_t all_entries) noexcept nogil:
    """Choose the hash: the feature itself if that takes little, else one of few collisions."""
    cdef Py_ssize_t places = 2 * b.most_entries
    if n_columns <= max(places, all_entries):
        places = n_columns
    b.shift, b.factor = 60, 0x9E3779B97F4A7C15u
    while (<Py_ssize_t>1 << (64 - b.shift)) < places:
        b.shift -= 1
    if places == n_columns:
        b.factor = <uint64_t>1 << b.shift


cdef inline size_t lay_out(batch *b, Py_ssize_t most_rows, Py_ssize_t n_scores,
                           size_t start) noexcept nogil:
    """Set the addresses of everything in a block of memory; return where it ends."""
    cdef size_t end = (start + 63) & ~<size_t>63
    cdef size_t columns = (b.most_features + 1) * n_scores * sizeof(double)
    cdef int k
    b.places = <uint32_t *>carve(&end, (<size_t>1 << (64 - b.shift)) * sizeof(uint32_t))
    b.numbers = <uint32_t *>carve(&end, b.most_entries * sizeof(uint32_t))
    b.features = <int64_t *>carve(&end, (b.most_features + 2) * sizeof(int64_t))
    b.used = <uint32_t *>carve(&end, (b.most_features + 1) * sizeof(uint32_t))
    b.gradients = <double *>carve(&end, columns)
    b.slopes = <double *>carve(&end, most_rows * n_scores * sizeof(double))
    b.bias = <double *>carve(&end, PARTS * n_scores * sizeof(double))
    for k in range(PARTS):
        b.parts[k] = <double *>carve(&end, columns)
    b.starts = <Py_ssize_t *>carve(&end, most_rows * sizeof(Py_ssize_t))
    b.lengths = <Py_ssize_t *>carve(&end, most_rows * sizeof(Py_ssize_t))
    return end


cdef inline void ask_for_rows(stream *s, const index *indices, const index *indptr,
                              const extent *bounds) noexcept nogil:
    """Prefetch the entries of the rows some way ahead of those whose weights are asked for."""
    cdef Py_ssize_t i, k, stop
    while s.asked < min(s.n_rows, s.row + ROWS_AHEAD):
        i = once(s.order + s.asked)
        s.asked += 1
        if within(i, bounds.n_rows):
            k = max(<Py_ssize_t>0, once(indptr + i))
            stop = min(bounds.n_entries, once(indptr + i + 1))
            while k < stop:
                prefetch_line(<const char *>(indices + k))
                prefetch_line(s.data + k * s.size)
                k += LINE // 8


cdef inline void ask_ahead(stream *s, const index *indices, const index *indptr,
                           extent *bounds) noexcept nogil:
    """Prefetch the weights of the next entry, if it is inside."""
    cdef Py_ssize_t stride = s.width * sizeof(double), i
    cdef char *start = <char *>s.table
    while s.entry >= s.stop:
        if s.row >= s.n_rows:
            return
        i = once(s.order + s.row)
        s.row += 1
        if within(i, bounds.n_rows):
            s.entry = max(<Py_ssize_t>0, once(indptr + i))
            s.stop = min(bounds.n_entries, once(indptr + i + 1))
    i = once(indices + s.entry)
    if within(i, bounds.n_columns):
        prefetch_row(&start, &stride, 1, i, stride)
    s.entry += 1


cdef inline void read_parts(const double *table, const batch *b, Py_ssize_t first,
                            Py_ssize_t stop, Py_ssize_t n_scores) noexcept nogil:
    """Copy the parts of a batch's features, from one number to another, into columns."""
    cdef Py_ssize_t number, c, k
    cdef const int64_t *features = b.features + 1
    cdef double *w = b.parts[0]
    cdef double *squares = b.parts[1]
    cdef double *linear = b.parts[2]
    cdef const double *row
    for number in range(first, stop):
        row = table + features[number] * PARTS * n_scores
        for c in range(n_scores):
            k = number * n_scores + c
            w[k], squares[k], linear[k] = row[PARTS * c], row[PARTS * c + 1], row[PARTS * c + 2]


cdef inline int gather(stream *s, const index *indices, const index *indptr, Py_ssize_t n_scores,
                       batch *b, extent *bounds) noexcept nogil:
    """Number the features of a batch, and copy their parts; -1 if an index is outside."""
    cdef Py_ssize_t r, k, start = 0, length, feature, n = 0, before, entry = 0
    cdef size_t place, last = (<size_t>1 << (64 - b.shift)) - 1
    cdef uint32_t number
    cdef uint32_t *numbers = b.numbers
    cdef uint32_t *places = b.places
    cdef uint32_t *used = b.used
    cdef int64_t *features = b.features
    cdef uint64_t factor = b.factor
    cdef int shift = b.shift
    for r in range(b.n_rows):
        length = row_length(indptr, once(b.rows + r), &start, bounds)
        if bounds.outside or length > b.most_entries - entry:
            raise_flag(&bounds.outside)
            return -1
        b.starts[r], b.lengths[r], before = start, length, n
        ask_for_rows(s, indices, indptr, bounds)
        for k in range(start, start + length):
            ask_ahead(s, indices, indptr, bounds)
            feature = once(indices + k)
            if not within(feature, bounds.n_columns - 1):
                raise_flag(&bounds.outside)
                return -1
            # without a branch on whether it is new, which nobody can foresee
            place = (<uint64_t>feature * factor) >> shift
            features[0] = feature       # a place that is free ends the search
            while features[places[place]] != feature:
                place = (place + 1) & last
            number = places[place] if places[place] else <uint32_t>(n + 1)
            places[place], used[n], features[n + 1] = number, <uint32_t>place, feature
            numbers[entry] = number - 1
            n += number > n
            entry += 1
        if n_scores == 1:
            read_parts(s.table, b, before, n, 1)
        else:
            read_parts(s.table, b, before, n, n_scores)
    for k in range(n):
        places[used[k]] = 0
    b.n_features = n
    return 0


cdef inline void write_parts(double *table, const batch *b, Py_ssize_t n_scores, double *sums,
                             double averaged) noexcept nogil:
    """Write the parts of a batch's features into the table, and add to the sums of averages.

    After T steps whose weights are averaged, a weight's average is w - sum / T: each change adds
    itself, times the number of steps before it, to the sum.
    """
    cdef Py_ssize_t number, c, k
    cdef const int64_t *features = b.features + 1
    cdef const double *w = b.parts[0]
    cdef const double *squares = b.parts[1]
    cdef const double *linear = b.parts[2]
    cdef double *row
    cdef char *start = <char *>table
    cdef Py_ssize_t stride = PARTS * n_scores * sizeof(double)
    for number in range(b.n_features):
        if number + AHEAD < b.n_features:       # of a large batch they may have left the cache
            prefetch_row(&start, &stride, 1, features[number + AHEAD], stride)
        row = table + features[number] * PARTS * n_scores
        for c in range(n_scores):
            k = number * n_scores + c
            if sums != NULL:
                sums[features[number] * n_scores + c] += averaged * (w[k] - row[PARTS * c])
            row[PARTS * c], row[PARTS * c + 1], row[PARTS * c + 2] = w[k], squares[k], linear[k]

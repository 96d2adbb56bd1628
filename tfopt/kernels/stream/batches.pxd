# cython: language_level=3
"""Batches of a stream's rows, whose features are numbered, and a journal of what they change.

The rows of a batch are staged, that is their entries' features are read and tested, while the one
before is taken. So the lines of a large table that a batch needs can be asked for long before.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy, memmove

from tfopt.kernels.arrays.csr cimport extent, index, once, row_length, within
from tfopt.kernels.platform.machine cimport prefetch_row, raise_flag

cdef extern from "past_caches.h" nogil:
    void copy_past_caches(void *to, const void *source, size_t n_bytes) noexcept

cdef enum:
    AHEAD = 64      # entries ahead whose weights are asked for
    PARTS = 3       # of a weight: itself, the sum of squares, the linear term

#: Rows of a batch, as they were when they were tested.
cdef struct piece:
    Py_ssize_t n_rows
    Py_ssize_t n_entries
    Py_ssize_t *rows
    Py_ssize_t *starts      # of each row, among the matrix' entries
    Py_ssize_t *lengths

#: A batch, the rows of the next one, and the batch's features, numbered as they are met.
cdef struct batch:
    piece now
    piece coming
    int64_t *columns        # the features of the entries of both
    Py_ssize_t asked        # how many of them have been prefetched
    Py_ssize_t most_rows
    Py_ssize_t most_entries     # memory for so many in each, should the matrix change meanwhile
    int shift               # of the hash table: 64 - log2(its size)
    uint32_t *places        # the hash table: numbers + 1
    uint32_t *numbers       # of each entry's feature
    Py_ssize_t n_features
    int64_t *features       # by number
    double *parts[PARTS]    # by number and score
    double *gradients
    double *slopes          # of each row and score
    double *bias            # by score and part

#: The table as it was before a call: the whole, or what the batches before the last were about to
#: change. A batch's block has its features and their parts.
cdef struct journal:
    bint whole
    char *memory
    size_t size
    size_t used
    Py_ssize_t n_blocks
    Py_ssize_t left_entries     # for so many is there memory yet
    Py_ssize_t *counts          # of each block's features
    double *bias


cdef inline size_t lines(size_t size) noexcept nogil:
    """A size, rounded up to whole lines of the cache."""
    return (size + 63) & ~<size_t>63


cdef inline size_t _block_size(Py_ssize_t n, Py_ssize_t n_scores) noexcept nogil:
    return lines(n * sizeof(int64_t)) + PARTS * lines(n * n_scores * sizeof(double))


cdef inline size_t journal_size(Py_ssize_t entries, Py_ssize_t blocks, Py_ssize_t n_scores) \
        noexcept nogil:
    """The most bytes that blocks with so many features in all take."""
    return entries * (sizeof(int64_t) + PARTS * n_scores * sizeof(double)) \
        + blocks * (1 + PARTS) * 64


cdef inline void *carve(size_t *end, size_t size) noexcept nogil:
    """The next part of a block of memory, where a line of the cache begins."""
    cdef size_t start = end[0]
    end[0] = lines(start + size)
    return <void *>start


cdef inline size_t lay_out(batch *b, journal *j, Py_ssize_t n_scores, Py_ssize_t n_batches,
                           size_t start) noexcept nogil:
    """Set the addresses of everything in a block of memory; return where it ends."""
    cdef size_t end = lines(start)
    cdef size_t columns = (b.most_entries + 1) * n_scores * sizeof(double)
    cdef size_t bias = PARTS * n_scores * sizeof(double)
    cdef piece *p
    cdef int k
    b.columns = <int64_t *>carve(&end, 2 * b.most_entries * sizeof(int64_t))
    b.places = <uint32_t *>carve(&end, (<size_t>1 << (64 - b.shift)) * sizeof(uint32_t))
    b.numbers = <uint32_t *>carve(&end, b.most_entries * sizeof(uint32_t))
    b.features = <int64_t *>carve(&end, (b.most_entries + 1) * sizeof(int64_t))
    b.gradients = <double *>carve(&end, columns)
    b.slopes = <double *>carve(&end, b.most_rows * n_scores * sizeof(double))
    b.bias = <double *>carve(&end, bias)
    for k in range(PARTS):
        b.parts[k] = <double *>carve(&end, columns)
    for k in range(2):
        p = &b.coming if k else &b.now
        p.rows = <Py_ssize_t *>carve(&end, b.most_rows * sizeof(Py_ssize_t))
        p.starts = <Py_ssize_t *>carve(&end, b.most_rows * sizeof(Py_ssize_t))
        p.lengths = <Py_ssize_t *>carve(&end, b.most_rows * sizeof(Py_ssize_t))
    j.bias = <double *>carve(&end, bias)
    j.counts = <Py_ssize_t *>carve(&end, n_batches * sizeof(Py_ssize_t))
    j.memory = <char *>carve(&end, j.size)
    return end


cdef inline int stage(const index *indices, const index *indptr, const int64_t *order,
                      Py_ssize_t n_rows, batch *b, extent *bounds) noexcept nogil:
    """Read the next rows' features behind the batch's; -1 if an index is outside."""
    cdef Py_ssize_t r, k, start = 0, length, feature, entry = 0
    cdef int64_t *columns = b.columns + b.now.n_entries
    b.coming.n_rows = b.coming.n_entries = 0
    for r in range(n_rows):
        b.coming.rows[r] = once(order + r)
        length = row_length(indptr, b.coming.rows[r], &start, bounds)
        if bounds.outside or length > b.most_entries - entry:
            raise_flag(&bounds.outside)
            return -1
        b.coming.starts[r], b.coming.lengths[r] = start, length
        for k in range(start, start + length):
            feature = once(indices + k)
            if not within(feature, bounds.n_columns - 1):
                raise_flag(&bounds.outside)
                return -1
            columns[entry] = feature
            entry += 1
    b.coming.n_rows, b.coming.n_entries = n_rows, entry
    return 0


cdef inline void advance(batch *b) noexcept nogil:
    """Make the rows that were staged the batch."""
    cdef Py_ssize_t done = b.now.n_entries
    memmove(b.columns, b.columns + done, b.coming.n_entries * sizeof(int64_t))
    b.now, b.coming = b.coming, b.now
    b.coming.n_rows = b.coming.n_entries = 0
    b.asked = max(<Py_ssize_t>0, b.asked - done)


cdef inline void ask_for(batch *b, const double *table, Py_ssize_t width, Py_ssize_t stop) \
        noexcept nogil:
    """Prefetch the weights of the entries before `stop`."""
    cdef Py_ssize_t stride = width * sizeof(double)
    cdef Py_ssize_t end = min(stop, b.now.n_entries + b.coming.n_entries)
    cdef char *start = <char *>table
    while b.asked < end:
        prefetch_row(&start, &stride, 1, b.columns[b.asked], stride)
        b.asked += 1


cdef inline Py_ssize_t number_of(uint32_t *places, int shift, int64_t *features, Py_ssize_t n,
                                 int64_t feature) noexcept nogil:
    """The number of a feature among the n of the batch; n if it is new."""
    cdef size_t place = (<size_t>feature * 0x9E3779B97F4A7C15u) >> shift
    cdef size_t last = (<size_t>1 << (64 - shift)) - 1
    while places[place]:
        if features[places[place] - 1] == feature:
            return places[place] - 1
        place = (place + 1) & last
    places[place] = <uint32_t>(n + 1)
    features[n] = feature
    return n


cdef inline int remember(journal *j, const batch *b, Py_ssize_t n_scores) noexcept nogil:
    """Add a block of a batch's parts; -1 if the matrix has changed, and there is no memory left."""
    cdef size_t end = <size_t>(j.memory + j.used), size
    cdef int k
    j.left_entries -= b.now.n_entries
    if j.left_entries < 0:
        return -1
    if j.whole:
        return 0
    size = lines(b.n_features * sizeof(int64_t))
    copy_past_caches(carve(&end, size), b.features, size)
    size = lines(b.n_features * n_scores * sizeof(double))
    for k in range(PARTS):
        copy_past_caches(carve(&end, size), b.parts[k], size)
    j.used = end - <size_t>j.memory
    j.counts[j.n_blocks] = b.n_features
    j.n_blocks += 1
    return 0


cdef inline void write_parts(double *table, const int64_t *features, double **parts, Py_ssize_t n,
                             Py_ssize_t n_scores) noexcept nogil:
    """Write the parts of n features into the table."""
    cdef Py_ssize_t number, c, k
    cdef double *row
    for number in range(n):
        row = table + features[number] * PARTS * n_scores
        for c in range(n_scores):
            k = number * n_scores + c
            row[PARTS * c], row[PARTS * c + 1] = parts[0][k], parts[1][k]
            row[PARTS * c + 2] = parts[2][k]


cdef inline void put_back(double *table, Py_ssize_t n_rows, Py_ssize_t n_scores, journal *j) \
        noexcept nogil:
    """Make the table what it was, block by block: the first one of a feature is the oldest."""
    cdef Py_ssize_t width = PARTS * n_scores, i, n
    cdef double *parts[PARTS]
    cdef size_t end, size
    cdef int64_t *features
    cdef int k
    if j.whole:
        memcpy(table, j.memory, n_rows * width * sizeof(double))
    for i in range(j.n_blocks - 1, -1, -1):
        n = j.counts[i]
        j.used -= _block_size(n, n_scores)
        end = <size_t>(j.memory + j.used)
        features = <int64_t *>carve(&end, n * sizeof(int64_t))
        size = n * n_scores * sizeof(double)
        for k in range(PARTS):
            parts[k] = <double *>carve(&end, size)
        write_parts(table, features, parts, n, n_scores)
    memcpy(table + (n_rows - 1) * width, j.bias, width * sizeof(double))

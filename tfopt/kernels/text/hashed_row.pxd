# cython: language_level=3
"""Rows of text as entries of hashed features: what they are made of, their ends, their crosses."""

from libc.math cimport fabs, isfinite
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort, realloc
from libc.string cimport memchr

from tfopt.kernels.text.hashing cimport column_of, feed, hash_of, murmur
from tfopt.kernels.text.libsvm cimport finite_number

cdef enum:
    MOST_QUOTED = 1 << 23   # bytes within which a quote must be closed
    FEW = 64                # entries that insertions sort

cdef extern from "<float.h>":
    double LARGEST "FLT_MAX"

# What a column is; `tfopt.io.hashed_text` has the same numbers.
cdef enum role:
    LEFT_OUT
    CATEGORY
    NUMBER
    LABEL
    WEIGHT

# What is wrong with a row; `tfopt.io.hashed_text` has the words.
cdef enum kind:
    NOTHING
    WRONG_COUNT
    AFTER_QUOTE
    OPEN_QUOTE
    BAD_NUMBER
    BAD_LABEL
    BAD_WEIGHT
    BAD_PRODUCT
    NO_BAR
    TOO_MANY_NUMBERS

cdef struct fault:
    kind what
    const uint8_t *at
    Py_ssize_t length
    Py_ssize_t count        # of fields, if it is wrong

cdef struct column:
    murmur state            # of what is before a value
    const uint8_t *name
    Py_ssize_t n_name
    int role
    bint is_crossed

# A feature of a group that is crossed: a column, or a namespace.
cdef struct feature:
    int group
    murmur state            # of all its text
    const uint8_t *name
    Py_ssize_t n_name
    const uint8_t *text     # what follows "=", or the name if there is none
    Py_ssize_t n_text
    bint has_quotes         # whether quotes in the text are doubled
    double value

cdef struct entry:
    uint64_t key            # the column of X, and which feature of the row it is
    double value

cdef struct row:
    double label
    double weight
    Py_ssize_t end          # of its entries

cdef struct piece:
    const uint8_t *start
    const uint8_t *end
    row *rows
    Py_ssize_t n_rows
    Py_ssize_t most_rows
    entry *entries
    Py_ssize_t n_entries
    Py_ssize_t most_entries
    feature *features       # of the row that is being read
    Py_ssize_t n_features
    Py_ssize_t most_features
    fault first
    Py_ssize_t n_bad
    bint is_full            # there is no more memory

cdef struct plan:
    const column *columns   # or, of Vowpal Wabbit's text, the namespaces that are crossed
    int n_columns
    const int *crosses      # pairs of groups
    int n_crosses
    uint8_t separator
    bint has_quotes
    bint is_vw
    bint single             # whether values become float32
    bint skips
    int n_hashes


cdef inline bint grow(void **data, Py_ssize_t *most, Py_ssize_t n, size_t itemsize) noexcept nogil:
    """Make room for n items; False if there is no memory."""
    cdef Py_ssize_t wanted = max(n, 2 * most[0], 256)
    cdef void *more = realloc(data[0], wanted * itemsize)
    if more == NULL:
        return False
    data[0], most[0] = more, wanted
    return True


# ---- ends of rows


cdef inline const uint8_t *closing_quote(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The quote that closes what begins at p; NULL if there is none. Doubled ones do not."""
    while p < end:
        p = <const uint8_t *>memchr(p, c'"', end - p)
        if p == NULL or p + 1 == end or p[1] != c'"':
            return p
        p += 2
    return NULL


cdef inline const uint8_t *end_of_row(const uint8_t *p, const uint8_t *end, const plan *to,
                                      bint is_last) noexcept nogil:
    """The newline that ends the row at p, or the end of the last one; NULL if it is not there.

    Newlines within quotes end no row, unless the quote is never closed.
    """
    cdef const uint8_t *start = p
    cdef const uint8_t *newline
    cdef const uint8_t *quote
    cdef const uint8_t *closing
    cdef const uint8_t *limit
    while True:
        newline = <const uint8_t *>memchr(p, c"\n", end - p)
        limit = end if newline == NULL else newline
        quote = NULL
        while to.has_quotes and p < limit:
            quote = <const uint8_t *>memchr(p, c'"', limit - p)
            if quote == NULL or quote == start or quote[-1] == to.separator:
                break
            p, quote = quote + 1, NULL
        if quote == NULL:
            break
        limit = end if end - quote <= MOST_QUOTED else quote + MOST_QUOTED
        closing = closing_quote(quote + 1, limit)
        if limit == end and not is_last and (closing == NULL or closing + 1 == end):
            return NULL
        if closing == NULL:
            break
        p = closing + 1
    return end if newline == NULL and is_last else newline


# ---- features


cdef inline void feed_text(murmur *m, const uint8_t *text, Py_ssize_t n,
                           bint has_quotes) noexcept nogil:
    """Feed text; of doubled quotes one."""
    cdef const uint8_t *end = text + n
    cdef const uint8_t *quote
    while has_quotes:
        quote = <const uint8_t *>memchr(text, c'"', end - text)
        if quote == NULL:
            break
        feed(m, text, quote + 1 - text)
        text = quote + 2
    feed(m, text, end - text)


cdef inline bint add_entry(piece *it, const murmur *m, double value, const plan *to) noexcept nogil:
    """Add an entry to the row, unless it is 0; False if there is no memory."""
    cdef int sign, index
    if value == 0:
        return True
    if it.n_entries == it.most_entries and not grow(
        <void **>&it.entries, &it.most_entries, it.n_entries + 1, sizeof(entry)
    ):
        it.is_full = True
        return False
    index = column_of(hash_of(m), to.n_hashes, &sign)
    it.entries[it.n_entries].key = <uint64_t>index << 32 | <uint32_t>it.n_entries
    it.entries[it.n_entries].value = <float>(sign * value) if to.single else sign * value
    it.n_entries += 1
    return True


cdef inline bint keep_feature(piece *it, const feature *one) noexcept nogil:
    """Keep a feature for the crosses of the row."""
    if it.n_features == it.most_features and not grow(
        <void **>&it.features, &it.most_features, it.n_features + 1, sizeof(feature)
    ):
        it.is_full = True
        return False
    it.features[it.n_features] = one[0]
    it.n_features += 1
    return True


cdef inline kind add_crosses(piece *it, const plan *to) noexcept nogil:
    """Add the pairs of features of groups that are crossed."""
    cdef Py_ssize_t c, j, k
    cdef feature *one
    cdef feature *other
    cdef murmur state
    cdef double value
    for c in range(to.n_crosses):
        for j in range(it.n_features):
            one = &it.features[j]
            if one.group != to.crosses[2 * c]:
                continue
            for k in range(it.n_features):
                other = &it.features[k]
                if other.group != to.crosses[2 * c + 1]:
                    continue
                state, value = one.state, one.value * other.value
                if not isfinite(value) or (to.single and fabs(value) > LARGEST):
                    return BAD_PRODUCT
                feed(&state, <const uint8_t *>b"*", 1)
                feed(&state, other.name, other.n_name)
                if other.n_name and other.text != other.name:
                    feed(&state, <const uint8_t *>b"=", 1)
                if other.text != other.name:
                    feed_text(&state, other.text, other.n_text, other.has_quotes)
                if not add_entry(it, &state, value, to):
                    return NOTHING
    return NOTHING


cdef inline int compare_entries(const void *one, const void *other) noexcept nogil:
    cdef uint64_t a = (<const entry *>one).key, b = (<const entry *>other).key
    return (a > b) - (a < b)


cdef inline void close_row(piece *it, Py_ssize_t first, bint single) noexcept nogil:
    """Sort the entries of the row by columns, and add up those of one column in their order."""
    cdef entry *entries = it.entries + first
    cdef Py_ssize_t n = it.n_entries - first, j, k, last = 0
    cdef entry one
    if n > FEW:
        qsort(entries, n, sizeof(entry), compare_entries)
    else:
        for k in range(1, n):
            one, j = entries[k], k
            while j and entries[j - 1].key > one.key:
                entries[j] = entries[j - 1]
                j -= 1
            entries[j] = one
    for k in range(1, n):
        if entries[k].key >> 32 == entries[last].key >> 32:
            entries[last].value += entries[k].value
            if single:
                entries[last].value = <float>entries[last].value
        else:
            last += 1
            entries[last] = entries[k]
    if n:
        it.n_entries = first + last + 1


cdef inline kind read_number(const uint8_t *start, const uint8_t *end, double *value, kind wrong,
                             bint single) noexcept nogil:
    """Read a number; return what is wrong if it is none that is finite."""
    if not finite_number(start, end, value) or (single and fabs(value[0]) > LARGEST):
        return wrong
    return NOTHING

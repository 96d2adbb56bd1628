# cython: language_level=3
"""A row of delimited text."""

from libc.stdint cimport uint8_t
from libc.string cimport memchr

from tfopt.kernels.text.hashed_row cimport (
    AFTER_QUOTE, BAD_LABEL, BAD_NUMBER, BAD_WEIGHT, CATEGORY, LABEL, NOTHING, NUMBER, OPEN_QUOTE,
    WEIGHT, WRONG_COUNT, add_entry, closing_quote, column, fault, feature, feed_text, keep_feature,
    kind, piece, plan, read_number, row,
)
from tfopt.kernels.text.hashing cimport murmur


cdef inline kind read_fields(const uint8_t *p, const uint8_t *end, piece *it, row *one,
                             const plan *to, fault *wrong) noexcept nogil:
    """Read a row of delimited text."""
    cdef const column *field
    cdef const uint8_t *start
    cdef const uint8_t *stop
    cdef kind what
    cdef double value
    cdef murmur state
    cdef feature kept
    cdef int k
    cdef bint is_quoted
    for k in range(to.n_columns):
        field = &to.columns[k]
        is_quoted = to.has_quotes and p < end and p[0] == c'"'
        wrong.at = p
        if is_quoted:
            start, stop = p + 1, closing_quote(p + 1, end)
            if stop == NULL:
                wrong.length = end - p
                return OPEN_QUOTE
            p = stop + 1
            if p < end and p[0] != to.separator:
                wrong.length = p + 1 - wrong.at
                return AFTER_QUOTE
        else:
            start = p
            while p < end and p[0] != to.separator:
                p += 1
            stop = p
        wrong.length = p - wrong.at
        if (p == end) != (k + 1 == to.n_columns):
            wrong.count = k + 1
            while p < end:      # the separators that are left
                p = <const uint8_t *>memchr(p, to.separator, end - p)
                if p == NULL:
                    break
                p += 1
                wrong.count += 1
            return WRONG_COUNT
        p += 1
        if field.role == CATEGORY:
            if start == stop:
                continue
            state, value = field.state, 1.0
            feed_text(&state, start, stop - start, is_quoted)
        elif field.role == NUMBER:
            if start == stop:
                continue
            what = read_number(start, stop, &value, BAD_NUMBER, to.single)
            if what != NOTHING:
                return what
            state = field.state
        else:
            if field.role == LABEL:
                what = read_number(start, stop, &one.label, BAD_LABEL, False)
            elif field.role == WEIGHT:
                what = read_number(start, stop, &one.weight, BAD_WEIGHT, False)
                if one.weight < 0:
                    what = BAD_WEIGHT
            else:
                what = NOTHING
            if what != NOTHING:
                return what
            continue
        if not add_entry(it, &state, value, to):
            return NOTHING
        if field.is_crossed and value != 0:
            kept = feature(k, state, field.name, field.n_name, start, stop - start, is_quoted,
                           value)
            if field.role == NUMBER:
                kept.text = field.name
            if not keep_feature(it, &kept):
                return NOTHING
    return NOTHING

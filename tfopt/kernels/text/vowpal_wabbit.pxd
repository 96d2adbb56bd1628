# cython: language_level=3
"""A row of Vowpal Wabbit's text: ``label [importance] [tag]|space a b:2 |other c``."""

from libc.math cimport fabs, isfinite
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcmp

from tfopt.kernels.text.hashed_row cimport (
    BAD_LABEL, BAD_NUMBER, BAD_WEIGHT, LARGEST, NO_BAR, NOTHING, TOO_MANY_NUMBERS, add_entry, fault,
    feature, keep_feature, kind, piece, plan, read_number, row,
)
from tfopt.kernels.text.hashing cimport feed, murmur


cdef inline bint _is_blank(uint8_t c) noexcept nogil:
    return c == c" " or c == c"\t"


cdef inline const uint8_t *_token_end(const uint8_t *p, const uint8_t *end) noexcept nogil:
    while p < end and not _is_blank(p[0]) and p[0] != c"|":
        p += 1
    return p


cdef inline kind _head(const uint8_t *p, const uint8_t *bar, row *one, fault *wrong) noexcept nogil:
    """Read the label, the importance and the tag of a row of Vowpal Wabbit's text."""
    cdef const uint8_t *stop
    cdef kind what
    cdef int n = 0
    while p < bar:
        if _is_blank(p[0]):
            p += 1
            continue
        stop = _token_end(p, bar)
        if p[0] == c"'" or stop == bar:     # a tag
            return NOTHING
        wrong.at, wrong.length = p, stop - p
        if n == 0:
            what = read_number(p, stop, &one.label, BAD_LABEL, False)
        elif n == 1:
            what = read_number(p, stop, &one.weight, BAD_WEIGHT, False)
            if one.weight < 0:
                what = BAD_WEIGHT
        else:
            what = TOO_MANY_NUMBERS
        if what != NOTHING:
            return what
        p = stop
        n += 1
    return NOTHING


cdef inline int _group_of(const uint8_t *name, Py_ssize_t n, const plan *to) noexcept nogil:
    """The number of a namespace among those that are crossed; -1: it is not."""
    cdef int k
    for k in range(to.n_columns):
        if to.columns[k].n_name == n and memcmp(to.columns[k].name, name, n) == 0:
            return k
    return -1


cdef inline kind read_namespaces(const uint8_t *p, const uint8_t *end, piece *it, row *one,
                                 const plan *to, fault *wrong) noexcept nogil:
    """Read a row of Vowpal Wabbit's text."""
    cdef const uint8_t *bar = <const uint8_t *>memchr(p, c"|", end - p)
    cdef const uint8_t *stop
    cdef const uint8_t *colon
    cdef const uint8_t *name
    cdef Py_ssize_t n_name
    cdef double scale, value
    cdef murmur before, state
    cdef feature kept
    cdef kind what
    cdef int group
    if bar == NULL:
        return NO_BAR
    what = _head(p, bar, one, wrong)
    if what != NOTHING:
        return what
    name, n_name, group, scale, before = bar, 0, -1, 1.0, murmur(0, 0, 0, 0)
    p = bar
    while p < end:
        if _is_blank(p[0]):
            p += 1
            continue
        value = 1.0
        if p[0] == c"|":
            p += 1
            scale = 1.0
        stop = _token_end(p, end)
        colon = <const uint8_t *>memchr(p, c":", stop - p) if stop > p else NULL
        wrong.at, wrong.length = p, stop - p
        if colon != NULL:
            what = read_number(colon + 1, stop, &value, BAD_NUMBER, to.single)
            if what != NOTHING:
                return what
        else:
            colon = stop
        if p[-1] == c"|":       # a namespace, perhaps without a name
            name, n_name, scale, before = p, colon - p, value, murmur(0, 0, 0, 0)
            group = _group_of(name, n_name, to)
            feed(&before, name, n_name)
            if n_name:
                feed(&before, <const uint8_t *>b"=", 1)
        else:
            state = before
            value *= scale
            if not isfinite(value) or (to.single and fabs(value) > LARGEST):
                return BAD_NUMBER
            feed(&state, p, colon - p)
            if not add_entry(it, &state, value, to):
                return NOTHING
            if group >= 0 and value != 0:
                kept = feature(group, state, name, n_name, p, colon - p, False, value)
                if not keep_feature(it, &kept):
                    return NOTHING
        p = stop
    return NOTHING

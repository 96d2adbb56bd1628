# cython: language_level=3
# What DLPack's header declares: an array as its library describes it, and the functions by which
# a library describes its arrays without Python objects (version 1.3).
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    HOST = 1        # device types
    INTEGER = 0     # type codes
    UNSIGNED = 1
    FLOAT = 2
    BFLOAT = 4
    COMPLEX = 5

cdef struct described:
    void *data
    int32_t device
    int32_t device_number
    int32_t ndim
    uint8_t code
    uint8_t bits
    uint16_t lanes
    int64_t *shape
    int64_t *strides        # in elements; NULL: in C order
    uint64_t byte_offset

cdef struct exchange:
    uint32_t major
    uint32_t minor
    exchange *previous
    void *allocate
    void *managed_of
    void *object_of
    int (*describe)(void *array, described *into) noexcept
    int (*current_stream)(int32_t device, int32_t device_number, void **stream) noexcept

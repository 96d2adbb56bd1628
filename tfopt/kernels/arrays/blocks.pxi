# Operands stored in blocks of codes, included by layout.pyx: decoded into L1, stepped, encoded.

include "dynamic_codes.pxi"

cdef enum:
    TOGETHER = 2    # blocks of each operand
    FAR = 1 << 20   # elements that no second-level cache holds: the next ones are prefetched

cdef struct block_run:
    # consecutive numbers of all operands, of which the last block may not be full
    Py_ssize_t n
    char *at[MAX_OPERANDS]
    float *numbers[MAX_OPERANDS]    # in the buffer, or in place
    block_numbers[MAX_OPERANDS][TOGETHER] buffer
    int32_t[TOGETHER][MAX_OPERANDS] largest     # magnitudes, as bits
    float[TOGETHER][MAX_OPERANDS] unit
    float[TOGETHER][MAX_OPERANDS] inverse


cdef bint _in_blocks(const layout *axes, const block_steps *blocks,
                     int n_operands) noexcept nogil:
    """Whether there is a step that decodes the slots itself, from the codes they are stored in."""
    cdef int k
    if blocks == NULL or blocks.step == NULL:
        return False
    for k in range(1, n_operands - 1):
        if axes.storage[k] != blocks.storage[k]:
            return False
    return True


cdef inline const block_format *_format(int storage) noexcept nogil:
    return &_halves.formats[storage - SIGNED8]


cdef inline void _read_numbers(const layout *axes, int k, bint clamps,
                               block_run *run) noexcept nogil:
    """Widen numbers that are not stored in blocks, or take them in place."""
    run.numbers[k] = run.buffer[k][0]
    if axes.storage[k] != NATIVE:
        _halves.widen[axes.storage[k]](<const uint16_t *>run.at[k], run.n, run.buffer[k][0])
    elif clamps:
        memcpy(run.buffer[k][0], run.at[k], run.n * sizeof(float))
    else:
        run.numbers[k] = <float *>run.at[k]
    if clamps:
        clamp(run.numbers[k], run.n, False, axes.bounds)


cdef void _step_decoded(const layout *axes, step_t step, int n_operands, int n_written,
                        block_run *run, int first, const void *h) noexcept nogil:
    """Step the numbers from a block on, of which blocks are decoded before."""
    cdef void *p[MAX_OPERANDS]
    cdef Py_ssize_t start = first * CODES, full = (run.n + CODES - 1) // CODES * CODES
    cdef int b, k
    for k in range(n_operands):
        p[k] = run.numbers[k] + start
        if axes.storage[k] >= SIGNED8:
            for b in range(first, full // CODES):
                _format(axes.storage[k]).decode(
                    run.at[k] + b * _format(axes.storage[k]).bytes, run.buffer[k][b])
    step(p, run.n - start, h)
    for k in range(n_written):
        if axes.storage[k] >= SIGNED8:
            memset(run.buffer[k][0] + run.n, 0, (full - run.n) * sizeof(float))
            for b in range(first, full // CODES):
                if _format(axes.storage[k]).encode_alone == NULL:
                    run.largest[b][k] = _halves.largest(run.buffer[k][b])
    for b in range(first, full // CODES):
        _set_units(axes.storage, n_written, b, run)


cdef inline void _set_units(const int *storage, int n_written, int b,
                            block_run *run) noexcept nogil:
    """Compute the units of a block of all operands: early, since encoding waits for divisions."""
    cdef int k
    for k in range(n_written):
        if storage[k] >= SIGNED8 and _format(storage[k]).encode_alone == NULL:
            run.unit[b][k] = unit_of(run.largest[b][k], _format(storage[k]).largest_code,
                                     &run.inverse[b][k])


cdef void _write_blocks(const int *storage, int n_written, block_run *run) noexcept nogil:
    """Encode the numbers of all operands."""
    cdef const block_format *format
    cdef int b, k, n = (run.n + CODES - 1) // CODES
    for b in range(n):
        for k in range(n_written):
            if storage[k] < SIGNED8:
                continue
            format = _format(storage[k])
            if format.encode_alone != NULL:
                format.encode_alone(run.buffer[k][b], run.at[k] + b * format.bytes)
            else:
                format.encode(run.buffer[k][b], run.unit[b][k], run.inverse[b][k],
                              run.at[k] + b * format.bytes)


cdef void run_blocks(const layout *axes, step_t step, const block_steps *blocks, int n_operands,
                     bint writes, char **data, Py_ssize_t start, Py_ssize_t stop,
                     const void *h) noexcept nogil:
    """Step elements start .. stop - 1 of contiguous operands, of which some are blocks of codes.

    The start is that of a block. A step that does not write only looks: nothing is encoded, since
    not all codes survive that.
    """
    cdef block_run run
    cdef float *p[MAX_OPERANDS]
    cdef const void *at[MAX_OPERANDS]
    cdef uint16_t[(MAX_OPERANDS - 1) * NOISE_ROW] memory
    cdef const uint16_t *noise = NULL
    cdef Py_ssize_t ahead, byte, first = start
    cdef int b, k, storage, whole, last = n_operands - 1
    cdef int n_written = axes.n_written if writes else 0
    cdef bint in_blocks = _in_blocks(axes, blocks, n_operands)
    while start < stop:
        run.n = min(<Py_ssize_t>(TOGETHER * CODES), stop - start)
        for k in range(n_operands):
            storage = axes.storage[k]
            if storage >= SIGNED8:
                run.at[k] = data[k] + start // CODES * _format(storage).bytes
                run.numbers[k] = run.buffer[k][0]
            else:
                run.at[k] = data[k] + start * (4 if storage == NATIVE else 2)
                _read_numbers(axes, k, axes.clamps and k == last, &run)
        whole = run.n // CODES if in_blocks else 0
        for b in range(whole):
            for k in range(n_operands):
                p[k] = run.numbers[k] + b * CODES
                at[k] = run.at[k] + b * <Py_ssize_t>sizeof(signed8)
            blocks.step(p, at, <const float *>h, run.largest[b])
            _set_units(axes.storage, n_written, b, &run)
        if whole * CODES < run.n:
            _step_decoded(axes, step, n_operands, n_written, &run, whole, h)
        for k in range(n_operands if stop - first > FAR else 0):    # while numbers are encoded
            if axes.storage[k] >= SIGNED8:
                ahead = TOGETHER * _format(axes.storage[k]).bytes
            else:
                ahead = TOGETHER * CODES * (4 if axes.storage[k] == NATIVE else 2)
            for byte in range(ahead, 2 * ahead, 64):
                prefetch_stream(run.at[k] + byte)
        _write_blocks(axes.storage, n_written, &run)
        if axes.rounds and writes:
            noise = _noise(axes, start, 1, run.n, memory)
        for k in range(n_written):
            storage = axes.storage[k]
            if axes.rounds and storage == BFLOAT16:
                _halves.round(run.buffer[k][0], run.n, noise + k * NOISE_ROW,
                              <uint16_t *>run.at[k])
            elif NATIVE < storage < SIGNED8:
                _halves.narrow[storage](run.buffer[k][0], run.n, <uint16_t *>run.at[k])
        start += run.n


cdef void decode_block(int storage, const char *blocks, Py_ssize_t start, Py_ssize_t n,
                       float *to) noexcept nogil:
    """Read the n numbers of the block that begins with element `start`."""
    cdef block_numbers numbers
    blocks += start // CODES * _format(storage).bytes
    _format(storage).decode(blocks, numbers)
    memcpy(to, numbers, n * sizeof(float))


cdef void encode_block(int storage, const float *numbers, Py_ssize_t n, char *blocks,
                       Py_ssize_t start) noexcept nogil:
    """Write the n numbers of the block that begins with element `start`."""
    cdef block_run run
    run.n = n
    run.at[0] = blocks + start // CODES * _format(storage).bytes
    memset(run.buffer[0][0], 0, sizeof(block_numbers))
    memcpy(run.buffer[0][0], numbers, n * sizeof(float))
    if _format(storage).encode_alone == NULL:
        run.largest[0][0] = _halves.largest(run.buffer[0][0])
    _set_units(&storage, 1, 0, &run)
    _write_blocks(&storage, 1, &run)


cdef char *_blocks_of(cnp.ndarray blocks, Py_ssize_t n, int storage) except NULL:
    """The address of blocks for n numbers, after checking that they are."""
    if not (0 <= storage - SIGNED8 < N_FORMATS and cnp.PyArray_ISCARRAY_RO(blocks)
            and cnp.PyArray_NBYTES(blocks) == (n + CODES - 1) // CODES * _format(storage).bytes):
        raise InvalidArgumentError(f"blocks of storage {storage} do not fit {n} numbers")
    return <char *>cnp.PyArray_DATA(blocks)


def encode(float[::1] numbers not None, cnp.ndarray blocks not None, int storage):
    """Write numbers to blocks of codes."""
    cdef Py_ssize_t start, n = numbers.shape[0]
    cdef char *at = _blocks_of(blocks, n, storage)
    cdef fp_state caller
    if not cnp.PyArray_ISWRITEABLE(blocks):
        raise InvalidArgumentError("blocks are read-only")
    caller = fp_enter(flush_denormals())
    for start in range(0, n, CODES):
        encode_block(storage, &numbers[start], min(<Py_ssize_t>CODES, n - start), at, start)
    fp_leave(caller)


def decode(cnp.ndarray blocks not None, float[::1] numbers not None, int storage):
    """Read numbers from blocks of codes."""
    cdef Py_ssize_t start, n = numbers.shape[0]
    cdef const char *at = _blocks_of(blocks, n, storage)
    cdef fp_state caller = fp_enter(flush_denormals())
    for start in range(0, n, CODES):
        decode_block(storage, at, start, min(<Py_ssize_t>CODES, n - start), &numbers[start])
    fp_leave(caller)

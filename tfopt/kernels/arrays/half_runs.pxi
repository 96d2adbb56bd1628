# Operands that are all of one 16-bit type, included by layout.pyx: whole chunks are stepped where
# they are. What is left of a run, or of several rows, is stepped in copies that fill chunks.

cdef enum:
    PARTS = 4 * BFLOAT16_CHUNK  # numbers of each operand, of several rows
    PLACES_BITS = 11            # of the table of rows that are stepped together


cdef inline int _narrow_bound(const layout *axes, int storage) noexcept nogil:
    """The bound of the gradient as a number of a 16-bit type; -1 if it is none."""
    cdef float bound = <float>axes.bounds[1]
    cdef uint16_t bits = float16_of(bound) if storage == FLOAT16 else bfloat16_of(bound)
    cdef float same = float_of_float16(bits) if storage == FLOAT16 else float_of_bfloat16(bits)
    return bits if bits < 0x8000 and same == axes.bounds[1] else -1


cdef bint begin_halves(half_run *run, const layout *axes, const half_step_t *half, int n_operands,
                       const float *h) noexcept nogil:
    """Whether all operands are contiguous numbers of one 16-bit type, and there is a step of it."""
    cdef int k, bound = 0, storage = axes.storage[0]
    if half == NULL or storage == NATIVE or half[storage - 1] == NULL:
        return False
    for k in range(n_operands):
        if axes.storage[k] != storage or (axes.stride[k][0] != 2 and axes.shape[0] != 1):
            return False
    if axes.clamps:
        bound = _narrow_bound(axes, storage)
        if bound < 0:
            return False
    run.axes, run.step, run.n_operands = axes, half[storage - 1], n_operands
    run.chunk = FLOAT16_CHUNK if storage == FLOAT16 else BFLOAT16_CHUNK
    run.bound, run.infinity = <uint16_t>bound, 0x7c00 if storage == FLOAT16 else 0x7f80
    for k in range(MAX_SCALARS + N_SCALES):     # of NaNs, rounding takes the processor's only
        run.h[k] = h[k] if h[k] == h[k] else <float>NAN
    return True


cdef inline void _clamp_narrow(const uint16_t *x, Py_ssize_t n, uint16_t bound, uint16_t infinity,
                               uint16_t *y) noexcept nogil:
    """Clamp 16-bit numbers to a bound and the negative; NaNs stay."""
    cdef uint16_t magnitude
    cdef Py_ssize_t i
    for i in range(n):
        magnitude = x[i] & 0x7fff
        magnitude = bound if (magnitude > bound) & (magnitude <= infinity) else magnitude
        y[i] = (x[i] & 0x8000) | magnitude


cdef inline void _copy_part(char *to, const char *source, Py_ssize_t n) noexcept nogil:
    """Copy less than a chunk; a call of memcpy would take longer."""
    while n >= 16:
        memcpy(to, source, 16)
        to, source, n = to + 16, source + 16, n - 16
    if n & 8:
        memcpy(to, source, 8)
        to, source = to + 8, source + 8
    if n & 4:
        memcpy(to, source, 4)
        to, source = to + 4, source + 4
    if n & 2:
        memcpy(to, source, 2)


cdef void _run_halves(const half_run *run, char **at, Py_ssize_t n) noexcept nogil:
    """Step a run of 16-bit numbers, its rest as the first part of a chunk."""
    cdef const layout *axes = run.axes
    cdef uint16_t[MAX_OPERANDS][BFLOAT16_CHUNK] rest
    cdef uint16_t[PIECE] clamped
    cdef uint16_t[(MAX_OPERANDS - 1) * NOISE_ROW] memory
    cdef const uint16_t *noise = NULL
    cdef uint16_t *p[MAX_OPERANDS]
    cdef int k, last = run.n_operands - 1
    cdef Py_ssize_t done = 0, piece, whole = n - n % run.chunk
    cdef Py_ssize_t first = 0, by = 0     # the index of the first element, and from one to the next
    if axes.rounds:
        first, by = <Py_ssize_t>at[last + 1], axes.stride[last + 1][0]
    while done < whole:
        piece = whole - done
        if axes.clamps and piece > PIECE:
            piece = PIECE
        if axes.rounds:
            piece = min(piece, <Py_ssize_t>NOISES)
            noise = _noise(axes, first + done * by, by, piece, memory)
        for k in range(last + 1):
            p[k] = <uint16_t *>at[k] + done
        if axes.clamps:
            _clamp_narrow(p[last], piece, run.bound, run.infinity, clamped)
            p[last] = clamped
        run.step(p, piece, run.h, noise)
        done += piece
    if done == n:
        return
    piece = n - done
    memset(rest, 0, sizeof(rest))
    for k in range(last + 1):
        p[k] = rest[k]
        _copy_part(<char *>p[k], at[k] + 2 * done, 2 * piece)
    if axes.clamps:
        _clamp_narrow(p[last], piece, run.bound, run.infinity, p[last])
    if axes.rounds:
        noise = _noise(axes, first + done * by, by, piece, memory)
    run.step(p, run.chunk, run.h, noise)
    for k in range(last):
        _copy_part(at[k] + 2 * done, <char *>p[k], 2 * piece)


cdef void _copy_parts(char *first, Py_ssize_t stride, const Py_ssize_t *rows, Py_ssize_t n_rows,
                      char *run, Py_ssize_t n, bint back) noexcept nogil:
    """Copy n bytes of each of some rows to a run, or back."""
    cdef char *at
    cdef Py_ssize_t j
    for j in range(n_rows):
        at = first + rows[j] * stride
        if back:
            _copy_part(at, run, n)
        else:
            _copy_part(run, at, n)
        run += n


cdef void _noise_of_parts(const half_run *run, const Py_ssize_t *rows, Py_ssize_t n_rows,
                          Py_ssize_t inner, Py_ssize_t part, uint16_t *into) noexcept nogil:
    """The noise of the last elements of each of some rows, in rows of NOISE_ROW."""
    cdef uint16_t[(MAX_OPERANDS - 1) * NOISE_ROW] memory
    cdef const uint16_t *noise
    cdef Py_ssize_t j, by = run.axes.stride[run.n_operands][0]
    cdef int k
    for j in range(n_rows):
        noise = _noise(run.axes, rows[j] * inner + (inner - part) * by, by, part, memory)
        for k in range(run.n_operands - 1):
            _copy_part(<char *>(into + k * NOISE_ROW + j * part),
                       <const char *>(noise + k * NOISE_ROW), 2 * part)


cdef Py_ssize_t _distinct(const Py_ssize_t *rows, Py_ssize_t n, uint16_t turn,
                          uint16_t *seen) noexcept nogil:
    """How many of the first rows are surely distinct, by a table with a turn for each call."""
    cdef Py_ssize_t j
    cdef uint64_t place
    for j in range(n):
        place = <uint64_t>rows[j] * <uint64_t>0x9E3779B97F4A7C15 >> (64 - PLACES_BITS)
        if seen[place] == turn:
            return j
        seen[place] = turn
    return n


cdef void run_half_rows(const half_run *run, char **data, const Py_ssize_t *stride,
                        const Py_ssize_t *rows, const Py_ssize_t *places, Py_ssize_t n,
                        Py_ssize_t inner, Py_ssize_t fetched) noexcept nogil:
    """Step row rows[j] of the variable and its slots by row places[j] of the gradient, in order.

    The numbers that are left of a row are stepped together with those of the rows after it, as far
    as these are other rows. There are fewer than 65536 rows, of which so many bytes are prefetched.
    """
    cdef uint16_t[MAX_OPERANDS][PARTS] parts
    cdef uint16_t[1 << PLACES_BITS] seen
    cdef uint16_t[(MAX_OPERANDS - 1) * NOISE_ROW] noise
    cdef uint16_t *p[MAX_OPERANDS]
    cdef char *at[MAX_OPERANDS + 1]
    cdef int k, last = run.n_operands - 1
    cdef Py_ssize_t part = inner % run.chunk, whole = inner - part
    cdef Py_ssize_t start = 0, j, count = 1, filled
    cdef uint16_t turn = 0
    if part:
        memset(seen, 0, sizeof(seen))
        memset(parts, 0, sizeof(parts))
    while start < n:
        if part:
            turn += 1
            count = _distinct(rows + start, min(n - start, PARTS // part), turn, seen)
        for j in range(start + AHEAD, min(start + AHEAD + count, n)):
            prefetch_row(data, stride, last, rows[j], fetched)
        for j in range(start, start + count if whole else start):
            for k in range(last):
                at[k] = data[k] + rows[j] * stride[k]
            at[last] = data[last] + places[j] * stride[last]
            at[last + 1] = <char *>(rows[j] * inner)
            _run_halves(run, at, whole)
        if part:
            for k in range(last + 1):
                p[k] = parts[k]
                _copy_parts(data[k] + 2 * whole, stride[k], (rows if k < last else places) + start,
                            count, <char *>p[k], 2 * part, False)
            filled = count * part
            if run.axes.clamps:
                _clamp_narrow(p[last], filled, run.bound, run.infinity, p[last])
            if run.axes.rounds:
                _noise_of_parts(run, rows + start, count, inner, part, noise)
            run.step(p, (filled + run.chunk - 1) // run.chunk * run.chunk, run.h,
                     noise if run.axes.rounds else NULL)
            for k in range(last):
                _copy_parts(data[k] + 2 * whole, stride[k], rows + start, count, <char *>p[k],
                            2 * part, True)
        start += count

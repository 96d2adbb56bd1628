"""FTRL-Proximal over the rows of a CSR matrix.

A row costs what its own entries cost, however large the table of weights is. The weights, slots and
gradients of a batch's features are gathered into columns, which stay in the cache; a batch reads
and writes each of its features' lines in the large table once, and they are asked for long before,
because which come next is known. What the batches before the last change is remembered, and the
last one is written only if it is finite, so that a call whose numbers overflow leaves everything as
it was.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from tfopt.errors import InvalidArgumentError
from tfopt.kernels import kernels

from tfopt.kernels.arrays.csr cimport (
    check_length, extent, extent_of, index, once, refuse_outside, within,
)
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state, raise_flag
from tfopt.kernels.platform.runtime cimport flush_denormals
from tfopt.kernels.sdca.losses cimport POISSON, loss_t, tangent_at
from tfopt.kernels.sdca.visits cimport named_loss
from tfopt.kernels.stream.batches cimport (
    AHEAD, PARTS, advance, ask_for, batch, journal, journal_size, lay_out, number_of, put_back,
    remember, stage, write_parts,
)
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.step_types cimport MAX_SCALARS, N_SCALES, step_t, steps
from tfopt.kernels.update.step_table cimport Kernel, steps_of

cdef enum:
    FLOAT64 = 1     # among the types of steps

cdef struct settings:
    loss_t loss
    bint intercept
    step_t step
    double h[MAX_SCALARS + N_SCALES]        # its scalars
    double h_bias[MAX_SCALARS + N_SCALES]   # without penalties

#: The weighted sum of the losses of rows, and the sum of their weights.
cdef struct sums:
    double loss
    double weight


cdef inline void _gather(const double *table, Py_ssize_t n_scores, batch *b) noexcept nogil:
    """Number the features of a batch, and copy their parts into columns."""
    cdef Py_ssize_t entry, c, k, number, n = 0, width = PARTS * n_scores
    cdef int64_t *columns = b.columns
    cdef int64_t *features = b.features
    cdef uint32_t *numbers = b.numbers
    cdef double *w = b.parts[0]
    cdef double *squares = b.parts[1]
    cdef double *linear = b.parts[2]
    cdef const double *row
    memset(b.places, 0, (<size_t>1 << (64 - b.shift)) * sizeof(uint32_t))
    for entry in range(b.now.n_entries):
        ask_for(b, table, width, entry + AHEAD)
        number = number_of(b.places, b.shift, features, n, columns[entry])
        numbers[entry] = <uint32_t>number
        if number == n:
            row = table + columns[entry] * width
            for c in range(n_scores):
                k = n * n_scores + c
                w[k], squares[k], linear[k] = row[PARTS * c], row[PARTS * c + 1], row[PARTS * c + 2]
            n += 1
    b.n_features = n


cdef inline double _slope(const loss_t *f, double score, double y, double *value) noexcept nogil:
    """The derivative of a loss, and the loss."""
    cdef double slope = 0, bend = 0
    if f.kind == POISSON:       # its tangent is above the least value
        value[0] = f.value(score, y, f.parameter)
        return f.slope(score, y, f.parameter)
    tangent_at(f, score, y, value, &slope, &bend)
    return slope


cdef inline void _differentiate(const real *data, const double *targets, const double *weights,
                                Py_ssize_t n_scores, const loss_t *f, batch *b, sums *total) \
        noexcept nogil:
    """Sum the gradients of a batch's rows, and their losses."""
    cdef Py_ssize_t r, i, k, c, start, length, entry = 0
    cdef uint32_t *numbers = b.numbers
    cdef double *gradients = b.gradients
    cdef double *slope = b.slopes
    cdef double *w = b.parts[0]
    cdef double score, x, y, loss = 0
    memset(gradients, 0, b.n_features * n_scores * sizeof(double))
    for r in range(b.now.n_rows):
        i, start, length = b.now.rows[r], b.now.starts[r], b.now.lengths[r]
        for c in range(n_scores):
            score = 0
            for k in range(length):
                x = data[start + k]
                score += x * w[numbers[entry + k] * n_scores + c]
            score += b.bias[PARTS * c]
            y = targets[i * n_scores + c]
            slope[c] = _slope(f, score, y, &loss) * weights[i]
            total.loss += loss * weights[i]
        total.weight += weights[i]
        for k in range(length):
            x = data[start + k]
            for c in range(n_scores):
                gradients[numbers[entry + k] * n_scores + c] += x * slope[c]
        entry += length
        slope += n_scores


cdef inline bint _step(Py_ssize_t n_scores, const settings *s, batch *b) noexcept nogil:
    """Take a step of a batch's columns, and of the intercepts; return whether all are finite."""
    cdef Py_ssize_t r, k, c, n = b.n_features * n_scores
    cdef double *w = b.parts[0]
    cdef double *squares = b.parts[1]
    cdef double *linear = b.parts[2]
    cdef double total
    cdef int64_t infinite = 0
    cdef void *operands[PARTS + 1]
    operands[0], operands[1], operands[2], operands[PARTS] = w, squares, linear, b.gradients
    s.step(operands, n, s.h)
    for k in range(n):
        infinite |= <int64_t>(w[k] * 0 + squares[k] * 0 + linear[k] * 0 != 0)
    if s.intercept:
        for c in range(n_scores):
            total = 0
            for r in range(b.now.n_rows):
                total += b.slopes[r * n_scores + c]
            for k in range(PARTS):
                operands[k] = &b.bias[PARTS * c + k]
            operands[PARTS] = &total
            s.step(operands, 1, s.h_bias)
        for k in range(PARTS * n_scores):
            infinite |= <int64_t>(b.bias[k] * 0 != 0)
    return infinite == 0


cdef inline bint _take(const real *data, const double *targets, const double *weights,
                       double *table, Py_ssize_t n_scores, Py_ssize_t n_columns, const settings *s,
                       batch *b, journal *j, sums *total, extent *bounds) noexcept nogil:
    """Take a batch of rows; return whether all weights are finite, and so written."""
    cdef double *bias = table + (n_columns - 1) * PARTS * n_scores
    _gather(table, n_scores, b)
    memcpy(b.bias, bias, PARTS * n_scores * sizeof(double))
    if b.coming.n_rows and remember(j, b, n_scores) < 0:
        raise_flag(&bounds.outside)
        return False
    _differentiate(data, targets, weights, n_scores, &s.loss, b, total)
    if not _step(n_scores, s, b):
        return False
    write_parts(table, b.features, b.parts, b.n_features, n_scores)
    memcpy(bias, b.bias, PARTS * n_scores * sizeof(double))
    return True


cdef int _set_rule(settings *s, Kernel rule, double lr, double beta, double l1, double l2) \
        except -1:
    cdef double *hypers = [lr, l1, l2 + beta / (2 * lr), -0.5]
    cdef double *scales = [1, 1]
    cdef const steps *ftrl = steps_of(rule, 0, FLOAT64)
    ftrl = steps_of(rule, ftrl.choose(hypers), FLOAT64)
    s.step = ftrl.rows
    ftrl.scalars(hypers, scales, False, s.h)
    hypers[1], hypers[2] = 0, beta / (2 * lr)
    ftrl.scalars(hypers, scales, False, s.h_bias)
    return 0


def learn(const real[::1] data not None, const index[::1] indices not None,
          const index[::1] indptr not None, const int64_t[::1] order not None,
          const double[:, ::1] targets not None, const double[::1] weights not None,
          double[:, :, ::1] table not None, double[:, ::1] losses not None, Py_ssize_t batch_size,
          str loss not None, bint intercept, double lr, double beta, double l1, double l2,
          dict attributes not None, dict changes not None):
    """Take rows in an order, in batches whose gradients are added up for a step.

    Parameters
    ----------
    data, indices, indptr : array
        A CSR matrix of n rows and m columns.
    order : array of int64
        The rows to take.
    targets : array of float64, shape (n, n_scores)
        Labels, of a loss of classification -1 or 1.
    weights : array of float64, shape (n,)
        Of the rows.
    table : array of float64, shape (m + 1, n_scores, 3)
        Of each feature and, last, of the intercept: the weight, the sum of squared gradients and
        the linear term.
    losses : array of float64, shape (any, 2)
        To each row are added the weighted sum of the losses of the rows' scores, each before it is
        learned, and the sum of their weights.
    batch_size : int
    loss : str
        One of `tfopt.kernels.sdca.visits.LOSSES`.
    intercept : bool
        Whether there is one. It has no penalty.
    lr, beta, l1, l2 : float
    attributes, changes : dict
        The first is updated by the second if the table has changed. No interrupt comes between
        the changes of the table, the losses and the attributes.

    Returns
    -------
    bool
        False if a weight would not be finite; nothing has changed.

    Raises
    ------
    InvalidArgumentError
        If arrays do not fit each other; nothing has changed.
    """
    if batch_size < 1 or table.shape[2] != PARTS or table.shape[0] < 1 or table.shape[1] < 1:
        raise InvalidArgumentError(
            f"batch_size must be at least 1 and table of shape (m + 1, n_scores, 3): {batch_size}, "
            f"{table.shape[0], table.shape[1], table.shape[2]}"
        )
    cdef Py_ssize_t n = targets.shape[0], n_scores = table.shape[1], n_columns = table.shape[0]
    cdef extent bounds = extent_of(
        data.shape[0], indices.shape[0], indptr.shape[0], n, 0, n_columns
    )
    check_length("targets", targets.shape[1], n_scores)
    check_length("weights", weights.shape[0], n)
    check_length("a row of losses", losses.shape[1], 2)
    cdef settings s
    s.loss, s.intercept = named_loss(loss, 1), intercept
    _set_rule(&s, kernels["ftrl"], lr, beta, l1, l2)
    cdef Py_ssize_t first, rows, entries = 0, length, most = 0, before = 0, n_batches = 0, k
    batch_size = min(batch_size, max(1, order.shape[0]))
    for start in range(0, order.shape[0], batch_size):
        before += entries       # of the batches before this one
        first, entries = start, 0
        for k in range(first, min(first + batch_size, order.shape[0])):
            if within(order[k], n):
                length = once(&indptr[order[k] + 1]) - once(&indptr[order[k]])
                entries += max(0, min(length, bounds.n_entries))
        most = max(most, entries)
        n_batches += 1
    cdef batch b
    cdef journal j
    cdef sums total
    cdef fp_state caller
    cdef bint keep = True
    cdef const real *values = &data[0] if data.shape[0] else NULL
    cdef const index *columns = &indices[0] if indices.shape[0] else NULL
    cdef const int64_t *at = &order[0] if order.shape[0] else NULL
    cdef double *parts = &table[0, 0, 0]
    memset(&b, 0, sizeof(b))
    memset(&j, 0, sizeof(j))
    memset(&total, 0, sizeof(total))
    if most >= 2**31:
        raise MemoryError("a batch with more than 2**31 entries")
    b.most_rows, b.most_entries = batch_size, most
    b.shift = 60
    while (<Py_ssize_t>1 << (64 - b.shift)) < 4 * most:     # few features meet others
        b.shift -= 1
    j.whole, j.left_entries = before >= n_columns, before
    j.size = PARTS * n_scores * n_columns * sizeof(double) if j.whole \
        else journal_size(before, n_batches, n_scores)
    cdef void *memory = malloc(lay_out(&b, &j, n_scores, n_batches, 0) + 64)
    if memory == NULL:
        raise MemoryError
    try:
        lay_out(&b, &j, n_scores, n_batches, <size_t>memory)
        with nogil:
            caller = fp_enter(flush_denormals())
            if j.whole:
                memcpy(j.memory, parts, j.size)
            memcpy(j.bias, &parts[(n_columns - 1) * PARTS * n_scores],
                   PARTS * n_scores * sizeof(double))
            first, rows = 0, min(batch_size, order.shape[0])
            keep = stage(columns, &indptr[0], at, rows, &b, &bounds) == 0
            while keep and b.coming.n_rows:
                advance(&b)
                first += rows
                rows = min(batch_size, order.shape[0] - first)
                keep = stage(columns, &indptr[0], at + first, rows, &b, &bounds) == 0
                if keep and n_scores == 1:      # the compiler makes faster loops of a constant
                    keep = _take(values, &targets[0, 0], &weights[0], parts, 1, n_columns, &s, &b,
                                 &j, &total, &bounds)
                elif keep:
                    keep = _take(values, &targets[0, 0], &weights[0], parts, n_scores, n_columns,
                                 &s, &b, &j, &total, &bounds)
            if not keep:
                put_back(parts, n_columns, n_scores, &j)
            fp_leave(caller)
        refuse_outside(&bounds, data, indices, indptr, order)
        if keep:
            for k in range(losses.shape[0]):
                losses[k, 0] += total.loss
                losses[k, 1] += total.weight
            attributes.update(changes)
    finally:
        free(memory)
    return keep

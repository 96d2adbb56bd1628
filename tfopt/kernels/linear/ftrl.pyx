"""FTRL-Proximal over the rows of a CSR matrix.

A row costs what its own entries cost, however large the table of weights is. The weights, slots and
gradients of a batch's features are gathered into columns, which stay in the cache; a batch reads
and writes each of its features' lines in the large table once, and they are asked for long before,
because which come next is known. A batch is written only if all of it is finite: one whose numbers
overflow leaves the table as the batches before it made it.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from tfopt.errors import InvalidArgumentError
from tfopt.kernels import kernels

from tfopt.kernels.arrays.csr cimport (
    check_length, extent, extent_of, index, once, refuse_outside, within,
)
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state
from tfopt.kernels.platform.runtime cimport flush_denormals
from tfopt.kernels.linear.losses cimport loss_t, slope_at
from tfopt.kernels.linear.visits cimport named_loss
from tfopt.kernels.linear.batches cimport (
    AHEAD, PARTS, ask_ahead, batch, gather, lay_out, set_hash, stream, write_parts,
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


cdef inline void _differentiate(const real *data, const double *targets, const double *weights,
                                const double *offset, Py_ssize_t n_scores, const loss_t *f,
                                batch *b, sums *total) noexcept nogil:
    """Sum the gradients of a batch's rows, and their losses."""
    cdef Py_ssize_t r, i, k, c, start, length, entry = 0
    cdef uint32_t *numbers = b.numbers
    cdef double *gradients = b.gradients
    cdef double *slope = b.slopes
    cdef double *w = b.parts[0]
    cdef double score, x, y, loss = 0
    memset(gradients, 0, b.n_features * n_scores * sizeof(double))
    for r in range(b.n_rows):
        i, start, length = b.rows[r], b.starts[r], b.lengths[r]
        for c in range(n_scores):
            score = 0
            for k in range(length):
                x = data[start + k]
                score += x * w[numbers[entry + k] * n_scores + c]
            score += b.bias[PARTS * c]
            if offset != NULL:
                score += offset[i]
            y = targets[i * n_scores + c]
            slope[c] = slope_at(f, score, y, &loss) * weights[i]
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
            for r in range(b.n_rows):
                total += b.slopes[r * n_scores + c]
            for k in range(PARTS):
                operands[k] = &b.bias[PARTS * c + k]
            operands[PARTS] = &total
            s.step(operands, 1, s.h_bias)
        for k in range(PARTS * n_scores):
            infinite |= <int64_t>(b.bias[k] * 0 != 0)
    return infinite == 0


cdef inline bint _take(const real *data, const double *targets, const double *weights,
                       const double *offset, double *table, double *averages, double averaged,
                       Py_ssize_t n_scores, Py_ssize_t n_columns, const settings *s, batch *b,
                       sums *total) noexcept nogil:
    """Take a batch that was gathered; return whether all is finite, and so written."""
    cdef double *bias = table + (n_columns - 1) * PARTS * n_scores
    cdef sums before = total[0]
    cdef Py_ssize_t c
    memcpy(b.bias, bias, PARTS * n_scores * sizeof(double))
    _differentiate(data, targets, weights, offset, n_scores, &s.loss, b, total)
    if not _step(n_scores, s, b):
        total[0] = before
        return False
    write_parts(table, b, n_scores, averages, averaged)
    if averages != NULL:
        for c in range(n_scores):
            averages[(n_columns - 1) * n_scores + c] += \
                averaged * (b.bias[PARTS * c] - bias[PARTS * c])
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
          const double[::1] offset not None, double[:, :, ::1] table not None,
          double[:, ::1] averages not None, double[:, ::1] losses not None, Py_ssize_t batch_size,
          str loss not None, double parameter, bint intercept, double lr, double beta, double l1,
          double l2, Py_ssize_t average, dict attributes not None, dict changes not None):
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
    offset : array of float64, shape (n,) or (0,)
        What is added to the rows' scores, if anything.
    table : array of float64, shape (m + 1, n_scores, 3)
        Of each feature and, last, of the intercept: the weight, the sum of squared gradients and
        the linear term.
    averages : array of float64, shape (m + 1, n_scores), or (0, n_scores) if average is 0
        After T steps whose weights are averaged, a weight's average is w - averages / T.
    losses : array of float64, shape (any, 2)
        To each row are added the weighted sum of the losses of the rows' scores, each before it is
        learned, and the sum of their weights.
    batch_size : int
    loss : str
        One of `tfopt.kernels.linear.visits.LOSSES`.
    parameter : float
        That of the loss; a loss without one ignores it.
    intercept : bool
        Whether there is one. It has no penalty.
    lr, beta, l1, l2 : float
    average : int
        The number of rows from which on the weights after a step are averaged; 0: never.
    attributes, changes : dict
        The first has the numbers of rows and of averaged steps so far, "t_" and "_averaged". If the
        table changes, these do, and it is updated by the second. No interrupt comes between the
        changes of the table, the losses and the attributes.

    Returns
    -------
    int
        How many rows were taken: all, or those before the first batch whose weights would not be
        finite.

    Raises
    ------
    InvalidArgumentError
        If arrays do not fit each other; nothing has changed. If an index is outside, the batches
        before it have been taken.
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
    check_length("offset", offset.shape[0], n if offset.shape[0] else 0)
    check_length("a row of losses", losses.shape[1], 2)
    check_length("averages", averages.shape[0], n_columns if average else 0)
    check_length("a row of averages", averages.shape[1], n_scores)
    cdef settings s
    s.loss, s.intercept = named_loss(loss, parameter), intercept
    _set_rule(&s, kernels["ftrl"], lr, beta, l1, l2)
    cdef Py_ssize_t n_rows = order.shape[0], first, entries, length, most = 0, k
    cdef Py_ssize_t all_entries = 0
    cdef Py_ssize_t seen = attributes["t_"]
    cdef Py_ssize_t averaged = attributes["_averaged"] if average else 0
    batch_size = min(batch_size, max(1, n_rows))
    for start in range(0, n_rows, batch_size):
        first, entries = start, 0
        for k in range(first, min(first + batch_size, n_rows)):
            if within(order[k], n):
                length = once(&indptr[order[k] + 1]) - once(&indptr[order[k]])
                entries += max(0, min(length, bounds.n_entries))
        most = max(most, entries)
        all_entries += entries
    if most >= 2**31:
        raise MemoryError("a batch with more than 2**31 entries")
    cdef int _
    cdef batch b
    cdef stream ahead
    cdef sums total
    cdef fp_state caller
    cdef bint keep = True, counts
    cdef const real *values = &data[0] if data.shape[0] else NULL
    cdef const index *columns = &indices[0] if indices.shape[0] else NULL
    cdef double *parts = &table[0, 0, 0]
    cdef double *to_average = NULL
    cdef const double *known = &offset[0] if offset.shape[0] else NULL
    memset(&b, 0, sizeof(b))
    memset(&ahead, 0, sizeof(ahead))
    memset(&total, 0, sizeof(total))
    b.most_entries, b.most_features = most, min(most, n_columns)
    set_hash(&b, n_columns, all_entries)
    ahead.order, ahead.n_rows = &order[0] if n_rows else NULL, n_rows
    ahead.table, ahead.width = parts, PARTS * n_scores
    ahead.data, ahead.size = <const char *>values, sizeof(real)
    cdef void *memory = malloc(lay_out(&b, batch_size, n_scores, 0) + 64)
    if memory == NULL:
        raise MemoryError
    try:
        lay_out(&b, batch_size, n_scores, <size_t>memory)
        with nogil:
            memset(b.places, 0, (<size_t>1 << (64 - b.shift)) * sizeof(uint32_t))
            caller = fp_enter(flush_denormals())
            for _ in range(AHEAD):
                ask_ahead(&ahead, columns, &indptr[0], &bounds)
            first = 0
            while first < n_rows:
                b.n_rows, b.rows = min(batch_size, n_rows - first), ahead.order + first
                keep = gather(&ahead, columns, &indptr[0], n_scores, &b, &bounds) == 0
                counts = 0 < average <= seen + b.n_rows
                to_average = &averages[0, 0] if counts else NULL
                if keep and n_scores == 1:      # the compiler makes faster loops of a constant
                    keep = _take(values, &targets[0, 0], &weights[0], known, parts, to_average,
                                 averaged, 1, n_columns, &s, &b, &total)
                elif keep:
                    keep = _take(values, &targets[0, 0], &weights[0], known, parts, to_average,
                                 averaged, n_scores, n_columns, &s, &b, &total)
                if not keep:
                    break
                first += b.n_rows
                seen += b.n_rows
                averaged += counts
            fp_leave(caller)
        if first or not n_rows:
            for k in range(losses.shape[0]):
                losses[k, 0] += total.loss
                losses[k, 1] += total.weight
            attributes.update(changes)
            attributes["t_"], attributes["_averaged"] = seen, averaged
        refuse_outside(&bounds, data, indices, indptr, order)
    finally:
        free(memory)
    return first

"""Epochs of stochastic dual coordinate ascent whose partitions run in parallel.

The examples of an epoch are dealt to partitions; each visits its own on a replica of the weights
(SySCD: Ioannou, Mendler-Duenner and Parnell, 2019), and several times an epoch the replicas are
merged. How many partitions there are is for the caller to say. Threads take over whole partitions
and whole blocks of weights, so a result does not depend on their number.

A partition counts its own changes sigma times (safe adding: Ma et al., 2015). With as many
partitions P that is always right for sigma = P, and too timid by far if their changes hardly
overlap. Let E be what the changes of weights dv, together, add to the squared norm in the dual
beyond their first order, and E_p what those of partition p do alone. The dual rises by no less than
theta times the sum of what the partitions gained, if a share theta of the merged change is kept and

    E(theta * dv) <= theta / sigma * sum of E_p(sigma * dv_p).

So theta is chosen by that inequality, and sigma for the next merge: no merge lowers the dual.
"""

from cython.parallel cimport parallel
from libc.limits cimport INT_MAX
from libc.math cimport fmax, fmin
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

import numpy as np

from tfopt.errors import InvalidArgumentError

from tfopt.kernels.arrays.csr cimport (
    check_length, extent, extent_of, index, once, refuse_outside, row_length, within,
)
from tfopt.kernels.linear.losses cimport EXACT, ascend, is_corner, loss_t
from tfopt.kernels.platform.machine cimport (
    fp_enter, fp_leave, fp_state, omp_get_num_threads, omp_get_thread_num, prefetch_line,
    raise_flag,
)
from tfopt.kernels.linear.plans cimport find_awake, n_buckets, shuffle_in_buckets
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.platform.runtime cimport (
    at_most, begin_share, dismiss_team, end_share, gather_team, run_team, team,
)
from tfopt.kernels.linear.visits cimport (
    AHEAD, LONGEST, add, dense_dot, dot, example, named_loss, prefetch_row_of,
)

cdef enum:
    BLOCKS = 64     # parts of the weights summed together


# ---- visits

cdef void visit_examples(const real *data, const index *indices, const index *indptr,
                         const real *dense, Py_ssize_t width, const int64_t *plan, Py_ssize_t n,
                         example *examples, bint planned, double *before, uint8_t *idle,
                         double *u, partition *own, int kind, const loss_t *loss, double l2,
                         double shrink, double bias_curvature, double sigma,
                         extent *bounds) noexcept nogil:
    """Visit n examples on one thread. `before`, unless NULL, receives their previous variables.

    Each visit maximizes the dual over one variable. Safe adding (Ma et al., 2015): u starts as v,
    changes are added to it multiplied by sigma, and sigma also multiplies the curvature; so
    partitions that start from one v and share no example can all add their (u - v) / sigma to it.

    `idle`, unless NULL, counts the last visits of each that left it at a corner, up to LONGEST.

    The examples are in the order of the rows or, if `planned`, of the plan.

    It takes pointers, because memoryviews would be copied for each call that is not inlined.
    """
    cdef Py_ssize_t e, i, k, start = 0, length
    cdef double wx, a, change, factor, gap = 0, bias = own.bias, estimate = own.estimate
    cdef double *tail = u + bounds.n_columns
    cdef example *x
    for e in range(n):
        if e + 2 * AHEAD < n:
            i = plan[e + 2 * AHEAD]
            prefetch_line(<const char *>&examples[e + 2 * AHEAD if planned else i])
            prefetch_line(<const char *>&indptr[i])
            prefetch_row_of(data, indices, indptr, dense, width, once(&plan[e + AHEAD]), bounds)
        i = once(&plan[e])
        length = row_length(indptr, i, &start, bounds)
        if length < 0:
            break
        x = &examples[e if planned else i]
        wx = bias + dot(&data[start], &indices[start], length, u, shrink, bounds)
        if bounds.outside:
            break
        if width > 0:
            wx += dense_dot(&dense[i * width], width, tail, shrink)
        a = ascend(kind, loss, x.a, x.y, wx, sigma * x.weight * (x.curvature + bias_curvature),
                   &gap)
        estimate += x.weight * gap
        if before != NULL:
            before[i] = x.a
        if idle != NULL:
            if a == x.a and is_corner(kind, a, loss.parameter):
                idle[i] += idle[i] < LONGEST
            else:
                idle[i] = 0
        change = sigma * x.weight * (a - x.a)
        x.a = a
        if change != 0:
            factor = change / l2
            add(&data[start], &indices[start], length, u, factor, bounds)
            for k in range(width):
                tail[k] += factor * dense[i * width + k]
            bias += change * bias_curvature
    own.bias, own.estimate = bias, estimate


include "merges.pxi"


# ---- epochs

cdef void _visit_share(const real *data, const index *indices, const index *indptr,
                       const real *dense, Py_ssize_t width, const int64_t *plan, Py_ssize_t n,
                       example *examples, double *before, uint8_t *idle, const double *v,
                       double **u, Py_ssize_t n_v, partition *partitions, int n_partitions,
                       int piece, int pieces, int kind, const loss_t *loss, double l2,
                       double shrink, double bias_curvature, double sigma, extent *bounds,
                       int thread, int threads) noexcept nogil:
    cdef Py_ssize_t p, low, high
    cdef fp_state caller = fp_enter(False)
    for p in range(n_partitions * thread // threads, n_partitions * (thread + 1) // threads):
        memcpy(u[p], v, n_v * sizeof(double))
        low = n * (piece + p) // pieces
        high = n * (piece + p + 1) // pieces
        visit_examples(data, indices, indptr, dense, width, plan + low, high - low, examples,
                       False, before, idle, u[p], &partitions[p], kind, loss, l2, shrink,
                       bias_curvature, sigma, bounds)
    fp_leave(caller)


def epoch(const real[::1] data not None, const index[::1] indices not None,
          const index[::1] indptr not None, const real[:, ::1] dense not None,
          const int64_t[::1] plan not None, example[::1] examples not None,
          double[::1] v not None, double[:, ::1] replicas not None, double[::1] before not None,
          uint8_t[::1] idle not None, str loss, double parameter, double l2, double shrink,
          double bias, double bias_curvature, double sigma, int merges, int threads,
          bint exact=False):
    """Visit the examples of a plan, on partitions if there are replicas.

    Parameters
    ----------
    data, indices, indptr
        The rows, in CSR format.
    dense : memoryview, shape (n_examples, width)
        Additional features, whose weights are the last ones.
    plan
        Indices of examples; with more than one partition, each at most once.
    examples : memoryview of EXAMPLE
        The dual variables are changed.
    v : memoryview, shape (n_weights,)
        The unshrunk weights given by the dual variables; changed.
    replicas : memoryview, shape (n_partitions, n_weights)
        Workspace for the partitions; if empty, the visits are sequential, on v.
    before : memoryview, shape (n_examples,) or (0,)
        Unless empty, as it must not be with replicas, receives the dual variable of each example
        before its last visit.
    idle : memoryview, shape (n_examples,) or (0,)
        Unless empty, counts the last visits of each example that left its variable at a corner of
        the dual, where it was; see `visits.awake`.
    loss : str
    parameter : float
        That of the loss, if it has one: see losses.pxd.
    l2, shrink : float
        shrink is l1 / l2.
    bias, bias_curvature : float
        The bias is added to each prediction, and changes like the weight of a constant feature 1
        with penalty 1 / bias_curvature; with 0 it does not change.
    sigma : float
        The factor by which a partition multiplies its changes, and `exact` visits without
        replicas.
    merges : int
        The number of times the replicas are merged.
    threads : int
        The maximum; 0 means that of `tfopt.threads`.
    exact : bool, optional
        Whether each visit ends where the dual is largest, as in TensorFlow's op. Otherwise steps of
        the logistic loss are as exact as is worth their time, and the gaps are summed up.

    Returns
    -------
    bias, sigma : float
        The new values.
    estimate : float
        The sum of the gaps met at the visits, of the order of the duality gap; 0 if `exact`.
    """
    cdef loss_t f = named_loss(loss, parameter)
    cdef int kind = EXACT if exact else f.kind, n_partitions = max(1, <int>replicas.shape[0]), p, b
    cdef Py_ssize_t n_v = v.shape[0], n = plan.shape[0]
    cdef double[:, ::1] own, block_sums
    cdef int64_t[::1] places
    cdef partition *partitions
    cdef partition single
    cdef excess *sums
    cdef double **u
    cdef double *first = &v[0] if n_v else NULL
    cdef double *old = &before[0] if before.shape[0] else NULL
    cdef uint8_t *rests = &idle[0] if idle.shape[0] else NULL
    cdef double estimate = 0, change, moved
    cdef merge m
    cdef excess total
    cdef int round, pieces
    cdef Py_ssize_t features = data.shape[0] + dense.shape[0] * dense.shape[1]
    cdef team t
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], dense.shape[1], n_v)
    cdef Py_ssize_t width = dense.shape[1]
    cdef const real *x
    cdef const real *z
    cdef const index *j
    cdef const int64_t *order
    cdef example *rows
    check_length("examples", examples.shape[0], bounds.n_rows)
    if not 0 <= <Py_ssize_t>merges * n_partitions <= INT_MAX:
        raise InvalidArgumentError(
            f"merges * n_partitions must be between 0 and {INT_MAX}, not {merges} * "
            f"{n_partitions}"
        )
    pieces = merges * n_partitions
    if idle.shape[0]:
        check_length("idle", idle.shape[0], bounds.n_rows)
    if replicas.shape[0]:
        check_length("a replica", replicas.shape[1], n_v)
    if replicas.shape[0] or before.shape[0]:
        check_length("before", before.shape[0], bounds.n_rows)
    if n == 0:
        return bias, sigma, 0.0
    x, j = &data[0] if data.shape[0] else NULL, &indices[0] if indices.shape[0] else NULL
    z = &dense[0, 0] if width and bounds.n_rows else NULL
    order, rows = &plan[0], &examples[0] if examples.shape[0] else NULL
    if replicas.shape[0] == 0:
        memset(&single, 0, sizeof(single))
        single.bias = bias
        with nogil:
            visit_alone(x, j, &indptr[0], z, width, order, n, rows, old, rests, first, &single,
                        kind, &f, l2, shrink, bias_curvature, sigma if exact else 1, &bounds)
        refuse_outside(&bounds, data, indices, indptr, plan)
        return single.bias, sigma, single.estimate
    own, block_sums = np.zeros((n_partitions, 8)), np.zeros((BLOCKS, 3))
    places = np.zeros(n_partitions, np.int64)
    partitions, sums = <partition *>&own[0, 0], <excess *>&block_sums[0, 0]
    u = <double **>&places[0]
    for p in range(n_partitions):
        u[p] = &replicas[p, 0] if n_v else NULL
    m.v, m.u, m.n_v, m.n_partitions, m.shrink, m.sums = first, u, n_v, n_partitions, shrink, sums
    m.examples, m.before, m.bounds = rows, old, &bounds
    for round in range(merges):
        with nogil:
            for p in range(n_partitions):
                partitions[p].bias = bias
            t = at_most(at_most(gather_team(features, 1), threads), n_partitions)
            # threads compute most of the time, and some may have a partition more than others
            t.others = <double>n_partitions / (n_partitions // t.size) - 1
            with parallel(num_threads=t.size):
                begin_share(&t)
                _visit_share(x, j, &indptr[0], z, width, order, n, rows, old, rests, first, u, n_v,
                             partitions, n_partitions, round * n_partitions, pieces, kind, &f, l2,
                             shrink, bias_curvature, sigma, &bounds, omp_get_thread_num(),
                             omp_get_num_threads())
                end_share(&t)
            dismiss_team(&t)
            m.sigma = sigma
            run_team(at_most(gather_team(features, 1), threads), _gather_share, &m)
            total.joint = total.own = total.bound = change = 0
            for b in range(BLOCKS):
                total.joint += sums[b].joint
                total.own += sums[b].own
                total.bound += sums[b].bound
            if bias_curvature > 0:
                for p in range(n_partitions):
                    moved = (partitions[p].bias - bias) / sigma
                    change += moved
                    total.own += moved * moved / (2 * bias_curvature * l2)
                total.joint += change * change / (2 * bias_curvature * l2)
                total.bound += change * change / (2 * bias_curvature * l2)
            m.theta = kept_share(&total, n_partitions, &sigma)
            bias += m.theta * change
            m.plan = order + n * (round * n_partitions) // pieces
            m.n = order + n * ((round + 1) * n_partitions) // pieces - m.plan
            run_team(at_most(gather_team(features, 1), threads), _keep_share, &m)
        if bounds.outside:
            break
    refuse_outside(&bounds, data, indices, indptr, plan)
    for p in range(n_partitions):
        estimate += partitions[p].estimate
    return bias, sigma, estimate


cdef void visit_alone(const real *data, const index *indices, const index *indptr,
                      const real *dense, Py_ssize_t width, const int64_t *plan, Py_ssize_t n,
                      example *examples, double *before, uint8_t *idle, double *v, partition *own,
                      int kind, const loss_t *loss, double l2, double shrink,
                      double bias_curvature, double sigma, extent *bounds) noexcept nogil:
    cdef fp_state caller = fp_enter(False)
    visit_examples(data, indices, indptr, dense, width, plan, n, examples, False, before, idle,
                   v, own, kind, loss, l2, shrink, bias_curvature, sigma, bounds)
    fp_leave(caller)


include "sweeps.pxi"

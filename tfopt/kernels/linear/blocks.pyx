"""Rounds of stochastic dual coordinate ascent over blocks of examples on different workers.

These functions are the parts of a call of solver.pyx: a block is visited on a replica of the
weights, its change is extracted, and a fraction of the sum of all changes is kept, by the rule of
solver.pyx. The parts do not depend on where the others are computed.
"""

from libc.stdint cimport int64_t

from tfopt.kernels.arrays.csr cimport check_length, extent, extent_of, index, refuse_outside
from tfopt.kernels.linear.losses cimport loss_t
from tfopt.kernels.platform.machine cimport fp_enter, fp_leave, fp_state
from tfopt.kernels.platform.floats cimport real
from tfopt.kernels.linear.visits cimport example, named_loss
from tfopt.kernels.linear.solver cimport bregman, excess, kept_share, partition, visit_examples


def visit(const real[::1] data not None, const index[::1] indices not None,
          const index[::1] indptr not None, const real[:, ::1] dense not None,
          const int64_t[::1] plan not None, example[::1] examples not None,
          double[::1] u not None, str loss, double parameter, double l2, double shrink, double bias,
          double bias_curvature, double sigma):
    """Visit the examples of a plan, one after another, on one thread.

    Parameters
    ----------
    data, indices, indptr, dense, plan, loss, parameter, l2, shrink, bias, bias_curvature
        See `tfopt.kernels.linear.solver.epoch`.
    examples : memoryview of EXAMPLE
        The examples of the plan, in order; their dual variables are changed.
    u : memoryview, shape (n_weights,)
        A replica of the unshrunk weights; changed.
    sigma : float
        How often each change is counted, in u and in the bias.

    Returns
    -------
    bias : float
    estimate : float
        The sum of the gaps met at the visits.
    """
    cdef loss_t f = named_loss(loss, parameter)
    cdef Py_ssize_t n = plan.shape[0], width = dense.shape[1]
    cdef partition own
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], width, u.shape[0])
    cdef fp_state caller
    check_length("examples", examples.shape[0], n)
    own.bias, own.estimate = bias, 0
    if n == 0:
        return bias, 0.0
    with nogil:
        caller = fp_enter(False)
        visit_examples(&data[0] if data.shape[0] else NULL,
                       &indices[0] if indices.shape[0] else NULL, &indptr[0],
                       &dense[0, 0] if width and bounds.n_rows else NULL, width, &plan[0], n,
                       &examples[0], True, NULL, NULL, &u[0] if u.shape[0] else NULL, &own, f.kind,
                       &f, l2, shrink, bias_curvature, sigma, &bounds)
        fp_leave(caller)
    refuse_outside(&bounds, data, indices, indptr, plan)
    return own.bias, own.estimate


def change(const double[::1] v not None, double[::1] u not None, double shrink, double sigma):
    """Replace a replica by its change, counted once.

    Returns
    -------
    float
        The change of |S(v)|^2 / 2 beyond first order, as counted by the replica, divided by
        sigma^2.
    """
    cdef Py_ssize_t k
    cdef double d, own = 0
    check_length("u", u.shape[0], v.shape[0])
    with nogil:
        for k in range(v.shape[0]):
            d = u[k] - v[k]
            own += bregman(v[k], d, shrink)
            u[k] = d / sigma
    return own / (sigma * sigma)


def excesses(const double[::1] v not None, const double[::1] dv not None, double shrink):
    """Return the change of |S(v)|^2 / 2 beyond first order, and the same with shrink = 0."""
    cdef Py_ssize_t k
    cdef double joint = 0, bound = 0
    check_length("dv", dv.shape[0], v.shape[0])
    with nogil:
        for k in range(v.shape[0]):
            joint += bregman(v[k], dv[k], shrink)
            bound += dv[k] * dv[k] / 2
    return joint, bound


def kept(double joint, double own, double bound, int n_partitions, double sigma):
    """Return the share of a merged change that is kept, and sigma for the next merge.

    Parameters
    ----------
    joint, own, bound : float
        The term beyond first order of the merged change, the sum of those of the partitions'
        changes, and that of the merged change without shrinkage.
    n_partitions : int
    sigma : float
        How often the partitions counted their changes.
    """
    cdef excess sums
    cdef double next_sigma = sigma, theta
    sums.joint, sums.own, sums.bound = joint, own, bound
    theta = kept_share(&sums, n_partitions, &next_sigma)
    return theta, next_sigma

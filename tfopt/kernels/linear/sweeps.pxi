# Epochs of sweeps over the examples that are awake, one after another on one thread. Included by
# solver.pyx: in a module of its own this function would take up 60 KB.


def epoch_of_sweeps(const real[::1] data not None, const index[::1] indices not None,
                    const index[::1] indptr not None, const real[:, ::1] dense not None,
                    example[::1] examples not None, double[::1] v not None,
                    uint8_t[::1] idle not None, Py_ssize_t bucket, uint64_t seed, uint64_t n_sweeps,
                    str loss, double parameter, double l2, double shrink, double bias,
                    double bias_curvature):
    """Visit about as many examples as there are, in sweeps over those that are awake.

    Each sweep is `epoch` with `visits.awake`, in the order of `visits.shuffled`. The bias is
    that of an augmented Lagrangian: after each sweep its centre moves to it, by the weighted sum
    of the dual variables.

    Parameters
    ----------
    data, indices, indptr, dense, examples, v, loss, parameter, l2, shrink, bias, bias_curvature
        See `epoch`.
    idle : memoryview, shape (n_examples,)
    bucket : int
        At least 1.
    seed : int
    n_sweeps : int
        How many sweeps there were before.

    Returns
    -------
    bias : float
    n_sweeps : int
    estimate : float
        The mean of the sweeps' sums of gaps.
    """
    cdef loss_t f = named_loss(loss, parameter)
    cdef Py_ssize_t n = examples.shape[0], width = dense.shape[1], n_awake, k, n_visits = 0
    cdef extent bounds = extent_of(data.shape[0], indices.shape[0], indptr.shape[0],
                                   dense.shape[0], width, v.shape[0])
    cdef uint64_t first = n_sweeps
    cdef double estimate = 0
    cdef partition own
    if not 1 <= bucket <= <Py_ssize_t>1 << 60:      # sums of such numbers do not overflow
        raise InvalidArgumentError(f"bucket must be at least 1, not {bucket}")
    check_length("examples", n, bounds.n_rows)
    check_length("idle", idle.shape[0], n)
    if n == 0:
        return bias, n_sweeps, 0.0
    cdef int64_t[::1] awake = np.empty(n, np.int64), plan = np.empty(n, np.int64)
    cdef int64_t[::1] buckets = np.empty(n_buckets(n, bucket), np.int64)
    while n_visits < n:
        with nogil:
            n_awake = find_awake(&idle[0], n, n_sweeps + 1, &awake[0])
        if n_visits > 0 and n_visits + n_awake > n:
            break
        n_sweeps += 1
        n_visits += n_awake
        memset(&own, 0, sizeof(own))
        own.bias = bias
        with nogil:
            shuffle_in_buckets(n_awake, bucket, seed, n_sweeps, &buckets[0], &plan[0])
            for k in range(n_awake):
                plan[k] = awake[plan[k]]
            visit_alone(&data[0] if data.shape[0] else NULL,
                        &indices[0] if indices.shape[0] else NULL, &indptr[0],
                        &dense[0, 0] if width else NULL, width, &plan[0], n_awake, &examples[0],
                        NULL, &idle[0], &v[0] if v.shape[0] else NULL, &own, f.kind, &f, l2,
                        shrink, bias_curvature, 1, &bounds)
        refuse_outside(&bounds, data, indices, indptr, plan)
        bias = own.bias
        estimate += own.estimate
        if bias_curvature > 0:
            bias += bias_curvature * <double>np.add.reduce(
                examples.base["weight"] * examples.base["a"]
            )
    return bias, int(n_sweeps), estimate / <double>(n_sweeps - first)

# Merges of the partitions' replicas, included by solver.pyx.

cdef void _gather(const double *v, double **u, int n_partitions, Py_ssize_t low, Py_ssize_t high,
                  double shrink, double sigma, excess *sums) noexcept nogil:
    """Replace some weights of the first replica by their merged change."""
    cdef Py_ssize_t k
    cdef int p
    cdef double d, dv, joint = 0, own = 0, bound = 0
    for k in range(low, high):
        dv = 0
        for p in range(n_partitions):
            d = u[p][k] - v[k]
            dv += d
            own += bregman(v[k], d, shrink)
        dv /= sigma
        joint += bregman(v[k], dv, shrink)
        bound += dv * dv / 2
        u[0][k] = dv
    sums.joint, sums.own, sums.bound = joint, own / (sigma * sigma), bound


cdef double kept_share(const excess *sums, int n_partitions, double *sigma) noexcept nogil:
    """The fraction of a merged change to keep; sigma becomes that of the next merge.

    Averaging, a fraction of 1 / P, is always safe.
    """
    cdef double theta = 1, wanted
    if sums.own > 0:
        if sums.joint > sigma[0] * sums.own:
            theta = fmax(1.0 / n_partitions, fmin(1, sigma[0] * sums.own / sums.bound))
        wanted = fmax(1, fmin(n_partitions, 1.1 * sums.joint / sums.own))
        sigma[0] = wanted if wanted > sigma[0] else (sigma[0] + wanted) / 2
    return theta


# ---- the threads' shares

cdef struct merge:
    double *v               # weights,
    double **u              # and their replicas
    Py_ssize_t n_v
    int n_partitions
    double shrink, sigma
    excess *sums            # of each block of weights
    double theta            # what is kept of the change
    const int64_t *plan     # examples that were visited
    Py_ssize_t n
    example *examples
    const double *before
    extent *bounds


cdef void _gather_share(const void *given, int thread, int threads) noexcept nogil:
    cdef const merge *m = <const merge *>given
    cdef Py_ssize_t b
    cdef fp_state caller = fp_enter(False)
    for b in range(BLOCKS * thread // threads, BLOCKS * (thread + 1) // threads):
        _gather(m.v, m.u, m.n_partitions, m.n_v * b // BLOCKS, m.n_v * (b + 1) // BLOCKS, m.shrink,
                m.sigma, &m.sums[b])
    fp_leave(caller)


cdef void _keep_share(const void *given, int thread, int threads) noexcept nogil:
    cdef const merge *m = <const merge *>given
    cdef double *v = m.v
    cdef const double *dv = m.u[0]
    cdef double theta = m.theta
    cdef Py_ssize_t k, i
    for k in range(m.n_v * thread // threads, m.n_v * (thread + 1) // threads):
        v[k] += theta * dv[k]
    if theta < 1:
        for k in range(m.n * thread // threads, m.n * (thread + 1) // threads):
            i = once(&m.plan[k])
            if not within(i, m.bounds.n_rows):
                raise_flag(&m.bounds.outside)
                return
            m.examples[i].a = m.before[i] + theta * (m.examples[i].a - m.before[i])

# Weighted sums of several arrays of one shape, included by clip.pyx: few are read at a time.

def weigh_call(list outs not None, list members not None, list weights not None, bint adds,
               list base=None):
    """Write, or add to outs, the weighted sum of one to three members, or of base less each.

    Parameters
    ----------
    outs : list of ndarray
        Of float32 or float64, the type in which is computed.
    members : list of list of ndarray
        Each has an array for each of outs.
    weights : list of float
        For each member.
    adds : bool
        Whether to add to what outs are.
    base : list of ndarray, optional
    """
    cdef Py_ssize_t k, n = len(members)
    if not 1 <= n <= STREAMS or len(weights) != n:
        raise InvalidArgumentError(f"there must be 1 to {STREAMS} members, each with a weight: {n}")
    cdef list columns = ([] if base is None else [base]) + members
    cdef list last = columns.pop()
    cdef Call call = _call(outs, columns, last, flush_denormals())
    cdef weighing *by = <weighing *>call.w.h
    cdef bint single = not call.arrays[0] \
        or cnp.PyArray_TYPE(<cnp.ndarray>call.arrays[0][0]) == cnp.NPY_FLOAT32
    cdef int typenum = cnp.NPY_FLOAT32 if single else cnp.NPY_FLOAT64
    for a in call.arrays[0]:
        _check_type(a, "out", typenum)
    columns.append(last)
    for column in columns:
        for a in column:
            if storage_of(a) <= NATIVE or not single:   # 16-bit dtypes are computed in float32
                _check_type(a, "an array", typenum)
    for k in range(n):
        by.weights[k] = weights[k]
    for k in range(call.w.n_tensors):
        if adds and call.w.tensors[k].axes != NULL:
            call.w.tensors[k].axes.overwrites = False
    by.adds, by.minus = adds, base is not None
    call.w.itemsize = 4 if single else 8
    call.w.step = halves_in_use().weigh[not single][n - 1]
    return call

# cython: boundscheck=True
"""The way back: from what was recorded to gradients.

Rules are written in NumPy. While somebody records this thread they get tensors, so that what they
do is recorded, too, and has gradients itself; else they get the tensors' arrays, which is faster.
"""

import numpy as np

from cpython.ref cimport Py_INCREF

from tfopt.core.engine cimport (
    Key, Node, Op, Tensor, apply, array_of, has_key, is_recording, key_of, known_key, wrap,
)
cimport tfopt.kernels.platform.numpy_api as cnp

from tfopt.core.engine import CUT, REGISTERED, RULED
from tfopt.indexed_slices import IndexedSlices, densify

cnp.import_array()

cdef object _CUT = CUT
cdef object _add = np.add
cdef object _sum = np.add.reduce


def call(Op op not None, tuple ins not None, dict kw=None):
    """Carry an operation out: on tensors if there are any, else on arrays."""
    for value in ins:
        if type(value) is Tensor:
            return apply(op, ins, kw)
    return op.fn(*ins, **kw) if kw else op.fn(*ins)


cpdef object unbroadcast(object g, object a):
    """Sum a gradient over what was broadcast, and give it the dtype of the input it is for."""
    cdef object x = array_of(<Tensor>g) if type(g) is Tensor else g
    cdef object y = array_of(<Tensor>a) if type(a) is Tensor else a
    cdef cnp.ndarray left, right
    cdef int k, lead
    if cnp.PyArray_Check(x) and cnp.PyArray_Check(y):
        left, right = x, y
        lead = left.ndim - right.ndim
        if cnp.PyArray_TYPE(left) == cnp.PyArray_TYPE(right) and 0 <= lead <= 1:
            for k in range(right.ndim):
                if left.shape[k + lead] != right.shape[k]:
                    break
            else:
                return g if lead == 0 else _sum(left, 0) if x is g else g.sum(axis=0)
    elif type(x) is type(y):
        return g    # NumPy's scalars
    return cast(_summed(g, a), a.dtype)


cdef object _summed(object g, object a):
    cdef tuple given = g.shape, shape = a.shape
    cdef Py_ssize_t lead = len(given) - len(shape), k
    if given == shape:
        return g
    if lead < 0 or (lead == 0 and len(given) == 0):
        return np.broadcast_to(g, shape)
    axes = list(range(lead))
    for k in range(len(shape)):
        if shape[k] == 1 and given[k + lead] != 1:
            axes.append(k + lead)
    if axes:
        if type(g) is Tensor:
            g = g.sum(axis=tuple(axes), keepdims=True)
        else:
            g = _sum(g, tuple(axes), None, None, True)
    return g.reshape(shape)


def cast(g, dtype):
    """A gradient in another dtype: its real part if that is a real one."""
    if g.dtype == dtype:
        return g
    if g.dtype.kind == "c" and dtype.kind != "c":
        g = g.real
    return g.astype(dtype)


cpdef object conj(object value):
    """The complex conjugate; of what is not complex, the value itself."""
    if cnp.PyArray_Check(value):
        if not cnp.PyArray_ISCOMPLEX(<cnp.ndarray>value):
            return value
    elif isinstance(value, (float, int, complex)) and not isinstance(value, np.generic):
        return value.conjugate()
    elif value.dtype.kind != "c":
        return value
    return np.conjugate(value)


cpdef object added(object first, object second):
    """The sum of two gradients, of rows if both are."""
    if not (isinstance(first, IndexedSlices) and isinstance(second, IndexedSlices)):
        return densify(first) + densify(second)
    indices = np.concatenate([first.indices, second.indices])
    values = np.concatenate([first.values, second.values])
    return IndexedSlices(values, indices, first.dense_shape)


# ---- the engine


cdef int accumulate(dict grads, set owned, Key key, object g) except -1:
    """Add a gradient to what a tensor has: in place only where this is the engine's own array."""
    cdef object old = grads.get(key)
    if old is None:
        grads[key] = g
    elif isinstance(old, IndexedSlices) or isinstance(g, IndexedSlices):
        grads[key] = added(old, g)
        owned.discard(key)
    elif key in owned and cnp.PyArray_Check(old) and cnp.PyArray_Check(g):
        _add(old, g, old)
    else:
        grads[key] = old + g
        owned.add(key)
    return 0


def backward(list nodes not None, dict grads not None, set wanted not None):
    """Carry gradients back through nodes.

    Parameters
    ----------
    nodes : list of Node
        In the order in which they came to be.
    grads : dict
        The gradients that are given, by the tensors' keys. What is wanted is added to it.
    wanted : set
        Keys of the tensors whose gradients to find.

    Raises
    ------
    LookupError
        If an operation between has no rule.
    """
    cdef Py_ssize_t k, n = len(nodes)
    cdef set active = set(wanted), owned = set()
    cdef list reaching = [None] * n
    cdef Node node
    cdef Tensor t
    cdef bint found, raw = not is_recording()
    cdef object value, g
    cdef Key key
    for k in range(n):
        node = nodes[k]
        found = False
        for value in node.ins:
            if type(value) is Tensor:
                t = value
                if has_key(t) and known_key(t) in active:
                    found = True
                    break
        if found:
            reaching[k] = node
            for t in node.outs:
                active.add(key_of(t))
    for k in range(n - 1, -1, -1):
        if reaching[k] is None:
            continue
        node = reaching[k]
        if len(node.outs) == 1:
            key = known_key(<Tensor>node.outs[0])
            g = grads.get(key)
            if g is None:
                continue
            if key not in wanted:
                del grads[key]
            if isinstance(g, IndexedSlices):
                g = densify(g)
            if type(node.op) is Op and (<Op>node.op).vjps is not None:
                _through(<Op>node.op, node, g, active, grads, owned, raw)
                continue
            upstreams = [g]
        else:
            upstreams, known = [], False
            for t in node.outs:
                g = _upstream(known_key(<Tensor>t), grads, wanted)
                upstreams.append(g)
                known = known or g is not None
            if not known:
                continue
        _through_any(node, upstreams, active, grads, owned, raw)


cdef object _upstream(Key key, dict grads, set wanted):
    g = grads.get(key) if key in wanted else grads.pop(key, None)
    return densify(g) if isinstance(g, IndexedSlices) else g


cdef int _through(Op op, Node node, object g, set active, dict grads, set owned,
                  bint raw) except -1:
    """Apply the rules of an operation with one output."""
    cdef tuple ins = node.ins
    cdef Py_ssize_t k, n = len(ins)
    cdef Tensor t
    cdef object rule, made, y = node.outs[0], a, b, value
    cdef tuple args
    if raw:
        y = array_of(<Tensor>y)
    for k in range(n):
        value = ins[k]
        if type(value) is not Tensor:
            continue
        t = value
        if not has_key(t) or known_key(t) not in active:
            continue
        rule = op.vjps[k]
        if rule is _CUT:
            continue
        if n <= 2 and node.kw is None:
            a = ins[0]
            if raw and type(a) is Tensor:
                a = array_of(<Tensor>a)
            if n == 1:
                made = rule(g, y, a)
            else:
                b = ins[1]
                if raw and type(b) is Tensor:
                    b = array_of(<Tensor>b)
                made = rule(g, y, a, b)
        else:
            args = _arrays(ins) if raw else ins
            made = rule(g, y, *args, **node.kw) if node.kw else rule(g, y, *args)
        if made is not None:
            accumulate(grads, owned, known_key(t), _fitted(made, t, raw))
    return 0


cdef object _fitted(object g, Tensor t, bint raw):
    """A rule's gradient in the shape and dtype of the tensor that it is for."""
    if not isinstance(g, IndexedSlices):
        return unbroadcast(g, array_of(t) if raw else t)
    if g.dtype == t.dtype:
        return g
    return IndexedSlices(cast(g.values, t.dtype), g.indices, g.dense_shape)


cdef tuple _arrays(tuple values):
    cdef list arrays = []
    for x in values:
        arrays.append(array_of(<Tensor>x) if type(x) is Tensor else x)
    return tuple(arrays)


cdef int _through_any(Node node, list upstreams, set active, dict grads, set owned,
                      bint raw) except -1:
    """Apply what knows the gradients of all inputs at once."""
    cdef Tensor t
    cdef tuple ins = node.ins
    cdef Op op
    cdef list need = []
    for x in ins:
        need.append(type(x) is Tensor and has_key(<Tensor>x)
                    and known_key(<Tensor>x) in active)
    if type(node.op) is Op:
        op = node.op
        if op.joint is not None:
            outs = _arrays(node.outs) if raw else node.outs
            made = op.joint(upstreams if op.many else upstreams[0], outs if op.many else outs[0],
                            _arrays(ins) if raw else ins, node.kw or {}, need)
        elif op.vjps is None:
            made = _registered(op.name, node, upstreams, need)
        else:
            return 0    # several outputs, and none of them has a gradient
    else:
        made = node.op.grad(node, upstreams, need)
    for value, wanted, g in zip(ins, need, made):
        if not wanted or g is None:
            continue
        t = value
        if raw:
            g = _as_raw(g)
        if type(node.op) is Op:
            g = _fitted(g, t, raw)
        accumulate(grads, owned, known_key(t), g)
    return 0


cdef object _registered(str name, Node node, list upstreams, list need):
    """What a user has registered for an operation that has no rule."""
    if name not in REGISTERED:
        raise LookupError(
            f"{node.op.label} has no gradient here (gradient registry has no entry for: {name}). "
            + (f"Register one with tfopt.RegisterGradient({name!r}), or cut" if name not in RULED
               else "Calls with other arguments have one; or cut")
            + " it with tfopt.stop_gradient"
        )
    gradient = REGISTERED[name]
    return [None] * len(node.ins) if gradient is None else gradient.grad(node, upstreams, need)


cdef object _as_raw(object g):
    if type(g) is Tensor:
        return array_of(<Tensor>g)
    if isinstance(g, IndexedSlices):
        return IndexedSlices(_as_raw(g.values), _as_raw(g.indices), g.dense_shape)
    return g


def as_gradient(g):
    """A gradient as users get it: a tensor, slices, or None."""
    if g is None or type(g) is Tensor or isinstance(g, IndexedSlices):
        return g
    return wrap(g if isinstance(g, (np.ndarray, np.generic)) else np.asarray(g))


# ---- what rules of reductions and selections need, fast


cpdef object spread(object g, object a, object axis, bint keepdims):
    """A reduction's gradient, broadcast over the axes that were reduced."""
    cdef cnp.ndarray source, like
    cdef cnp.npy_intp[64] strides
    cdef cnp.npy_intp[64] shape
    cdef int k, j = 0, ndim, left
    cdef bint[64] gone
    cdef cnp.dtype descr
    if type(g) is Tensor or type(a) is Tensor:
        return _spread(g, a, axis, keepdims)
    source = g if cnp.PyArray_Check(g) else np.asarray(g)
    if not cnp.PyArray_Check(a):
        return source
    like = a
    ndim = like.ndim
    for k in range(ndim):
        gone[k] = axis is None
    if axis is not None:
        for each in (axis if isinstance(axis, tuple) else (axis,)):
            k = each + ndim if each < 0 else each
            if k < 0 or k >= ndim:
                raise np.exceptions.AxisError(each, ndim)
            gone[k] = True
    left = ndim
    for k in range(ndim):
        left -= gone[k] and not keepdims
    if source.ndim != left:
        raise _unfit(g, a, axis)
    for k in range(ndim):
        shape[k] = like.shape[k]
        if gone[k]:
            strides[k] = 0
            j += keepdims
        else:
            if source.shape[j] != shape[k] and source.shape[j] != 1:
                raise _unfit(g, a, axis)
            strides[k] = source.strides[j] if source.shape[j] == shape[k] else 0
            j += 1
    descr = (<object>source).dtype
    Py_INCREF(descr)
    view = cnp.PyArray_NewFromDescr(&cnp.PyArray_Type, descr, ndim, shape, strides, source.data, 0,
                                    NULL)
    Py_INCREF(source)
    cnp.PyArray_SetBaseObject(view, source)
    cnp.PyArray_UpdateFlags(view, cnp.NPY_ARRAY_C_CONTIGUOUS | cnp.NPY_ARRAY_F_CONTIGUOUS
                            | cnp.NPY_ARRAY_ALIGNED)
    return view


cdef object _unfit(object g, object a, object axis):
    return ValueError(
        f"a gradient of shape {np.shape(g)} cannot be that of a reduction of shape {a.shape} over "
        f"axis {axis}"
    )


cdef object _spread(object g, object a, object axis, bint keepdims):
    if not keepdims and axis is not None:
        g = np.expand_dims(g, axis)
    elif not keepdims:
        g = np.reshape(g, (1,) * a.ndim)
    return np.broadcast_to(g, a.shape)


cpdef object kept(object g, object mask):
    """A gradient where a mask holds, and zeros elsewhere, whatever it is there."""
    cdef cnp.ndarray source, where, into
    if cnp.PyArray_CheckExact(g) and cnp.PyArray_CheckExact(mask):
        source, where = g, mask
        if (source.ndim == where.ndim and cnp.PyArray_IS_C_CONTIGUOUS(source)
                and cnp.PyArray_IS_C_CONTIGUOUS(where) and cnp.PyArray_TYPE(where) == cnp.NPY_BOOL
                and cnp.PyArray_SAMESHAPE(source, where)):
            if cnp.PyArray_TYPE(source) == cnp.NPY_FLOAT32:
                into = cnp.PyArray_EMPTY(source.ndim, source.shape, cnp.NPY_FLOAT32, 0)
                _keep(<float *>source.data, <const char *>where.data, <float *>into.data,
                      cnp.PyArray_SIZE(source))
                return into
            if cnp.PyArray_TYPE(source) == cnp.NPY_FLOAT64:
                into = cnp.PyArray_EMPTY(source.ndim, source.shape, cnp.NPY_FLOAT64, 0)
                _keep(<double *>source.data, <const char *>where.data, <double *>into.data,
                      cnp.PyArray_SIZE(source))
                return into
    return np.where(mask, g, 0)


ctypedef fused real:
    float
    double


cdef void _keep(const real *g, const char *mask, real *into, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(n):
        into[k] = g[k] if mask[k] else <real>0

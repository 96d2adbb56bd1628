"""An update of the same arrays again, with other gradients and hyperparameters.

A training loop updates the same arrays at each step, so most of what a call is checked for has been
checked before. A repetition looks at what can have changed since: the memory of the arrays, and the
new gradients. Whatever is out of the ordinary is left to the checks of a first call.
"""

from libc.stdlib cimport free, malloc, qsort

cimport numpy as cnp

from tfopt.kernels.arrays.aliasing cimport same_shape, span
from tfopt.kernels.arrays.coerce cimport storage_of
from tfopt.kernels.arrays.layout cimport NATIVE
from tfopt.kernels.update.checks cimport (
    Call, check_hypers, numbers, read_scalars, set_scalars,
)
from tfopt.kernels.update.step_table cimport Kernel

cnp.import_array()


cdef tuple _values(tuple names, dict values):
    cdef list found = []
    for name in names:
        found.append(values[name])
    return tuple(found)


cdef int _by_address(const void *a, const void *b) noexcept nogil:
    cdef size_t x = (<const span *>a).low, y = (<const span *>b).low
    return (x > y) - (x < y)


def gradients_of(pairs, tuple variables not None):
    """The gradients of pairs with exactly these variables, or None if any is not a plain array.

    Parameters
    ----------
    pairs : object
        None is also returned if it is not a list of tuples.
    variables : tuple
    """
    cdef Py_ssize_t t, n = len(variables)
    cdef list grads = []
    cdef object pair
    if type(pairs) is not list or len(<list>pairs) != n:
        return None
    for t in range(n):
        pair = (<list>pairs)[t]
        if type(pair) is not tuple or len(<tuple>pair) != 2:
            return None
        if (<tuple>pair)[1] is not variables[t] or not cnp.PyArray_CheckExact((<tuple>pair)[0]):
            return None
        grads.append((<tuple>pair)[0])
    return grads


cdef bint _collect(object params, object grads, object pattern, list found) except -1:
    cdef Py_ssize_t k
    if type(pattern) is dict:
        if type(params) is not dict or type(grads) is not dict \
                or not len(<dict>params) == len(<dict>grads) == len(<dict>pattern):
            return False
        for key, part in (<dict>pattern).items():
            if key not in <dict>params or key not in <dict>grads \
                    or not _collect((<dict>params)[key], (<dict>grads)[key], part, found):
                return False
        return True
    if type(pattern) is list:
        if type(params) not in (list, tuple) or type(grads) not in (list, tuple) \
                or not len(params) == len(grads) == len(<list>pattern):
            return False
        for k in range(len(<list>pattern)):
            if not _collect(params[k], grads[k], (<list>pattern)[k], found):
                return False
        return True
    if type(pattern) is not tuple or len(<tuple>pattern) != 1:
        return False
    if params is not (<tuple>pattern)[0] or not cnp.PyArray_CheckExact(grads):
        return False
    found.append(grads)
    return True


def gradients_in(params, grads, pattern):
    """The gradients in a structure, or None if structures or variables differ from a pattern.

    Parameters
    ----------
    params, grads : object
        Nested dicts, lists and tuples.
    pattern : dict, list or tuple
        Dicts with strings as keys, lists, and in tuples of one the variables.
    """
    cdef list found = []
    return found if _collect(params, grads, pattern, found) else None


cdef class Repetition:
    """A checked call whose arrays other than gradients stay the same.

    Only one step at a time can use it.

    Parameters
    ----------
    kernel : Kernel
    call : Call
        As returned by `many_call`; it belongs to the repetition from now on.

    Attributes
    ----------
    possible : bool
        Whether the arrays are ordinary: contiguous, disjoint, and of the type of the computation.
    """

    cdef Kernel kernel
    cdef Call call
    cdef list columns
    cdef cnp.dtype dtype
    cdef span *spans        # of the arrays that are written, sorted
    cdef Py_ssize_t n_spans, n
    cdef readonly bint possible

    def __cinit__(self, Kernel kernel not None, Call call not None):
        cdef Py_ssize_t t, i, n = call.w.n_tensors
        cdef int k, last = kernel.n_operands - 1
        cdef cnp.ndarray a
        self.kernel, self.call = kernel, call
        if (n == 0 or type(call.arrays) is not list or call.w.own_scales
                or len(<list>call.arrays) != kernel.n_operands
                or call.w.n_operands != kernel.n_operands):
            return
        self.columns = call.arrays
        a = (<list>self.columns[0])[0]
        if storage_of(a) != NATIVE:
            return
        self.dtype = a.descr
        self.spans = <span *>malloc(n * last * sizeof(span))
        if self.spans == NULL:
            raise MemoryError
        for k in range(last):
            for t in range(n):
                a = (<list>self.columns[k])[t]
                if call.w.tensors[t].axes != NULL:
                    return
                if cnp.PyArray_SIZE(a):
                    self.spans[self.n_spans].low = <size_t>cnp.PyArray_DATA(a)
                    self.spans[self.n_spans].high = (
                        <size_t>cnp.PyArray_DATA(a) + <size_t>cnp.PyArray_NBYTES(a)
                    )
                    self.n_spans += 1
        qsort(self.spans, self.n_spans, sizeof(span), &_by_address)
        for i in range(1, self.n_spans):
            if self.spans[i - 1].high > self.spans[i].low:
                return
        for t in range(n):
            call.w.tensors[t].data[last] = NULL     # no gradient is known to be apart from these
        self.n = n
        self.possible = True
        self.release()

    def __dealloc__(self):
        free(self.spans)

    cdef bint _is_written(self, size_t low, size_t high) noexcept:
        """Whether a step writes to any of these bytes."""
        cdef Py_ssize_t first = 0, stop = self.n_spans, middle
        while first < stop:         # the first array that ends behind low
            middle = (first + stop) // 2
            if self.spans[middle].high > low:
                stop = middle
            else:
                first = middle + 1
        return first < self.n_spans and self.spans[first].low < high

    cdef bint _is_as_before(self, Py_ssize_t t) noexcept:
        """Whether the memory and shapes of a variable and its slots are those of the first call."""
        cdef cnp.ndarray a, var = (<list>self.columns[0])[t]
        cdef int k
        if cnp.PyArray_SIZE(var) != self.call.w.starts[t + 1] - self.call.w.starts[t]:
            return False
        for k in range(self.kernel.n_operands - 1):
            a = (<list>self.columns[k])[t]
            if not (a.descr is self.dtype
                    and cnp.PyArray_DATA(a) == self.call.w.tensors[t].data[k]
                    and cnp.PyArray_CHKFLAGS(a, cnp.NPY_ARRAY_CARRAY)
                    and same_shape(a, var)):
                return False
        return True

    def call_with(self, dict hypers not None, dict flags not None, var_scale, list grads not None):
        """The call with other hyperparameters and gradients; None if it needs all checks.

        Parameters
        ----------
        hypers, flags : dict
            By name, all of the rule's.
        var_scale : float
        grads : list of ndarray

        Raises
        ------
        InvalidArgumentError
            If a hyperparameter is invalid.
        """
        cdef Kernel kernel = self.kernel
        cdef Call call = self.call
        cdef numbers read
        cdef tuple values = _values(kernel.hypers, hypers)
        cdef object faults = read_scalars(kernel, values, 1.0, var_scale, &read)
        cdef int bits = 0, bit = 1
        cdef Py_ssize_t t, n = self.n
        cdef int last = kernel.n_operands - 1
        cdef cnp.ndarray grad
        cdef char *data
        if faults is not None or not self.possible or len(grads) != n:
            return None
        for flag in kernel.rule.flags:
            bits += bit * bool(flags[flag])
            bit *= 2
        check_hypers(kernel, bits, &read, faults)
        for t in range(n):
            if not self._is_as_before(t) or not cnp.PyArray_CheckExact(grads[t]):
                return None
            grad = grads[t]
            if not (grad.descr is self.dtype
                    and cnp.PyArray_CHKFLAGS(grad, cnp.NPY_ARRAY_CARRAY_RO)
                    and same_shape(grad, (<list>self.columns[0])[t])):
                return None
            data = <char *>cnp.PyArray_DATA(grad)
            if data != call.w.tensors[t].data[last]:
                if self._is_written(<size_t>data, <size_t>data + <size_t>cnp.PyArray_NBYTES(grad)):
                    return None
                call.w.tensors[t].data[last] = data
        self.columns[last] = grads
        call.w.n_tensors = n
        call.w.step = set_scalars(kernel, call, &read, bits,
                                  cnp.PyArray_TYPE(<cnp.ndarray>(<list>self.columns[0])[0]),
                                  True).dense
        return call

    def release(self):
        """Let go of the gradients; the call then does nothing, until `call_with` is called."""
        if self.possible:
            self.call.w.n_tensors = 0
            self.columns[self.kernel.n_operands - 1] = None

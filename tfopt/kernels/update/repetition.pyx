"""Repeating an update of the same arrays with new gradients and hyperparameters.

A training loop updates the same arrays at each step, so most of what a call is checked for has been
checked before. A repetition looks at what can have changed since: the memory of the arrays, and the
new gradients. Whatever is out of the ordinary is left to the checks of a first call.
"""

from cpython.weakref cimport PyWeakref_NewRef
from libc.stdlib cimport calloc, free

cimport tfopt.kernels.platform.numpy_api as cnp

from tfopt.errors import InvalidArgumentError

from tfopt.kernels.arrays.aliasing cimport Occupied, address_range, same_rows, same_shape
from tfopt.kernels.update.checks cimport Call, checked_numbers, numbers, set_scalars
from tfopt.kernels.update.commit cimport Undo
from tfopt.kernels.update.step_table cimport Kernel

cnp.import_array()


def gradients_of(list pairs not None, tuple variables not None):
    """The gradients of pairs with exactly these variables; None if the variables are others.

    Parameters
    ----------
    pairs : list
        None is also returned if not all elements are tuples of two.
    variables : tuple
    """
    cdef Py_ssize_t t, n = len(variables)
    cdef list grads = []
    cdef object pair
    if len(pairs) != n:
        return None
    for t in range(n):
        pair = pairs[t]
        if type(pair) is not tuple or len(<tuple>pair) != 2:
            return None
        if (<tuple>pair)[1] is not variables[t]:
            return None
        grads.append((<tuple>pair)[0])
    return grads


cdef bint _collect(object params, object grads, object pattern, tuple kinds,
                   list found) except -1:
    cdef Py_ssize_t k
    if type(pattern) is dict:
        if type(params) is not dict or type(grads) is not dict \
                or not len(<dict>params) == len(<dict>grads) == len(<dict>pattern):
            return False
        for key, part in (<dict>pattern).items():
            if key not in <dict>params or key not in <dict>grads \
                    or not _collect((<dict>params)[key], (<dict>grads)[key], part, kinds, found):
                return False
        return True
    if type(pattern) is list:
        if type(params) not in (list, tuple) or type(grads) not in (list, tuple) \
                or not len(params) == len(grads) == len(<list>pattern):
            return False
        for k in range(len(<list>pattern)):
            if not _collect(params[k], grads[k], (<list>pattern)[k], kinds, found):
                return False
        return True
    if type(pattern) is not tuple or len(<tuple>pattern) != 1:
        return False
    if params is not (<tuple>pattern)[0] or type(grads) not in kinds:
        return False
    found.append(grads)
    return True


def gradients_in(params, grads, pattern, tuple kinds not None):
    """The gradients in a structure, or None if structures or variables differ from a pattern.

    Parameters
    ----------
    params, grads : object
        Nested dicts, lists and tuples.
    pattern : dict, list or tuple
        Dicts with strings as keys, lists, and in tuples of one the variables.
    kinds : tuple of type
        What a gradient can be.
    """
    cdef list found = []
    return found if _collect(params, grads, pattern, kinds, found) else None


def are_arrays(list grads not None):
    """Whether all elements of a list are NumPy arrays, and of no subclass."""
    for grad in grads:
        if not cnp.PyArray_CheckExact(grad):
            return False
    return True


cdef class Apart:
    """Looks whether the gradients of a step lie outside of its variables.

    Parameters
    ----------
    variables : list of ndarray
    """

    cdef Occupied written
    cdef char **apart       # the last contiguous gradients that do
    cdef Py_ssize_t n

    def __cinit__(self, list variables not None):
        self.written, self.n = Occupied(variables), len(variables)
        self.apart = <char **>calloc(self.n + 1, sizeof(char *))
        if self.apart == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.apart)

    def holds(self, list grads not None):
        """Whether it is certain for gradients of their shapes, arrays or `IndexedSlices`."""
        cdef Py_ssize_t t
        cdef cnp.ndarray array
        cdef char *low = NULL
        cdef char *high = NULL
        cdef object grad
        cdef bint is_array
        for t in range(min(len(grads), self.n)):
            grad = grads[t]
            is_array = isinstance(grad, cnp.ndarray)
            if not is_array:
                grad = getattr(grad, "_memory", None)   # of `IndexedSlices`
                if not isinstance(grad, cnp.ndarray):
                    return False
            array = grad
            if is_array and self.apart[t] == <char *>cnp.PyArray_DATA(array) \
                    and cnp.PyArray_IS_C_CONTIGUOUS(array):
                continue
            address_range(array, &low, &high)
            if self.written.meets(<size_t>low, <size_t>high):
                return False
            if cnp.PyArray_IS_C_CONTIGUOUS(array):
                self.apart[t] = low
        return True


cdef class Repetition:
    """A checked dense call whose arrays other than gradients stay the same.

    Only one step at a time can use it.

    Parameters
    ----------
    kernel : Kernel
    call : Call
        As returned by `many_call`; it belongs to the repetition from now on.

    Attributes
    ----------
    possible : bool
        Whether the arrays are ordinary: contiguous, disjoint, and the gradients of one dtype.
    """

    cdef Kernel kernel
    cdef Call call
    cdef list columns, held
    cdef cnp.dtype dtype, grad_dtype
    cdef Occupied written
    cdef char **apart       # the last gradients that were found to lie outside of these
    cdef Py_ssize_t n
    cdef readonly bint possible

    def __cinit__(self, Kernel kernel not None, Call call not None):
        cdef Py_ssize_t t, n = call.w.n_tensors
        cdef int k, last = kernel.n_operands - 1
        cdef list written = []
        self.kernel, self.call = kernel, call
        if (n == 0 or type(call.arrays) is not list
                or len(<list>call.arrays) != kernel.n_operands
                or call.w.n_operands != kernel.n_operands):
            return
        self.columns = call.arrays
        self.held = [None] * n
        self.dtype = (<cnp.ndarray>(<list>self.columns[0])[0]).descr
        self.grad_dtype = (<cnp.ndarray>(<list>self.columns[last])[0]).descr
        self.apart = <char **>calloc(n, sizeof(char *))
        if self.apart == NULL:
            raise MemoryError
        for t in range(n):
            # with other strides or dtypes, a call has another layout
            if not (self._is_as_before(t) and self._fits((<list>self.columns[last])[t], t)):
                return
        for k in range(last):
            written += <list>self.columns[k]
        self.written = Occupied(written)
        if not self.written.apart:
            return
        self.n = n
        self.possible = True

    def __dealloc__(self):
        free(self.apart)

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
                    and (same_rows(a, var) if self.kernel.n_whole <= k else same_shape(a, var))):
                return False
        return True

    cdef bint _fits(self, object grad, Py_ssize_t t):
        """Whether an object is an ordinary gradient for a variable."""
        return (cnp.PyArray_CheckExact(grad) and (<cnp.ndarray>grad).descr is self.grad_dtype
                and cnp.PyArray_CHKFLAGS(<cnp.ndarray>grad, cnp.NPY_ARRAY_CARRAY_RO)
                and same_shape(<cnp.ndarray>grad, (<list>self.columns[0])[t]))

    def takes(self, list grads not None):
        """Use other gradients, unless they or the variables need all checks.

        Parameters
        ----------
        grads : list of ndarray
            Kept until `release`.

        Returns
        -------
        bool
        """
        cdef Call call = self.call
        cdef Py_ssize_t t, n = self.n
        cdef int last = self.kernel.n_operands - 1
        cdef char *data
        if not self.possible or len(grads) != n:
            return False
        for t in range(n):
            if not (self._is_as_before(t) and self._fits(grads[t], t)):
                return False
            data = <char *>cnp.PyArray_DATA(<cnp.ndarray>grads[t])
            if data != self.apart[t]:
                if self.written.meets(
                        <size_t>data,
                        <size_t>data + <size_t>cnp.PyArray_NBYTES(<cnp.ndarray>grads[t])):
                    return False
                self.apart[t] = data
            call.w.tensors[t].data[last] = data
            self.held[t] = PyWeakref_NewRef(grads[t], None)     # see hold
        self.columns[last] = grads
        return True

    cpdef Call call_with(self, dict hypers, dict flags, grad_scale, var_scale):
        """The call with other hyperparameters, for the gradients that `takes` has accepted.

        Parameters
        ----------
        hypers, flags : dict
            By name, all of the rule's.
        grad_scale, var_scale : float

        Raises
        ------
        InvalidArgumentError
            If a number is invalid, or there are no gradients.
        """
        cdef Kernel kernel = self.kernel
        cdef Call call = self.call
        cdef numbers read
        if not self.possible or self.columns[kernel.n_operands - 1] is None:
            raise InvalidArgumentError("a repetition needs gradients")
        cdef int bits = checked_numbers(kernel, hypers, flags, grad_scale, var_scale, &read)
        call.w.n_tensors = self.n
        call.w.own_scales = False
        call.w.step = set_scalars(kernel, call, &read, bits,
                                  cnp.PyArray_TYPE(<cnp.ndarray>(<list>self.columns[0])[0]),
                                  True).dense
        return call

    def release(self):
        """Release the gradients; the call does nothing until `call_with` gives it others."""
        if self.possible:
            self.call.w.n_tensors = 0
            self.columns[self.kernel.n_operands - 1] = None


include "bound_steps.pxi"


cdef list _at(list values, list places):
    cdef list found = []
    for place in places:
        found.append(values[place])
    return found


cdef class Repetitions:
    """The repetitions of the parts of a step, some of which may have none.

    Parameters
    ----------
    places : list of list of int
        The positions of each part's gradients among those of the step.
    decays : list of bool
        Whether weight decay applies to each part.
    """

    cdef list places, decays, known
    cdef list accepted      # those of parts whose gradients are ordinary, and like those before

    def __cinit__(self, list places not None, list decays not None):
        if len(places) != len(decays):
            raise InvalidArgumentError(f"{len(places)} parts, but {len(decays)} decays")
        self.places, self.decays = places, decays
        self.known, self.accepted = [None] * len(places), [None] * len(places)

    def add(self, Py_ssize_t k, Kernel kernel not None, Call call not None):
        """Repeat the call of a part from now on, if that is possible."""
        cdef Repetition repetition
        if not 0 <= k < len(self.known):
            raise IndexError(k)
        if self.known[k] is None:
            repetition = Repetition(kernel, call)
            self.known[k] = repetition if repetition.possible else None

    def accepts(self, list grads not None):
        """Take the gradients of a step, and return whether all parts can be repeated."""
        cdef Py_ssize_t k, n = len(self.places)
        cdef bint all_are = True, takes
        cdef Repetition repetition
        for k in range(n):
            repetition = self.known[k]
            takes = repetition is not None and repetition.takes(
                grads if n == 1 else _at(grads, self.places[k]))
            self.accepted[k] = repetition if takes else None
            all_are = all_are and takes
        return all_are

    def calls(self, update, scale):
        """The calls of an update for the gradients that have been accepted, and None for others.

        Parameters
        ----------
        update : RuleUpdate
        scale : float
        """
        cdef list made = []
        cdef Repetition repetition
        cdef Py_ssize_t k
        cdef Call call
        for k in range(len(self.places)):
            repetition = self.accepted[k]
            if repetition is None:
                made.append(None)
                continue
            own = update if self.decays[k] else update.without_decay()
            call = repetition.call_with(own.hypers, own.flags, scale, own.keep)
            if own.decay or own.rounding is not None:
                own.completed(call, self.places[k])
            made.append(call)
        return made

    def release(self):
        """Release the gradients."""
        for repetition in self.known:
            if repetition is not None:
                (<Repetition>repetition).release()

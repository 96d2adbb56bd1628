"""Many variables, one call: what an optimizer's step gives to the drivers.

A model has thousands of small arrays, and looking at each through Python would cost more than the
arithmetic. A `Group` checks its variables once; a step looks at pointers, flags and shapes through
NumPy's C structures. The costly check, that no two of all these arrays overlap, is repeated only
if an address or a size has changed since.
"""

cimport cython
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp, memcpy

from tfopt.errors import InvalidArgumentError

from tfopt.kernels.calls cimport (
    Call, Kernel, check_gradient, check_hypers, check_shape, check_variables, set_scalars, set_tensor, tensor,
)
from tfopt.kernels.memory cimport address_range, check_itself, overlap, same_memory
from tfopt.kernels.step cimport MAX_HYPERS

cimport numpy as cnp

cnp.import_array()

cdef struct span:
    char *low
    char *high
    Py_ssize_t variable     # which array it is: operand of the variable
    Py_ssize_t operand


cdef int _by_address(const void *a, const void *b) noexcept nogil:
    cdef const span *x = <const span *>a
    cdef const span *y = <const span *>b
    if x.low != y.low:
        return -1 if x.low < y.low else 1
    return (x.high > y.high) - (x.high < y.high)


@cython.final
cdef class Group:
    """Variables of one dtype, with their slots, that one rule updates together.

    Parameters
    ----------
    kernel : Kernel
    operands : list of tuple of ndarray
        For each variable the variable and its slots.
    """

    cdef Kernel kernel
    cdef list operands
    cdef Py_ssize_t n, n_spans
    cdef span *spans        # as last seen, in the order of the operands
    cdef span *sorted
    cdef bint disjoint      # no two spans meet, as is the case for contiguous arrays

    def __cinit__(self, Kernel kernel not None, list operands not None):
        self.kernel = kernel
        self.n = len(operands)
        self.n_spans = self.n * (kernel.n_operands - 1)
        self.spans = <span *>malloc((self.n_spans + 1) * sizeof(span))
        self.sorted = <span *>malloc((self.n_spans + 1) * sizeof(span))
        if self.spans == NULL or self.sorted == NULL:
            raise MemoryError
        self.operands = [self._checked(arrays) for arrays in operands]
        self._see(self.spans)
        self._check_overlap()

    def __dealloc__(self):
        free(self.spans)
        free(self.sorted)

    cdef list _checked(self, tuple arrays):
        """The arrays of one variable, if they can be updated together."""
        cdef list variables = check_variables(self.kernel, arrays)
        for name, slot in zip(self.kernel.operands, variables):
            check_shape(slot, name, variables[0])
        return variables

    cdef void _see(self, span *into) noexcept:
        cdef Py_ssize_t t, at = 0
        cdef int k
        cdef list arrays
        for t in range(self.n):
            arrays = self.operands[t]
            for k in range(self.kernel.n_operands - 1):
                address_range(arrays[k], &into[at].low, &into[at].high)
                into[at].variable = t
                into[at].operand = k
                at += 1

    cdef cnp.ndarray _of(self, const span *s):
        return (<list>self.operands[s.variable])[s.operand]

    cdef int _check_overlap(self) except -1:
        cdef Py_ssize_t i, j
        cdef char *highest = NULL
        cdef span *s = self.sorted
        for arrays in self.operands:
            for k in range(self.kernel.n_operands - 1):
                check_itself(arrays[k], self.kernel.operands[k])
        memcpy(s, self.spans, self.n_spans * sizeof(span))
        qsort(s, self.n_spans, sizeof(span), _by_address)
        self.disjoint = True
        for i in range(self.n_spans):
            if s[i].low < highest and s[i].low < s[i].high:
                self.disjoint = False
                for j in range(i):
                    if s[j].high > s[i].low and overlap(self._of(&s[j]), self._of(&s[i])):
                        raise InvalidArgumentError(
                            f"{self._name(&s[j])} and {self._name(&s[i])} overlap in memory"
                        )
            if s[i].high > highest:
                highest = s[i].high
        return 0

    cdef str _name(self, const span *s):
        return f"{self.kernel.operands[s.operand]} of variable {s.variable}"

    cdef cnp.ndarray _separate(self, cnp.ndarray grad, Py_ssize_t t):
        """The gradient of variable t, copied if another element's update would change it."""
        cdef char *low = NULL
        cdef char *high = NULL
        cdef Py_ssize_t first = 0, last = self.n_spans, middle, i
        address_range(grad, &low, &high)
        if self.disjoint:       # the first span that ends above low
            while first < last:
                middle = (first + last) // 2
                if self.sorted[middle].high <= low:
                    first = middle + 1
                else:
                    last = middle
        for i in range(first, self.n_spans):
            if self.sorted[i].low >= high:
                break
            if self.sorted[i].high <= low or not overlap(self._of(&self.sorted[i]), grad):
                continue
            if self.sorted[i].variable != t or not same_memory(self._of(&self.sorted[i]), grad):
                return grad.copy()
        return grad

    def call(self, list grads not None, tuple hypers not None, int flags, grad_scale):
        """Check one gradient per variable; the call updates them all."""
        cdef Call call = Call.__new__(Call)
        cdef Py_ssize_t t
        cdef int last = self.kernel.n_operands - 1
        cdef list variables
        cdef list kept = []
        cdef span *now
        cdef double[MAX_HYPERS] values
        cdef cnp.ndarray var = None
        cdef cnp.ndarray grad
        if len(grads) != self.n:
            raise InvalidArgumentError(f"{self.n} variables, but {len(grads)} gradients")
        now = <span *>malloc((self.n_spans + 1) * sizeof(span))
        if now == NULL:
            raise MemoryError
        self._see(now)
        if memcmp(now, self.spans, self.n_spans * sizeof(span)) != 0:
            memcpy(self.spans, now, self.n_spans * sizeof(span))
            free(now)
            self._check_overlap()
        else:
            free(now)
        call.w.tensors = <tensor *>malloc((self.n + 1) * sizeof(tensor))
        call.w.starts = <Py_ssize_t *>malloc((self.n + 1) * sizeof(Py_ssize_t))
        call.w.n_tensors = 0
        if call.w.tensors == NULL or call.w.starts == NULL:
            raise MemoryError
        call.w.starts[0] = 0
        for t in range(self.n):
            variables = self.operands[t]
            var = variables[0]
            grad = check_gradient(self.kernel, grads[t], var)
            check_shape(grad, <str>self.kernel.operands[last], var)
            grad = self._separate(grad, t)
            kept.append(grad)
            set_tensor(&call.w.tensors[t], variables, grad, 0)
            call.w.n_tensors = t + 1
            call.w.starts[t + 1] = call.w.starts[t] + cnp.PyArray_SIZE(var)
        if self.n:
            check_hypers(self.kernel, hypers, flags, values)
            call.w.step = set_scalars(self.kernel, call, values, flags, grad_scale,
                                      cnp.PyArray_TYPE(var), True).dense
        call.arrays = (self, kept)
        return call

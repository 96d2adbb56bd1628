# A checked call, included by checks.pyx: what drivers get, and how its operands lie in memory.

@cython.final
cdef class Call:
    """A checked call, ready to run."""

    def __cinit__(self):
        self.w.tensors = &self.one
        self.w.starts = self.one_start
        self.w.n_tensors = self.n_laid_out = 1
        self.w.own_scales = False
        self.w.grain = 1
        self.w.outside = &self.outside
        self.one.axes = NULL

    @property
    def sums(self):
        """Whether the gradients of equal indices are summed in the call."""
        return self.w.summing != NULL

    def __dealloc__(self):
        cdef Py_ssize_t t
        if self.w.tensors == NULL:
            return
        free(self.w.scratch)
        free(self.w.span_sums)
        for t in range(self.n_laid_out):
            free(self.w.tensors[t].axes)
        if self.w.tensors != &self.one:
            free(self.w.tensors)
            free(self.w.starts)


# ---- its scalars

cdef int check_flags(Kernel kernel, int flags) except -1:
    if not 0 <= flags < kernel.n_flags:
        raise InvalidArgumentError(f"{kernel.name} has no flags {flags}")
    return 0


cdef const steps *set_scalars(Kernel kernel, Call call, const numbers *read, int flags,
                              int typenum, bint dense) except NULL:
    """Set what the steps of a call need besides arrays; return the steps to choose from."""
    cdef fp_state caller
    cdef int type_ = 0      # float32, float64, complex64, complex128; 16-bit dtypes: float32
    if typenum == cnp.NPY_FLOAT64:
        type_ = 1
    elif typenum == cnp.NPY_COMPLEX64:
        type_ = 2
    elif typenum == cnp.NPY_COMPLEX128:
        type_ = 3
    check_flags(kernel, flags)
    cdef const steps *rule = called_steps(kernel, flags, type_)
    call.complex_numbers = type_ > 1
    call.w.flush = flush_denormals()
    call.w.n_operands = kernel.n_operands
    call.w.by_rows = kernel.by_rows or (kernel.by_tensors and rule.first == NULL)
    call.w.n_whole = kernel.n_whole
    call.w.first, call.w.reduce = rule.first, rule.reduce
    call.w.n_sums, call.w.n_given = kernel.n_sums, kernel.n_given
    call.w.itemsize = 4 << ((type_ + 1) // 2)
    caller = fp_enter(call.w.flush)
    if rule.choose != NULL:
        rule += 4 * rule.choose(read.hypers)
    rule.scalars(read.hypers, read.scales, dense, call.w.h)
    fp_leave(caller)
    call.w.blocks = &rule.blocks
    if dense:
        call.w.half = &rule.half[0]
    else:
        call.w.half = &rule.half_rows[0]
    return rule


# ---- its operands

cdef int set_tensor(tensor *into, list variables, cnp.ndarray grad, int skip_axes, int n_whole,
                    bint as_in_c) except -1:
    """Set the addresses of operands and, unless they are runs, their axes from `skip_axes` on.

    The operands from `n_whole` on, but the gradient, have one number for each row.
    """
    cdef const cnp.npy_intp *strides[MAX_OPERANDS]
    cdef int storage[MAX_OPERANDS]
    cdef layout *axes
    cdef cnp.ndarray a, var = variables[0]
    cdef int k, n = len(variables)
    cdef bint contiguous = True, blocked = False
    for k in range(n + 1):
        a = variables[k] if k < n else grad
        into.data[k] = <char *>cnp.PyArray_DATA(a)
        strides[k] = cnp.PyArray_STRIDES(var if n_whole <= k < n else a) + skip_axes
        storage[k] = block_storage_of(a)
        blocked = blocked or storage[k]
        if storage[k] == NATIVE:
            storage[k] = max(storage_of(a), <int>NATIVE)    # integers, which clipping supports
        contiguous = contiguous and storage[k] == NATIVE and cnp.PyArray_IS_C_CONTIGUOUS(a)
    into.axes, into.walk = NULL, 0
    if contiguous:
        return 0
    axes = <layout *>calloc(1, sizeof(layout))
    if axes == NULL:
        raise MemoryError
    if blocked:
        axes.blocked, axes.n_written = True, n
    else:
        merge_axes(axes, n + 1, cnp.PyArray_NDIM(var) - skip_axes,
                   cnp.PyArray_DIMS(var) + skip_axes, strides, as_in_c)
    into.walk = axes.walk
    for k in range(n + 1):
        axes.storage[k] = storage[k]
    contiguous = not blocked and is_run(axes, n + 1, cnp.PyArray_ITEMSIZE(var))
    for k in range(n_whole, n):
        if cnp.PyArray_NDIM(variables[k]):
            axes.stride[k][0] = cnp.PyArray_STRIDE(variables[k], 0)
            contiguous = contiguous and (skip_axes or cnp.PyArray_IS_C_CONTIGUOUS(variables[k]))
    if contiguous:
        free(axes)
    else:
        into.axes = axes
    return 0


cdef void set_sizes(Kernel kernel, tensor *into, cnp.ndarray var) noexcept:
    into.size = cnp.PyArray_SIZE(var)
    into.inner = into.size if kernel.by_tensors else row_size(var)


cdef int lay_out(Kernel kernel, Call call, tensor *into, list variables, cnp.ndarray grad,
                 int skip_axes) except -1:
    """The same for a rule, whose steps may be of whole rows."""
    if not (kernel.by_rows or kernel.by_tensors):
        return set_tensor(into, variables, grad, skip_axes, len(variables), False)
    set_sizes(kernel, into, variables[0])
    set_tensor(into, variables, grad, skip_axes, kernel.n_whole, True)
    if into.axes != NULL and (kernel.by_rows or called_steps(kernel, 0, 0).first == NULL):
        need_scratch(&call.w, into)
    return 0

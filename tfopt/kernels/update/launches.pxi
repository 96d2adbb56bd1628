# Steps of variables on a device: the queries of their arrays each time, and the call that queues
# the step; in commit.pyx.

ctypedef int (*queues)(tfopt_device_step *step) noexcept nogil
ctypedef int (*finds_device)(const void *address, int *device) noexcept nogil
ctypedef int (*looks)(const tfopt_device_step *step, int *finite) noexcept nogil

cdef enum:
    N_NUMBERS = MAX_SCALARS + N_SCALES
    PER_PART = sizeof(tfopt_device_part) + sizeof(tfopt_device_storage) + 8 * N_NUMBERS     # bytes
    PER_VARIABLE = 8 + 8 + 8 + 8 + 4 + 4 + 1
    PER_ARRAY = 8 + 8 + 1
    IN_BFLOAT16 = 3     # the library's number of the types of such variables and gradients
    MOST_STREAMS = 8    # besides the first
    NO_ROW = 0xFFFFFFFF     # what the sort's 32 bits need, besides the rows


cdef class Launch(Write):
    """A checked step of variables on a device, or of their rows, which its library queues.

    The step is taken again with other gradients as long as its arrays stay where they are. They
    are asked where they are each time, in the shortest way that their library has.

    Parameters
    ----------
    functions : tuple of PyCapsule
        Three functions of the device's library: they queue a step, find an address's device, and
        look whether gradients are finite.
    check : callable
        Gets what the first and the last return if that is not 0, and of an index that is out of
        range its position and the number of rows; raises.
    device : int
    parts : list of tuple
        Of each: the kernel, the library's numbers of the rule, of its types and of the gradients'
        type, the number of variables, whether their weights decay, and, of rows of a variable,
        whether other rows stay as they are, else None; and the storage types of the operands with
        the address of tables of codes or 0, or None if variables are stored as the types say.
    arrays : list of array
        Each variable with its slots, one variable after the other.
    places : list of int
        The position of each variable's gradient in a step.
    limits : tuple
        As `clip` takes them.
    grads : list
        The gradients of the first step.

    Attributes
    ----------
    possible : bool
        Whether the arrays tell quickly where they are, lie apart, and are on few streams.
    accepted : bool
        Whether it has gradients.
    shares : bool
        Whether the step sums rows of these gradients itself.
    asks : bool
        Whether it asks once more where the arrays are when it begins, for they may have moved.
    """

    cdef queues queue
    cdef finds_device find
    cdef looks look
    cdef object refuse          # the argument `check`
    cdef tfopt_device_step step
    cdef char *memory           # of all that follows
    cdef tfopt_device_part *parts
    cdef tfopt_device_storage *stored   # of each part
    cdef list kernels, decays, arrays, held
    cdef Launch earlier         # which is queued before it
    cdef void **data
    cdef void **grad
    cdef int64_t *size          # of gradients
    cdef int64_t *inner         # elements of a row that has a number of its own
    cdef int64_t *sizes         # of all arrays
    cdef int *types             # of gradients
    cdef int *n_arrays          # of each variable
    cdef Py_ssize_t *places
    cdef double *scalars
    cdef uint8_t *codes         # of the types of all arrays, and then of gradients: see _type
    cdef exchange *api          # NULL: the arrays have __cuda_array_interface__
    cdef object kind            # the last type whose arrays it describes
    cdef int32_t[2] api_device  # its type, below 0 before any array was asked, and its number
    cdef int64_t stream         # of the first array, -1 before any was asked
    cdef void *others[MOST_STREAMS]     # of further ones
    cdef Occupied written
    cdef readonly bint possible, accepted, shares
    cdef public bint asks
    cdef bint by_rows           # whether any part is

    def __cinit__(self, tuple functions not None, check, int device, list parts not None,
                  list arrays not None, list places not None, tuple limits not None,
                  list grads not None):
        cdef Py_ssize_t t, p, first = 0, i = 0, n = len(places), n_parts = len(parts)
        cdef int k, grad_type
        cdef tuple part
        cdef tfopt_device_part *it = NULL
        if len(functions) != 3:
            raise InvalidArgumentError("a launch takes three functions")
        self.queue = <queues>PyCapsule_GetPointer(functions[0], b"tfopt.queue_step")
        self.find = <finds_device>PyCapsule_GetPointer(functions[1], b"tfopt.find_device")
        self.look = <looks>PyCapsule_GetPointer(functions[2], b"tfopt.look_at_gradients")
        self.refuse, self.arrays, self.kernels, self.decays = check, arrays, [], []
        self.memory = <char *>calloc(1, n_parts * PER_PART + n * PER_VARIABLE
                                     + len(arrays) * PER_ARRAY + 8)
        if self.memory == NULL:
            raise MemoryError
        self.parts = <tfopt_device_part *>self.memory       # the widest first, so all are aligned
        self.stored = <tfopt_device_storage *>(self.parts + n_parts)
        self.scalars = <double *>(self.stored + n_parts)
        self.data = <void **>(self.scalars + n_parts * N_NUMBERS)
        self.grad = self.data + len(arrays)
        self.size = <int64_t *>(self.grad + n)
        self.inner = self.size + n
        self.sizes = self.inner + n
        self.places = <Py_ssize_t *>(self.sizes + len(arrays))
        self.types = <int *>(self.places + n)
        self.n_arrays = self.types + n
        self.codes = <uint8_t *>(self.n_arrays + n)
        for p in range(n_parts):
            part, it = parts[p], self.parts + p
            if len(part) != 8:
                raise InvalidArgumentError("a part of a launch has eight things")
            self.kernels.append(<Kernel?>part[0])
            self.decays.append(part[5])
            k, grad_type = (<Kernel>part[0]).n_operands - 1, part[3]
            it.rule, it.types, it.first, it.n = part[1], part[2], first, part[4]
            it.scalars, it.data = self.scalars + p * N_NUMBERS, self.data + i
            if part[7] is not None:
                _set_storage(self.stored + p, part[7], k + 1)
                self.stored[p].numbers, it.stored = self.places + first, self.stored + p
            if part[6] is not None:
                it.index_size, it.lazy, self.by_rows = 8, part[6], True
            if it.index_size and it.n != 1 or it.n < 0 or it.n > n - first \
                    or it.n * k > len(arrays) - i or not 0 <= grad_type < 4:
                raise InvalidArgumentError("the parts of a launch do not fit its arrays")
            for t in range(first, first + it.n):
                self.places[t], self.types[t], self.n_arrays[t] = places[t], grad_type, k
                if self.places[t] < 0:
                    raise InvalidArgumentError("a gradient's place is negative")
            first += it.n
            i += it.n * k
        self.step.device, self.step.n, self.step.parts = device, n, self.parts
        self.step.grad = <const void **>self.grad
        self.step.size, self.step.inner = self.size, self.inner
        self.step.grad_type, self.step.others = self.types, self.others
        self.clip(limits)
        self.possible = 0 < n == first and i == len(arrays) and self._bind(grads)

    def __dealloc__(self):
        free(self.memory)

    def clip(self, tuple limits not None):
        """Set the limits of gradients before their scaling.

        Parameters
        ----------
        limits : tuple
            0 to 2 for no norm, the norm of each gradient or that of all, its limit, and the bounds
            of elements for each of the gradients' types.
        """
        cdef int k
        if len(limits) != 6 or not 0 <= <int>limits[0] <= 2:
            raise InvalidArgumentError("a launch takes six limits")
        self.step.clipping, self.step.limit = <tfopt_clipping><int>limits[0], limits[1]
        for k in range(4):
            self.step.bounds[k] = limits[2 + k]

    cdef bint _bind(self, list grads) except -1:
        """Note where the arrays are; return whether they can be asked again."""
        cdef list spans = []
        self.api = _exchange_of(self.arrays[0])
        self.api_device[0] = -1
        if not self._ask(grads, spans):
            return False
        self.written = Occupied(spans)
        return self.written.apart

    cdef bint _ask(self, list grads, list spans) except -1:
        """Ask all arrays where they are; return False if they need other checks than these.

        The first time, `spans` gets the memory that is written; later it is None, variables and
        slots must be where they were, and gradients must fit them and be apart from them.
        """
        cdef described var, found
        cdef int64_t[2 * MAX_DIMS] room
        cdef int64_t[2 * MAX_DIMS] other
        cdef Py_ssize_t p, t, k, i = 0
        cdef int64_t n = 0
        cdef tfopt_device_part *it
        cdef object indices = None, sources = None
        cdef tuple shared = None
        cdef bint by_rows
        cdef int bits
        self.stream, self.step.n_others, self.shares = -1, 0, False
        for p in range(len(self.kernels)):
            it = self.parts + p
            by_rows = it.index_size != 0
            for t in range(it.first, it.first + it.n):
                for k in range(self.n_arrays[t]):
                    if not self._describe(self.arrays[i], &found,
                                          &room[0] if k == 0 else &other[0]):
                        return False
                    if k == 0:
                        var = found
                    n = _size(&found)
                    if spans is not None:
                        self.sizes[i], self.codes[i] = n, _type(&found)
                        if n:
                            spans.append((<size_t>found.data,
                                          <size_t>found.data + <size_t>(n * (found.bits // 8))))
                    elif n != self.sizes[i] or _type(&found) != self.codes[i] \
                            or (found.data != self.data[i] and not self.asks):
                        return False
                    self.data[i] = found.data
                    i += 1
                if self.places[t] >= len(grads) or by_rows and var.ndim == 0:
                    return False
                grad = grads[self.places[t]]
                if by_rows:
                    it.sources = NULL
                    shared = self._shared_rows(grad, &var)
                    if shared is None:
                        indices = getattr(grad, "indices", None)
                        grad = getattr(grad, "values", None)
                    else:
                        grad, sources, indices = shared
                if not self._describe(grad, &found, other):
                    return False
                if spans is not None:
                    self.codes[len(self.arrays) + t] = _type(&found)
                    if by_rows:
                        it.n_rows, it.inner = var.shape[0], _size(&var, 1)
                    elif n:     # of a slot that has a number for each row, if one has
                        self.inner[t] = _size(&var) // n
                    continue
                if found.ndim != var.ndim or _type(&found) != self.codes[len(self.arrays) + t] \
                        or memcmp(found.shape + by_rows, var.shape + by_rows,
                                  (found.ndim - by_rows) * sizeof(int64_t)) != 0:
                    return False
                n = _size(&found)
                if not self._is_apart(&found, n, self.grad[t], self.size[t]):
                    return False
                self.grad[t], self.size[t] = found.data, n
                if by_rows:
                    n = found.shape[0]
                    bits = 0
                    if shared is not None:
                        if not self._describe(sources, &found, other):
                            return False
                        n, bits, it.sources = found.shape[0], found.bits, found.data
                        self.shares = True
                    if var.shape[0] != it.n_rows or not self._describe(indices, &found, other) \
                            or found.code != INTEGER or found.bits < 32 or found.ndim != 1 \
                            or found.shape[0] != n or n >= NO_ROW or bits and bits != found.bits \
                            or not self._is_apart(&found, n, it.indices, it.n_indices):
                        return False
                    it.indices, it.n_indices, it.index_size = found.data, n, found.bits // 8
        return True

    cdef tuple _shared_rows(self, object grad, const described *var):
        """Return rows, the one of each index, and indices, of a gradient that the step sums.

        None if it is not of that kind, or if its norm is limited, for which it is summed first. Its
        indices have been checked for a variable of as many rows.
        """
        shares = getattr(grad, "_shared_rows", None)
        if shares is None or self.step.clipping != UNCLIPPED or grad.shape is None \
                or grad.shape[0] != var.shape[0]:
            return None
        return shares()

    cdef bint _describe(self, object array, described *into, int64_t *room) except -1:
        """Ask an array where it is; return False if it cannot tell, or if it is not in C order.

        There is room for the shape and strides of an array.
        """
        if self.api != NULL:
            if type(array) is not self.kind:
                if _exchange_of(array) != self.api:
                    return False
                self.kind = type(array)
            if self.api.describe(<void *>array, into) != 0:
                PyErr_Clear()
                return False
            if self.api_device[0] < 0:
                self.api_device[0], self.api_device[1] = into.device, into.device_number
            into.data = <char *>into.data + into.byte_offset
            return (into.device == self.api_device[0]
                    and into.device_number == self.api_device[1] and _is_in_order(into))
        cdef int64_t stream = NO_STREAM
        try:
            return (_of_interface(array, into, room, &stream) and self._has_stream(stream)
                    and _is_in_order(into))
        except (KeyError, RuntimeError, TypeError, ValueError):
            return False        # such as of a tensor of an older torch that requires a gradient

    cdef bint _has_stream(self, int64_t stream) noexcept:
        """Note the stream of an array; return False if there are too many."""
        cdef int k
        if self.stream == -1 or self.stream == stream:
            self.stream = stream
            return True
        for k in range(self.step.n_others):
            if self.others[k] == <void *><size_t>stream:
                return True
        if self.step.n_others == MOST_STREAMS:
            return False
        self.others[self.step.n_others] = <void *><size_t>stream
        self.step.n_others += 1
        return True

    def takes(self, list grads not None):
        """Use other gradients, unless they or the variables need all checks.

        Parameters
        ----------
        grads : list of array
            Kept until `release`.

        Returns
        -------
        bool
        """
        cdef void *stream = NULL
        self.release()
        if not self.possible or not self._ask(grads, None):
            return False
        if self.api != NULL:
            if self.api.current_stream == NULL or self.api.current_stream(
                    self.api_device[0], self.api_device[1], &stream) != 0:
                PyErr_Clear()
                return False
            self.step.stream = stream
        else:
            self.step.stream = <void *><size_t>self.stream
        self.held, self.accepted = grads, True
        return True

    cdef bint _is_apart(self, const described *it, int64_t n, const void *before,
                        int64_t n_before) noexcept:
        """Whether what is read is apart from what is written; it was if it is where it was."""
        cdef size_t low = <size_t>it.data
        cdef int device = -1
        if n == 0 or it.data == before and n == n_before:
            return True
        return (not self.written.meets(low, low + <size_t>(n * (it.bits // 8)))
                and self.find(it.data, &device) == 0 and device == self.step.device)

    def prepare(self, update, scale):
        """Set the numbers of the step of the gradients that `takes` has accepted.

        Parameters
        ----------
        update : RuleUpdate
        scale : float

        Returns
        -------
        bool
            Whether a device supports it.

        Raises
        ------
        InvalidArgumentError
            If a number is invalid.
        """
        cdef Py_ssize_t p
        cdef Kernel kernel
        cdef numbers read
        cdef tfopt_device_part *it
        cdef int flags
        if not self.accepted:
            raise InvalidArgumentError("a launch needs gradients")
        self.step.scale = scale
        for p in range(len(self.kernels)):
            kernel, it = self.kernels[p], self.parts + p
            own = update if self.decays[p] else update.without_decay()
            rounds = own.rounding is not None
            if rounds and it.stored == NULL and it.types == IN_BFLOAT16:
                return False
            it.decay, self.stored[p].rounds = own.decay, rounds
            if rounds:
                self.stored[p].seed, self.stored[p].step = own.rounding
            if it.index_size:
                if (own.rows or own.rule) != kernel.name:
                    return False
                it.summed = own.duplicates == "sum" or own.keep != 1 or own.decay != 0
            flags = checked_numbers(kernel, own.hypers, own.flags, scale, own.keep, &read)
            it.constants = scalars_into(kernel, &read, flags, it.types == 1, it.index_size == 0,
                                        self.scalars + p * N_NUMBERS)
        self.step.n_parts = <int>len(self.kernels)
        return True

    def follow(self, list launches not None):
        """Queue other launches first, which compute the gradients, until `release`."""
        cdef Launch last = self
        self.step.before, self.earlier = NULL, None
        for each in launches:
            if each is last or (<Launch?>each).step.before != NULL:
                raise InvalidArgumentError("a launch follows others, which follow none")
            last.step.before, last.earlier = &(<Launch>each).step, each
            last = each

    def release(self):
        """Release the gradients; the launch does nothing until it is given others."""
        self.held, self.accepted = None, False
        self.step.n_parts = 0
        self.step.before = NULL
        self.earlier = None

    def finite(self):
        """Wait for the gradients that `takes` has accepted; return whether all are finite."""
        cdef int code, found = 0
        if not self.accepted:
            raise InvalidArgumentError("a launch needs gradients")
        with nogil:
            code = self.look(&self.step, &found)
        if code:
            self.refuse(code, 0, 0)
        return bool(found)

    cdef int check(self) except -1:
        if self.by_rows:
            self._call(True)
        return 0

    cdef int begin(self) except -1:
        cdef int n_parts = self.step.n_parts
        if n_parts and self.asks:
            if not self.takes(self.held):
                raise InvalidArgumentError("an array on a GPU has been replaced by another one")
            self.step.n_parts = n_parts
        return self._call(False)

    cdef int _call(self, bint checks) except -1:
        cdef int code = 0
        if self.step.n_parts:
            self.step.only_checks = checks
            with nogil:
                code = self.queue(&self.step)
        if code:
            self.refuse(code, self.step.outside, self.parts[self.step.outside_part].n_rows)
        return 0

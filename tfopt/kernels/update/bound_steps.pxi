# Steps bound to variables: what they depend on, and where they are kept; in repetition.pyx.


cdef class Unchanged:
    """Objects whose version is still the same, and containers that are empty or not as before.

    Parameters
    ----------
    owners : list of object
        Their attribute `_version` is another object after each change that counts.
    containers : list of list or dict
    """

    cdef list owners, versions, containers, empty

    def __cinit__(self, list owners not None, list containers not None):
        self.owners, self.versions, self.containers, self.empty = [], [], list(containers), []
        for owner in owners:
            self.owners.append(owner.__dict__)
            self.versions.append(owner.__dict__["_version"])
        for container in containers:
            self.empty.append(not container)

    def holds(self):
        """Whether all of this is true."""
        cdef Py_ssize_t k
        for k in range(len(self.owners)):
            if (<dict>self.owners[k]).get("_version") is not self.versions[k]:
                return False
        for k in range(len(self.containers)):
            if (not self.containers[k]) is not self.empty[k]:
                return False
        return True


cdef class Bound:
    """A step bound to variables, and what must stay the same for it to be taken again.

    Parameters
    ----------
    step : object
        Its attribute `fits` is None, or tells whether what has no version is the same; and it has a
        method `release`.
    request : object
        What the step does, without gradients.
    variables : tuple
        As passed by the caller.
    mark : object
        Of the state there is, in case the step fails.
    """

    cdef readonly object step, request, mark
    cdef readonly tuple variables
    cdef Apart apart            # of several variables
    cdef Unchanged unchanged    # None before the first step
    cdef object kinds           # types of gradients that steps take as they are; besides arrays
    cdef bint is_direct, aggregates
    cdef readonly bint locks
    cdef Undo undo

    def __cinit__(self, step, request, tuple variables not None, mark):
        self.step, self.request, self.variables, self.mark = step, request, variables, mark
        self.undo = Undo(())

    def begin(self):
        """An `Undo` of nothing, which tells whether a step that begins now has been taken."""
        self.undo.done = False
        return self.undo

    def settle(self, mark, Unchanged unchanged not None, Apart apart, kinds, bint is_direct,
               bint locks):
        """Note the state after the first step, and whether steps hold the variables' locks.

        It is direct if the gradients of a caller reach it as they are, but for their conversion;
        gradients of some kinds need none, and share no memory with host arrays.
        """
        self.mark, self.unchanged, self.apart, self.kinds = mark, unchanged, apart, kinds
        self.is_direct, self.locks, self.aggregates = is_direct, locks, self.request.aggregates

    cpdef bint holds(self) except -1:
        """Whether nothing has changed that it depends on."""
        if self.unchanged is None or not self.unchanged.holds():
            return False
        fits = self.step.fits
        return fits is None or fits()


cdef class Repeats:
    """The bound step that has been taken last, unless it is being used.

    Then it is not here, so that another thread binds its own.

    Parameters
    ----------
    convert, separate : callable
        They get gradients and variables, and return gradients as steps take them: the first one
        from other kinds of gradients than arrays, the second one where memory is shared.
    """

    cdef object convert, separate
    cdef list last

    def __cinit__(self, convert, separate):
        self.convert, self.separate, self.last = convert, separate, []

    def __reduce__(self):
        return type(self), (self.convert, self.separate)    # a copy has steps of its own

    def keep(self, Bound bound not None):
        """Keep a bound step that has been taken, and return whether that was its first time."""
        bound.step.release()
        self.last = [bound]
        return bound.unchanged is None

    cdef Bound _taken_out(self):
        try:
            return self.last.pop()
        except IndexError:
            return None

    def of_pairs(self, list pairs not None, bint aggregates):
        """The bound step and its gradients, if pairs have exactly its variables; otherwise None."""
        cdef Bound bound = self._taken_out()
        cdef list grads
        if bound is None:
            return None
        grads = None
        if bound.is_direct and bound.aggregates == aggregates:
            grads = gradients_of(pairs, bound.variables)
        return self._held(bound, grads)

    def of_variables(self, tuple variables not None, list grads not None):
        """The bound step and its gradients, if it is of these variables; otherwise None."""
        cdef Bound bound = self._taken_out()
        if bound is None:
            return None
        if not bound.is_direct or not bound.aggregates \
                or not _has_variables(bound, variables):
            grads = None
        return self._held(bound, grads)

    def of_request(self, request):
        """The bound step of a request, whatever its gradients and scale; None if it is another."""
        cdef Bound bound = self._taken_out()
        if bound is None or not bound.holds():
            return None
        if request.is_like(bound.request) and _has_variables(bound, request.variables):
            return bound
        self.last = [bound]
        return None

    cdef tuple _held(self, Bound bound, list grads):
        """The bound step with gradients as it takes them; None if it must be bound anew."""
        if grads is None:
            self.last = [bound]
            return None
        if not bound.holds():
            return None
        if bound.kinds and _are_of(grads, bound.kinds):
            return bound, grads
        if not are_arrays(grads):
            for grad in grads:
                if grad is None:
                    return None
            grads = self.convert(grads, bound.variables)
        if bound.apart is not None and not bound.apart.holds(grads):
            grads = self.separate(grads, bound.variables)
        return bound, grads


cdef bint _are_of(list grads, kinds) except -1:
    for grad in grads:
        if type(grad) not in kinds:
            return False
    return True


cdef bint _has_variables(Bound bound, tuple variables):
    cdef Py_ssize_t k
    if bound.variables is variables:
        return True
    if len(variables) != len(bound.variables):
        return False
    for k in range(len(variables)):
        if variables[k] is not bound.variables[k]:
            return False
    bound.variables = variables     # which are found sooner the next time
    return True

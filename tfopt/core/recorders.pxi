# Tapes and traces, which record a thread's operations.

@cython.final
cdef class Tape:
    """A recorder of operations on the tensors it knows."""

    def __init__(self, bint watch_accessed):
        self.watch_accessed = watch_accessed
        self.nodes = []
        self.known = set()
        self.variables = {}

    def watch(self, value):
        """Know a tensor, or a variable, from now on."""
        if type(value) is Tensor:
            if differentiable(array_of(<Tensor>value)):
                self.known.add(key_of(<Tensor>value))
        else:
            self.variables.setdefault(value, [])
            self.saw(value, read(value))

    def knows(self, Tensor tensor not None):
        """Whether a tensor is watched, or was made from one that is."""
        return has_key(tensor) and known_key(tensor) in self.known

    def knows_key(self, key):
        """Whether a tensor of this key is watched, or was made from one that is."""
        return key in self.known

    cdef int saw(self, Readable variable, Tensor tensor) except -1:
        cdef Key found
        keys = self.variables.get(variable)
        if keys is None:
            if not (self.watch_accessed and variable.trainable):
                return 0
            keys = self.variables[variable] = []
        if differentiable(array_of(tensor)):
            found = key_of(tensor)
            if found not in self.known:
                self.known.add(found)
                keys.append(found)
        return 0


@cython.final
cdef class Trace:
    """A recorder of all operations, with tensors that stand for the values of later calls.

    A variable's value is a tensor of the trace's own: an assignment replaces it, and does not
    change the variable.
    """

    def __init__(self):
        self.nodes = []
        self.symbolic = set()
        self.values = {}
        self.may_create = False
        self.created = False
        self.changed = False

    def place(self, Tensor tensor not None):
        """Make a tensor symbolic: it stands for a value that is not known yet."""
        key_of(tensor).symbolic = True
        self.symbolic.add(known_key(tensor))

    def assume(self, Tensor tensor not None):
        """Treat what depends on a tensor as symbolic, though the tensor's value is known."""
        self.symbolic.add(key_of(tensor))

    def is_symbolic(self, value):
        """Whether a value depends on what is not known yet."""
        return (type(value) is Tensor and has_key(<Tensor>value)
                and known_key(<Tensor>value) in self.symbolic)

    def add(self, Node node not None):
        """Append a node."""
        cdef Tensor x
        for value in node.ins:
            if self.is_symbolic(value):
                break
        else:
            self.nodes.append(node)
            return
        if self.changed and type(node.op) is Op and not (<Op>node.op).sized:
            raise TypeError(
                f"{(<Op>node.op).label} after an assignment in a traced function: the shape of its "
                "result may depend on values that the assignment changes. Do it before the "
                "assignment, or in another function"
            )
        node.where = users_line()
        self.nodes.append(node)
        for x in node.outs:
            self.place(x)

    cdef Tensor read(self, Readable variable):
        found = self.values.get(variable)
        if found is None:
            found = wrap(array_of(variable.current()))
            self.place(found)
            self.values[variable] = found
            node = Node(READ, (), (found,), {"variable": variable})
            node.where = users_line()
            self.nodes.append(node)
        return found

    def create(self):
        """Note that a variable is created, which only the first trace may do."""
        if not self.may_create:
            raise ValueError(
                "a traced function may create variables in its first call only: create them once "
                "and keep them, or create them outside the function (tf.function only supports "
                "singleton tf.Variables created on the first call)"
            )
        self.created = True


def tracing():
    """The trace that records this thread, or None."""
    if tfopt_recorders == NULL:
        return None
    first = (<tuple>tfopt_recorders)[0]
    return first if type(first) is Trace else None


def plain(tuple operands not None):
    """Whether operands are NumPy arrays, no subclasses, and no trace records this thread.

    Then they can be written to without further checks.
    """
    for operand in operands:
        if not cnp.PyArray_CheckExact(operand):
            return False
    return tfopt_recorders == NULL or tracing() is None


READ = Op("ReadVariable", None)


def used(Readable variable not None):
    """Notify recorders and watchers of a variable that has been assigned."""
    if (tfopt_recorders != NULL or tfopt_watchers != NULL) and tracing() is None:
        read(variable)

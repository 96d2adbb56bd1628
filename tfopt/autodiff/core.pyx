"""The engine: tensors, variables' snapshots, and the record of what was done to them.

(A) Who knows whom. A tape knows nodes, nodes know tensors, tensors know nothing but an array and a
    key, which is who they are: so there are no cycles, and what nobody can ask for is freed.
(B) Every thread has its own recorders, in C's thread-local storage, because each operation asks for
    them. The tuple is replaced, never changed.
(C) Of what a node's gradients do not read, the node keeps shape and dtype alone: an array with
    strides of 0 over one NaN (a "ghost"), so that a rule that reads what it has not asked for
    shows.
(D) Reading a variable gives a snapshot, which shares its memory. The snapshot's array has a `Lease`
    as its base, which NumPy hands on to all views of it; before the variable is written, those
    tensors over its memory that are still alive are given copies.
"""

import operator
import weakref

import numpy as np

cimport cython
cimport numpy as cnp
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF, Py_XINCREF
from libc.string cimport memset

cnp.import_array()

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #define TFOPT_OF_THREAD __declspec(thread)
    #else
    #define TFOPT_OF_THREAD __thread
    #endif
    static TFOPT_OF_THREAD PyObject *tfopt_recorders = NULL;
    static TFOPT_OF_THREAD PyObject *tfopt_watchers = NULL;
    static TFOPT_OF_THREAD PyObject *tfopt_overrides = NULL;
    """
    PyObject *tfopt_recorders
    PyObject *tfopt_watchers
    PyObject *tfopt_overrides

cdef extern from "numpy/arrayobject.h":
    object PyArray_NewFromDescr(PyTypeObject *subtype, cnp.dtype descr, int nd,
                                const cnp.npy_intp *dims, const cnp.npy_intp *strides, void *data,
                                int flags, PyObject *obj)
    ctypedef struct PyTypeObject:
        pass
    PyTypeObject PyArray_Type

cdef object _inexact = np.inexact
cdef object _number = (bool, int, float, complex, np.generic)

CUT = object()      # in the place of a rule: no gradient passes here, and that is right

#: What users have registered for operations without rules, and the names that have rules.
REGISTERED = {}
RULED = set()
#: The variables that were given a name.
NAMED = weakref.WeakSet()

#: Arrays of at most this many bytes are kept rather than their shapes: it is faster.
cdef Py_ssize_t _small = 16384
cdef enum:
    OUTPUT = 62     # the bit of a node's output in what its gradients read


def set_small(Py_ssize_t nbytes):
    """Set what arrays are small enough to be kept; return what it was. Tests keep none."""
    global _small
    before = _small
    _small = nbytes
    return before


# ---- this thread's state


cdef object _get(PyObject *state):
    return <object>state if state != NULL else None


cdef void _set(PyObject **state, object value):
    cdef PyObject *old = state[0]
    if value is None:
        state[0] = NULL
    else:
        state[0] = <PyObject *>value
        Py_XINCREF(state[0])
    Py_XDECREF(old)


cdef bint is_recording() noexcept:
    return tfopt_recorders != NULL


def recorders():
    """The recorders of this thread, the outermost first."""
    return _get(tfopt_recorders) or ()


def set_recorders(tuple value not None):
    """Let others record what this thread does."""
    _set(&tfopt_recorders, value or None)


def watchers():
    """The dicts that get the trainable variables this thread reads or assigns."""
    return _get(tfopt_watchers) or ()


def set_watchers(tuple value not None):
    """Let other dicts get them."""
    _set(&tfopt_watchers, value or None)


def overrides():
    """The gradients that take the place of operations' own, by the operations' names."""
    return _get(tfopt_overrides) or {}


def set_overrides(dict value not None):
    """Let others take their place."""
    _set(&tfopt_overrides, value or None)


# ---- tensors


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Key:
    """Who a tensor is: tensors of one array may be several."""


cdef inline Key key_of(Tensor tensor):
    if tensor.key is None:
        tensor.key = Key.__new__(Key)
    return tensor.key


cdef bint differentiable(object value):
    """Whether gradients exist for an array's dtype."""
    cdef int kind
    if cnp.PyArray_Check(value):
        kind = cnp.PyArray_TYPE(<cnp.ndarray>value)
        return (cnp.PyTypeNum_ISFLOAT(kind) or cnp.PyTypeNum_ISCOMPLEX(kind)
                or (cnp.PyTypeNum_ISUSERDEF(kind) and value.dtype.name == "bfloat16"))
    return isinstance(value, _inexact)


cdef Tensor wrap(object value):
    """A tensor of an array that nobody will change."""
    cdef Tensor tensor = Tensor.__new__(Tensor)
    cdef Lease lease = _lease_of(value)
    tensor.a = value
    if lease is not None:
        lease.add(tensor)
    return tensor


cdef Lease _lease_of(object value):
    """The lease of an array that lies in a variable's memory, or None."""
    cdef PyObject *base
    cdef object owner
    if not cnp.PyArray_Check(value):
        return None
    base = cnp.PyArray_BASE(<cnp.ndarray>value)
    if base == NULL:
        return None
    owner = <object>base
    if cnp.PyArray_Check(owner):
        base = cnp.PyArray_BASE(<cnp.ndarray>owner)
        if base == NULL:
            return None
        owner = <object>base
    return <Lease>owner if type(owner) is Lease else None


def wrapped(value):
    """A tensor of an array, or of a NumPy scalar, that nobody will change."""
    return wrap(value)


def renamed(Tensor tensor not None):
    """Another tensor of the same array."""
    return wrap(tensor.a)


def raw(value):
    """A tensor's or a variable's array; anything else as it is."""
    if type(value) is Tensor:
        return (<Tensor>value).a
    if isinstance(value, Readable):
        return read(<Readable>value).a
    return value


def peek(Operand operand not None):
    """The array, for its shape and dtype, or where the value is known to be meant."""
    return _peek(operand)


def stable(Tensor tensor not None):
    """A tensor's array; a copy of what lies in a variable's memory."""
    return tensor.a if _lease_of(tensor.a) is None else np.array(tensor.a)


def placeholder(Tensor tensor not None):
    """Another tensor of the same shape and dtype."""
    return wrap(stable(tensor))


def tensor_kinds(tuple values not None):
    """The shapes and dtypes of tensors and arrays; None if there is something else."""
    cdef list kinds = []
    for value in values:
        array = (<Tensor>value).a if type(value) is Tensor else value
        if not cnp.PyArray_Check(array) and type(value) is not Tensor:
            return None
        kinds.append(array.shape)
        kinds.append(array.dtype)
    return tuple(kinds)


def key(Tensor tensor not None):
    """What recorders know a tensor by."""
    return key_of(tensor)


def zeros(Tensor like not None):
    """A tensor of zeros of another's shape and dtype."""
    return wrap(np.zeros(like.a.shape, like.a.dtype))


def is_differentiable(value):
    """Whether gradients exist for the dtype of an array, a tensor or a variable."""
    if isinstance(value, Readable):
        return differentiable((<Readable>value)._array)
    return differentiable((<Tensor>value).a if type(value) is Tensor else value)


@cython.final
@cython.freelist(16)
cdef class Lease:
    """The base of a snapshot's array, and of views of it: which tensors lie in a variable's memory.
    """

    cdef int add(self, Tensor tensor) except -1:
        if len(self.views) >= self.limit:
            self.views = [ref for ref in self.views if ref() is not None]
            self.limit = 2 * len(self.views) + 16
        self.views.append(weakref.ref(tensor))
        return 0


cdef class Readable(Operand):
    """What of a variable the engine knows: its array, and the snapshot of it that readers share."""

    cdef Tensor current(self):
        if self.snapshot is None:
            self.snapshot = _snapshot(self._array)
        return self.snapshot

    def _before_write(self):
        """Give copies to the tensors that lie in the array; the next read is another tensor."""
        if self.snapshot is None:
            return
        cdef Tensor tensor
        cdef Lease lease = (<object>self.snapshot.a).base
        cdef list views = lease.views
        self.snapshot = None    # dies here unless somebody holds it
        for ref in views:
            tensor = ref()
            if tensor is not None:
                tensor.a = np.array(tensor.a)
        lease.views = []

    def _read(self):
        """The variable's value now, as a tensor, which recorders see."""
        return read(self)


cdef Tensor _snapshot(object array):
    if not isinstance(array, np.ndarray):
        raise TypeError("a variable on a GPU cannot be differentiated; copy its value() to the host")
    cdef cnp.ndarray owner = array
    cdef Lease lease = Lease.__new__(Lease)
    cdef cnp.dtype descr = array.dtype
    lease.array = array
    lease.views = []
    lease.limit = 16
    Py_INCREF(descr)    # the reference is the new array's
    view = PyArray_NewFromDescr(&PyArray_Type, descr, owner.ndim, owner.shape, owner.strides,
                                owner.data, 0, NULL)
    Py_INCREF(lease)
    cnp.PyArray_SetBaseObject(view, lease)
    cnp.PyArray_UpdateFlags(view, cnp.NPY_ARRAY_C_CONTIGUOUS | cnp.NPY_ARRAY_F_CONTIGUOUS
                            | cnp.NPY_ARRAY_ALIGNED)
    return wrap(view)


cdef Tensor read(Readable variable):
    cdef Tensor tensor
    cdef tuple active
    if tfopt_watchers != NULL and variable.trainable:
        for watcher in <tuple>tfopt_watchers:
            (<dict>watcher)[variable] = None
    if tfopt_recorders == NULL:
        return variable.current()
    active = <tuple>tfopt_recorders
    if type(active[0]) is Trace:
        tensor = (<Trace>active[0]).read(variable)
    else:
        tensor = variable.current()
    for recorder in active:
        if type(recorder) is Tape:
            (<Tape>recorder).saw(variable, tensor)
    return tensor


# ---- operations and nodes


@cython.final
cdef class Op:
    """An operation: a function of arrays, and a rule for each of its inputs.

    Parameters
    ----------
    name : str
        What :func:`tfopt.RegisterGradient` and its kin know it by.
    fn : callable
        Of the inputs' arrays and keywords.
    quick : callable, optional
        What gives the same without keywords, faster.
    many : bool, default False
        Whether it returns a tuple.
    """

    def __init__(self, str name, object fn, object quick=None, bint many=False):
        self.name = name
        self.many = many
        self.fn = fn
        self.quick = fn if quick is None else quick
        self.vjps = None

    def define(self, *rules):
        """Set the rules: of each input, ``vjp(g, y, *inputs, **keywords)`` and what it reads.

        It reads the values of the inputs whose letters, from "a" on, it is given with, and of the
        output if "y" is among them; of all others it knows shape and dtype alone. CUT in the place
        of a pair: there is no gradient, None: there is no rule.
        """
        RULED.add(self.name)
        self.vjps = tuple([rule[0] if isinstance(rule, tuple) else rule for rule in rules])
        self.saves = tuple([_mask(rule[1]) if isinstance(rule, tuple) else 0 for rule in rules])

    def define_jointly(self, joint, str reads=""):
        """Set one rule for all inputs, ``joint(g, y, ins, kw, need)``: a list of gradients."""
        RULED.add(self.name)
        self.joint = joint
        self.saves = (_mask(reads),)

    def __repr__(self):
        return f"<Op {self.name}>"


cdef long long _mask(str letters):
    cdef long long mask = 0
    for letter in letters:
        if letter == "*":
            mask |= (1LL << OUTPUT) - 1
        elif letter == "y":
            mask |= 1LL << OUTPUT
        else:
            mask |= 1LL << <int>(ord(letter) - 97)
    return mask


@cython.final
@cython.freelist(256)
cdef class Node:
    """Something that was done: by what, to which tensors (or other values), and what came of it.

    Parameters
    ----------
    op : Op, or an object with a method ``grad(node, upstreams, need)``
    ins, outs : tuple
    kw : dict or None
    """

    def __init__(self, op, tuple ins not None, tuple outs not None, dict kw=None):
        self.op, self.ins, self.outs, self.kw = op, ins, outs, kw


cdef object _ghost(object value):
    """The same with no more of the value than shape and dtype."""
    cdef cnp.ndarray array
    cdef Tensor tensor, other
    cdef object found = (<Tensor>value).a if type(value) is Tensor else value
    cdef object ghost
    if not cnp.PyArray_Check(found):
        return value
    array = found
    if cnp.PyArray_NBYTES(array) <= _small:
        return value
    ghost = _dummy(array)
    if type(value) is not Tensor:
        return ghost
    tensor = value
    other = Tensor.__new__(Tensor)
    other.key = key_of(tensor)
    other.a = ghost
    return other


cdef unsigned char[64] _nothing     # in every floating type a NaN
memset(_nothing, 0xff, sizeof(_nothing))


cdef object _dummy(cnp.ndarray array):
    cdef cnp.npy_intp[64] strides
    cdef cnp.dtype descr = (<object>array).dtype
    cdef int k
    for k in range(array.ndim):
        strides[k] = 0
    Py_INCREF(descr)
    return PyArray_NewFromDescr(&PyArray_Type, descr, array.ndim, array.shape, strides, _nothing,
                                cnp.NPY_ARRAY_ALIGNED, NULL)


cdef inline long long _bit(Py_ssize_t place) noexcept:
    """The bit of an input; those beyond the last bit share it."""
    return 1LL << (place if place < OUTPUT - 1 else OUTPUT - 1)


cpdef int record(object op, tuple ins, tuple outs, dict kw=None) except -1:
    """Offer what was done to all recorders of this thread.

    `ins` are tensors and constants; of an operation that is no Op everything is kept.
    """
    cdef tuple active
    cdef long long need = 0
    cdef Tensor x, y
    cdef Node node
    cdef Tape tape
    cdef list takers
    cdef Py_ssize_t k
    cdef bint traced
    if tfopt_recorders == NULL:
        return 0
    active = <tuple>tfopt_recorders
    takers = None
    traced = type(active[0]) is Trace
    for recorder in active:
        if type(recorder) is Tape:
            tape = recorder
            wanted = False
            for k in range(len(ins)):
                value = ins[k]
                if type(value) is Tensor and (<Tensor>value).key is not None:
                    if (<Tensor>value).key in tape.known:
                        need |= _bit(k)
                        wanted = True
            if wanted:
                if takers is None:
                    takers = [tape]
                else:
                    takers.append(tape)
    if takers is None and not traced:
        return 0
    if tfopt_overrides != NULL:
        op = _overridden(op)
    if traced or type(op) is not Op or ((<Op>op).vjps is None and (<Op>op).joint is None):
        node = Node.__new__(Node)
        node.op, node.ins, node.outs, node.kw = op, ins, outs, kw
    else:
        node = _spare_node(op, ins, outs, kw, need)
    if traced:
        (<Trace>active[0]).add(node)
    if takers is not None:
        for taker in takers:
            tape = taker
            tape.nodes.append(node)
            for value in outs:
                y = value
                if differentiable(y.a):
                    tape.known.add(key_of(y))
    return 1


cdef Node _spare_node(Op op, tuple ins, tuple outs, dict kw, long long need):
    """A node that keeps only what the gradients of the inputs in `need` read."""
    cdef Node node = Node.__new__(Node)
    cdef long long reads = 0, bit
    cdef Py_ssize_t k, n = len(ins)
    cdef object value
    if op.joint is not None:
        reads = op.saves[0]
    elif op.vjps is not None:
        for k in range(min(n, <Py_ssize_t>len(op.saves))):
            if need & _bit(k):
                reads |= <long long>op.saves[k]
    kept = None
    for k in range(n):
        value = ins[k]
        if reads & _bit(k):
            if type(value) is Tensor or not cnp.PyArray_Check(value):
                continue
            value = np.array(value)     # its owner may write into it
        else:
            value = _ghost(value)
        if value is not ins[k]:
            kept = list(ins) if kept is None else kept
            kept[k] = value
    node.op, node.kw = op, kw
    node.ins = ins if kept is None else tuple(kept)
    if reads & (1LL << OUTPUT):
        node.outs = outs
    else:
        node.outs = tuple([_ghost(y) for y in outs]) if len(outs) > 1 else (_ghost(outs[0]),)
    return node


cdef object _overridden(object op):
    """What a gradient override map makes of an operation."""
    chosen = (<dict>tfopt_overrides).get(op.name)
    return op if chosen is None else chosen(op)


# ---- recorders


@cython.final
cdef class Tape:
    """A recorder of what is done to tensors it knows."""

    def __init__(self, bint watch_accessed):
        self.watch_accessed = watch_accessed
        self.nodes = []
        self.known = set()
        self.variables = {}

    def watch(self, value):
        """Know a tensor, or a variable, from now on."""
        if type(value) is Tensor:
            if differentiable((<Tensor>value).a):
                self.known.add(key_of(<Tensor>value))
        else:
            self.variables.setdefault(value, [])
            self.saw(value, read(value))

    def knows(self, Tensor tensor not None):
        """Whether a tensor is watched, or was made from one that is."""
        return tensor.key is not None and tensor.key in self.known

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
        if differentiable(tensor.a):
            found = key_of(tensor)
            if found not in self.known:
                self.known.add(found)
                keys.append(found)
        return 0


@cython.final
cdef class Trace:
    """A recorder of everything, with values that stand for those of later calls.

    A variable's value is a tensor that belongs to the trace alone: an assignment makes another one
    and leaves the variable as it is.
    """

    def __init__(self):
        self.nodes = []
        self.symbolic = set()
        self.values = {}
        self.may_create = False
        self.created = False

    def place(self, Tensor tensor not None):
        """Let a tensor stand for a value that is not known yet."""
        key_of(tensor).symbolic = True
        self.symbolic.add(tensor.key)

    def is_symbolic(self, value):
        """Whether a value depends on what is not known yet."""
        return (type(value) is Tensor and (<Tensor>value).key is not None
                and (<Tensor>value).key in self.symbolic)

    def add(self, Node node not None):
        """Append a node."""
        cdef Tensor x
        self.nodes.append(node)
        for value in node.ins:
            if self.is_symbolic(value):
                break
        else:
            return
        for x in node.outs:
            self.place(x)

    cdef Tensor read(self, Readable variable):
        found = self.values.get(variable)
        if found is None:
            found = wrap(variable.current().a)
            self.place(found)
            self.values[variable] = found
            self.nodes.append(Node(READ, (), (found,), {"variable": variable}))
        return found

    def create(self):
        """Take note that a variable is made, which only the first trace may do."""
        if not self.may_create:
            raise ValueError(
                "tf.function only supports singleton tf.Variables created on the first call. Make "
                "sure the tf.Variable is only created once or created outside tf.function."
            )
        self.created = True


def tracing():
    """The trace that records this thread, or None."""
    if tfopt_recorders == NULL:
        return None
    first = (<tuple>tfopt_recorders)[0]
    return first if type(first) is Trace else None


READ = Op("ReadVariable", None)


def used(Readable variable not None):
    """Tell recorders and watchers of a variable that is about to be assigned."""
    if (tfopt_recorders != NULL or tfopt_watchers != NULL) and tracing() is None:
        read(variable)


# ---- carrying operations out


cdef int _refuse_leaked(Tensor tensor) except -1:
    """Refuse a tensor of a trace that is over."""
    if tensor.key is not None and tensor.key.symbolic and tracing() is None:
        raise TypeError(
            f"a symbolic Tensor of shape {tensor.a.shape} is out of scope and cannot be used here. "
            "Use return values, explicit Python locals or variables to access it."
        )
    return 0


cdef object _operand(object value):
    """What an operator can be applied to, or NotImplemented."""
    if type(value) is Tensor:
        _refuse_leaked(<Tensor>value)
        return value
    if type(value) is float or type(value) is int:
        return value
    if isinstance(value, Readable):
        return read(<Readable>value)
    if cnp.PyArray_Check(value) or isinstance(value, _number):
        return value
    return convert(value)


#: Makes an operand of a list or of slices; set by the module of the functions.
convert = None


def set_convert(function):
    """Set what makes operands of other values than tensors, arrays and numbers."""
    global convert
    convert = function


cdef object _binary(Op op, object x, object y):
    cdef Tensor result
    x = _operand(x)
    y = _operand(y)
    if x is NotImplemented or y is NotImplemented:
        return NotImplemented
    result = wrap(op.quick((<Tensor>x).a if type(x) is Tensor else x,
                           (<Tensor>y).a if type(y) is Tensor else y))
    if tfopt_recorders != NULL:
        record(op, (x, y), (result,))
    return result


cdef object _unary(Op op, object x):
    cdef Tensor result
    if type(x) is not Tensor:
        x = read(<Readable>x)
    else:
        _refuse_leaked(<Tensor>x)
    result = wrap(op.quick((<Tensor>x).a))
    if tfopt_recorders != NULL:
        record(op, (x,), (result,))
    return result


cpdef object apply(Op op, tuple ins, dict kw=None):
    """Carry an operation out, and record it.

    `ins` are tensors, variables, arrays and constants.
    """
    cdef Py_ssize_t k
    cdef list arrays = []
    cdef tuple outs
    cdef object value, made
    for value in ins:
        if type(value) is Tensor:
            _refuse_leaked(<Tensor>value)
            arrays.append((<Tensor>value).a)
        elif isinstance(value, Readable):
            ins = tuple([read(<Readable>x) if isinstance(x, Readable) else x for x in ins])
            arrays = [(<Tensor>x).a if type(x) is Tensor else x for x in ins]
            break
        else:
            arrays.append(value)
    if kw:
        made = op.fn(*arrays, **kw)
    elif len(arrays) == 1:
        made = op.quick(arrays[0])
    elif len(arrays) == 2:
        made = op.quick(arrays[0], arrays[1])
    else:
        made = op.fn(*arrays)
    if type(made) is tuple:
        outs = tuple([wrap(x) for x in made])
    else:
        outs = (wrap(made),)
    if tfopt_recorders != NULL:
        record(op, ins, outs, kw)
    return outs if type(made) is tuple else outs[0]


# ---- operators

ADD = Op("add", np.add, operator.add)
SUBTRACT = Op("subtract", np.subtract, operator.sub)
MULTIPLY = Op("multiply", np.multiply, operator.mul)
DIVIDE = Op("divide", np.divide, operator.truediv)
FLOOR_DIVIDE = Op("floor_divide", np.floor_divide, operator.floordiv)
REMAINDER = Op("remainder", np.remainder, operator.mod)
POWER = Op("power", np.power, operator.pow)
MATMUL = Op("matmul", np.matmul, operator.matmul)
NEGATIVE = Op("negative", np.negative, operator.neg)
POSITIVE = Op("positive", np.positive, operator.pos)
ABSOLUTE = Op("absolute", np.absolute, operator.abs)
INVERT = Op("invert", np.invert, operator.invert)
AND = Op("bitwise_and", np.bitwise_and, operator.and_)
OR = Op("bitwise_or", np.bitwise_or, operator.or_)
XOR = Op("bitwise_xor", np.bitwise_xor, operator.xor)
EQUAL = Op("equal", np.equal, operator.eq)
NOT_EQUAL = Op("not_equal", np.not_equal, operator.ne)
LESS = Op("less", np.less, operator.lt)
LESS_EQUAL = Op("less_equal", np.less_equal, operator.le)
GREATER = Op("greater", np.greater, operator.gt)
GREATER_EQUAL = Op("greater_equal", np.greater_equal, operator.ge)

cdef Op _ADD = ADD, _SUBTRACT = SUBTRACT, _MULTIPLY = MULTIPLY, _DIVIDE = DIVIDE
cdef Op _FLOOR_DIVIDE = FLOOR_DIVIDE, _REMAINDER = REMAINDER, _POWER = POWER, _MATMUL = MATMUL
cdef Op _NEGATIVE = NEGATIVE, _POSITIVE = POSITIVE, _ABSOLUTE = ABSOLUTE, _INVERT = INVERT
cdef Op _AND = AND, _OR = OR, _XOR = XOR, _EQUAL = EQUAL, _NOT_EQUAL = NOT_EQUAL
cdef Op _LESS = LESS, _LESS_EQUAL = LESS_EQUAL, _GREATER = GREATER, _GREATER_EQUAL = GREATER_EQUAL

#: The operators' operations, by their ufuncs' names.
OPERATORS = {op.name: op for op in (
    ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, REMAINDER, POWER, MATMUL, NEGATIVE, POSITIVE,
    ABSOLUTE, INVERT, AND, OR, XOR, EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL,
)}

cdef dict _ufuncs = {}
cdef dict _functions = {}
cdef dict _methods = {}
cdef object _other_ufunc = None
cdef object _other_function = None


def install(dict ufuncs not None, dict functions not None, dict methods not None, other_ufunc,
            other_function):
    """Set what NumPy's functions do to tensors.

    `ufuncs` are operations; `functions` and `methods` take NumPy's arguments. The others are for
    what there is no rule for.
    """
    global _ufuncs, _functions, _methods, _other_ufunc, _other_function
    _ufuncs, _functions, _methods = ufuncs, functions, methods
    _other_ufunc, _other_function = other_ufunc, other_function


cdef object _peek(Operand operand):
    """The array, for what is not its value."""
    return (<Tensor>operand).a if type(operand) is Tensor else (<Readable>operand)._array


cdef class Operand:
    """What tensors and variables have in common: NumPy's operators, methods and functions."""

    def __array_ufunc__(self, ufunc, str method, *inputs, **kwargs):
        if method == "__call__" and not kwargs:
            op = _ufuncs.get(ufunc)
            if op is not None:
                if len(inputs) == 2:
                    return _binary(<Op>op, inputs[0], inputs[1])
                return _unary(<Op>op, inputs[0])
        return _other_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function, types, args, kwargs):
        handler = _functions.get(function)
        if handler is not None:
            return handler(*args, **kwargs)
        return _other_function(function, args, kwargs)

    def __getattr__(self, str name):
        method = _methods.get(name)
        if method is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return method.__get__(self)

    @property
    def shape(self):
        """The array's shape."""
        return _peek(self).shape

    @property
    def dtype(self):
        """The array's dtype."""
        return _peek(self).dtype

    @property
    def ndim(self):
        """The number of axes."""
        return _peek(self).ndim

    @property
    def size(self):
        """The number of elements."""
        return _peek(self).size

    @property
    def nbytes(self):
        """The bytes that the elements take."""
        return _peek(self).nbytes

    @property
    def T(self):
        """The value with its axes in reverse order."""
        return _methods["transpose"](self)

    @property
    def mT(self):
        """The value with its last two axes swapped."""
        return _methods["swapaxes"](self, -1, -2)

    @property
    def real(self):
        """The real part."""
        return _methods["real"](self)

    @property
    def imag(self):
        """The imaginary part."""
        return _methods["imag"](self)

    def __dir__(self):
        return [*object.__dir__(self), *_methods]

    def __getitem__(self, index):
        return _methods["__getitem__"](self, index)

    def __iter__(self):
        return iter([self[k] for k in range(len(self))])

    def __hash__(self):
        return <Py_hash_t>(<size_t><void *>self >> 4)

    def __add__(self, other):
        return _binary(_ADD, self, other)

    def __radd__(self, other):
        return _binary(_ADD, other, self)

    def __sub__(self, other):
        return _binary(_SUBTRACT, self, other)

    def __rsub__(self, other):
        return _binary(_SUBTRACT, other, self)

    def __mul__(self, other):
        return _binary(_MULTIPLY, self, other)

    def __rmul__(self, other):
        return _binary(_MULTIPLY, other, self)

    def __truediv__(self, other):
        return _binary(_DIVIDE, self, other)

    def __rtruediv__(self, other):
        return _binary(_DIVIDE, other, self)

    def __floordiv__(self, other):
        return _binary(_FLOOR_DIVIDE, self, other)

    def __rfloordiv__(self, other):
        return _binary(_FLOOR_DIVIDE, other, self)

    def __mod__(self, other):
        return _binary(_REMAINDER, self, other)

    def __rmod__(self, other):
        return _binary(_REMAINDER, other, self)

    def __pow__(self, other, modulus):
        return NotImplemented if modulus is not None else _binary(_POWER, self, other)

    def __rpow__(self, other, modulus):
        return NotImplemented if modulus is not None else _binary(_POWER, other, self)

    def __matmul__(self, other):
        return _binary(_MATMUL, self, other)

    def __rmatmul__(self, other):
        return _binary(_MATMUL, other, self)

    def __and__(self, other):
        return _binary(_AND, self, other)

    def __rand__(self, other):
        return _binary(_AND, other, self)

    def __or__(self, other):
        return _binary(_OR, self, other)

    def __ror__(self, other):
        return _binary(_OR, other, self)

    def __xor__(self, other):
        return _binary(_XOR, self, other)

    def __rxor__(self, other):
        return _binary(_XOR, other, self)

    def __neg__(self):
        return _unary(_NEGATIVE, self)

    def __pos__(self):
        return _unary(_POSITIVE, self)

    def __abs__(self):
        return _unary(_ABSOLUTE, self)

    def __invert__(self):
        return _unary(_INVERT, self)

    def __eq__(self, other):
        return _binary(_EQUAL, self, other)

    def __ne__(self, other):
        return _binary(_NOT_EQUAL, self, other)

    def __lt__(self, other):
        return _binary(_LESS, self, other)

    def __le__(self, other):
        return _binary(_LESS_EQUAL, self, other)

    def __gt__(self, other):
        return _binary(_GREATER, self, other)

    def __ge__(self, other):
        return _binary(_GREATER_EQUAL, self, other)


@cython.final
@cython.no_gc
cdef class Tensor(Operand):
    """An array that does not change, and that operations on it are recorded for.

    NumPy's functions, operators and methods take tensors and return tensors.

    Parameters
    ----------
    value : array_like
        Copied.
    dtype : dtype, optional

    See Also
    --------
    tfopt.constant : makes tensors, too.

    Examples
    --------
    >>> import numpy as np
    >>> import tfopt
    >>> x = tfopt.Tensor([1.0, 4.0])
    >>> np.sqrt(x) + 1
    <Tensor shape=(2,) dtype=float64 [2. 3.]>
    """

    def __init__(self, value, dtype=None):
        self.a = np.array(value, dtype)

    def numpy(self):
        """Return the array, which cannot be written to.

        Raises
        ------
        AttributeError
            While a function is traced, if the value is not known yet.
        """
        _refuse_symbolic(self, AttributeError, "a symbolic Tensor has no numpy()")
        if _lease_of(self.a) is not None:
            return np.array(self.a)
        array = np.asarray(self.a)
        array = array.view()
        array.flags.writeable = False
        return array

    def numpy_like(self):
        """The shape and the dtype."""
        return self.a.shape, self.a.dtype

    def item(self, *index):
        """Return one element as a Python number."""
        return self._value().item(*index)

    def tolist(self):
        """Return the elements as nested lists of Python numbers."""
        return self._value().tolist()

    def _value(self):
        _refuse_symbolic(self, TypeError, "Using a symbolic Tensor as a Python value is not allowed")
        return self.a

    def __array__(self, dtype=None, copy=None):
        _refuse_symbolic(self, NotImplementedError,
                         "Cannot convert a symbolic Tensor to a NumPy array")
        return np.array(self.numpy(), dtype, copy=copy)

    def __len__(self):
        if self.a.ndim == 0:
            raise TypeError("Scalar tensor has no `len()`")
        return self.a.shape[0]

    def __iter__(self):
        if self.a.ndim == 0:
            raise TypeError("Cannot iterate over a scalar tensor.")
        return iter([self[k] for k in range(self.a.shape[0])])

    def __bool__(self):
        _refuse_symbolic(self, TypeError,
                         "Using a symbolic Tensor as a Python `bool` is not allowed")
        return bool(self.a)

    def __float__(self):
        return float(self._value())

    def __int__(self):
        return int(self._value())

    def __complex__(self):
        return complex(self._value())

    def __index__(self):
        return operator.index(self._value())

    def __format__(self, str spec):
        return format(self._value().item() if self.a.ndim == 0 else str(self), spec)

    def __reduce__(self):
        return Tensor, (self.numpy(),)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __repr__(self):
        trace = tracing()
        shown = "symbolic" if trace is not None and trace.is_symbolic(self) else str(self.a)
        return f"<Tensor shape={self.a.shape} dtype={self.a.dtype} {shown}>"


cdef int _refuse_symbolic(Tensor tensor, error, str message) except -1:
    if tensor.key is not None and tensor.key.symbolic:
        _refuse_leaked(tensor)
        if tracing().is_symbolic(tensor):
            raise error(f"{message}: the function is being traced")
    return 0

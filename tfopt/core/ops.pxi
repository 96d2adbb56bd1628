# Operations: their functions, their rules, and their properties that programs rely on.

@cython.final
cdef class Op:
    """An operation: a function of arrays, a rule for each of its inputs, and facts about it.

    Inputs go by letters: "a" is the first one.

    Parameters
    ----------
    name : str
        What :func:`tfopt.RegisterGradient` and its kin know it by.
    fn : callable
        Of the inputs' arrays and keywords.
    quick : callable, optional
        Gives the same without keywords, faster.
    many : bool, default False
        Whether it returns a tuple, of arrays that may share memory with the inputs.
    sized : bool, default True
        Whether the shapes and dtypes of the inputs, and the keywords, decide those of the result.
    views : bool, default False
        Whether the result may share memory with the first input. It never does with another one.
    identity : bool, default False
        Whether the result is the first input itself.
    broadcasts : bool, default False
        Whether the result is the first input, broadcast.
    ones : str, default ""
        Which of two inputs act as identity elements where they equal 1.
    infix : str, optional
        Python's operator, which computes the same for scalars.
    infix_only : bool, default False
        Whether `fn` gives other bits than the operator, which then is what has to be used.
    out_by_name : bool, default False
        Whether the ufunc takes `out` by name alone.
    expression : callable, optional
        Writes a shorter expression than a call of `fn`: see `tfopt.autodiff.expressions`.
    label : str, optional
        What users call it, if not by `name`.

    Attributes
    ----------
    elementwise : bool
        Whether it is a ufunc of single elements.

    Notes
    -----
    A trace asserts `views` and `identity` of each operation that it records, and that results
    share no memory with inputs otherwise: a program writes over arrays that nobody else reads.
    """

    def __init__(self, str name, object fn, object quick=None, *, bint many=False,
                 bint sized=True, bint views=False, bint identity=False, bint broadcasts=False,
                 str ones="", str infix=None, bint infix_only=False, bint out_by_name=False,
                 object expression=None, str label=None):
        self.name = name
        self.many = many
        self.fn = fn
        self.quick = fn if quick is None else quick
        self.vjps = None
        self.sized, self.views, self.identity = sized, views, identity
        self.broadcasts = broadcasts
        self.ones, self.infix, self.infix_only = ones, infix, infix_only
        self.out_by_name, self.expression = out_by_name, expression
        self.elementwise = isinstance(fn, np.ufunc) and fn.signature is None
        self.label = name if label is None else label

    def define(self, *rules):
        """Set the rules: of each input, ``vjp(g, y, *inputs, **keywords)`` and what it reads.

        It reads the values of the inputs whose letters it is given with, and of the output if "y"
        is among them; of all others it knows shape and dtype alone. What it returns may have the
        shape that inputs were broadcast to, and another dtype: the engine sums and casts it. CUT in
        the place of a pair: there is no gradient.
        """
        RULED.add(self.name)
        cdef list vjps = [], saves = []
        for rule in rules:
            vjps.append(rule[0] if isinstance(rule, tuple) else rule)
            saves.append(_mask(rule[1]) if isinstance(rule, tuple) else 0)
        self.vjps, self.saves = tuple(vjps), tuple(saves)
        self.cut = vjps.count(CUT) == len(vjps)

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
        elif letter == "+":     # all but the first input
            mask |= (1LL << OUTPUT) - 2
        elif letter == "y":
            mask |= 1LL << OUTPUT
        else:
            mask |= 1LL << <int>(ord(letter) - 97)
    return mask


cdef int _assert_facts(Op op, tuple ins, tuple outs) except -1:
    """Assert what an operation is defined to be, of arrays that it was carried out on."""
    cdef Py_ssize_t k
    cdef object result, array
    if op.many or op.fn is None:
        return 0
    result = array_of(<Tensor>outs[0])
    if op.identity:
        if result is not raw(ins[0]):
            raise InternalError(
                f"{op.label} is defined with identity=True, but returned another object than its "
                "first input"
            )
        return 0
    if not cnp.PyArray_Check(result):
        return 0
    for k in range(len(ins)):
        array = raw(ins[k])
        if cnp.PyArray_Check(array) and not (k == 0 and op.views) \
                and _may_share_memory(result, array):
            raise InternalError(
                f"the result of {op.label} shares memory with its input {k}, which its definition "
                "does not say" + (": views=True is missing" if k == 0 else "")
            )
    return 0

"""The rows of the table for compiled code, and their steps for the instruction set in use."""

cimport cython

from cpython.pycapsule cimport PyCapsule_GetPointer

from tfopt.errors import InvalidArgumentError
from tfopt.rules import LIMITS, RULES, checks_of

from tfopt.kernels.platform.step_types cimport MAX_SCALARS, MAX_SUMS, N_SCALES

cdef const steps *_table = NULL     # the steps of the instruction set
cdef const steps *_called = NULL    # the steps of calls: the same, or another backend's


cdef dict _places = {}      # by rule: the row, and the position of its first variant's steps


cdef int _set_places() except -1:
    cdef int first = 0
    for rule in RULES:
        _places[rule.name] = rule, first
        first += len(rule.variants)
    return 0

_set_places()


def use_steps(capsule):
    """Use the step table of an instruction set."""
    global _table, _called
    _table = _called = <const steps *>PyCapsule_GetPointer(capsule, b"tfopt.steps")


def call_steps(capsule):
    """Make calls use the steps of another table, whose only scalars are the hyperparameters."""
    global _called
    _called = <const steps *>PyCapsule_GetPointer(capsule, b"tfopt.steps")


@cython.final
cdef class Kernel:
    """A row of the table, as seen by compiled code."""

    def __cinit__(self, rule, int first):
        if _places.get(rule.name) != (rule, first):
            raise InvalidArgumentError(f"the table has no row {rule.name} with steps from {first}")
        if len(rule.operands) > MAX_OPERANDS or len(rule.hypers) > MAX_HYPERS \
                or len(rule.scalars) + len(rule.further) > MAX_SCALARS \
                or len(rule.sums) > MAX_SUMS:
            raise AssertionError(f"{rule.name} outgrew kernels/platform/step_types.pxd")
        self.rule = rule
        self.name = rule.name
        self.operands = rule.operands
        self.hypers = rule.hypers
        self.n_operands = len(rule.operands)
        self.n_whole = self.n_operands - 1 - len(rule.row_slots)
        self.by_rows = rule.reduction == "row"
        self.by_tensors = rule.reduction == "tensor"
        self.n_sums, self.n_given = len(rule.sums), N_SCALES + len(rule.scalars)
        self.n_hypers = len(rule.hypers)
        self.first = first
        self.n_flags = 1 << len(rule.flags)
        checks = checks_of(rule)
        for k, hyper in enumerate(rule.hypers):
            limit = checks.limits.get(hyper)
            self.limits[k] = 0 if limit is None else 1 + LIMITS.index(limit)
        self.limits_dense = checks.limited != "rows"
        self.n_checks = len(checks.order(rule, True))
        self.n_row_checks = len(checks.order(rule, False))
        for k, check in enumerate(checks.order(rule, True)):
            self.checks[k] = self._code(check)
        for k, check in enumerate(checks.order(rule, False)):
            self.row_checks[k] = self._code(check)
        self.takes_complex = rule.complex

    cdef int _code(self, str check) except -1:
        """The number of a check: of a hyperparameter, of an array, or one of the enum."""
        if check in self.hypers:
            return self.hypers.index(check)
        if check in self.operands:
            return MAX_HYPERS + self.operands.index(check)
        return RANK + ("rank", "indices", "columns", "rows", "inner").index(check)

    def __reduce__(self):
        return Kernel, (self.rule, self.first)

    def __repr__(self):
        return f"<kernel {self.name}>"


cdef const steps *steps_of(Kernel kernel, int flags, int type_) noexcept:
    """The steps of a rule for float32, float64, complex64 or complex128."""
    return &_table[4 * (kernel.first + flags) + type_]


cdef const steps *called_steps(Kernel kernel, int flags, int type_) noexcept:
    """The same for calls."""
    return &_called[4 * (kernel.first + flags) + type_]

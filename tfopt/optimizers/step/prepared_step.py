"""A checked step, which is atomic.

A step collects its updates and other writes in one list, which a single compiled call carries out:
nothing in it can fail, and no signal interrupts it. Code that must run in Python (a constraint, an
overridden method) runs before it; everything it changes is copied first and restored if it raises
or is interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import signature
from typing import Any

import numpy as np

from tfopt.core.engine import prepare_writes
from tfopt.errors import InvalidArgumentError
from tfopt.kernels import kernels
from tfopt.kernels.update.clip import scale_call
from tfopt.kernels.update.commit import Assign, Count, Prepared, Undo, carry_out
from tfopt.optimizers.state.transaction import Work, Writes, transact
from tfopt.optimizers.state.variables import as_variable
from tfopt.updates.device_copy import DeviceCopy
from tfopt.updates.device_rule import DeviceRule
from tfopt.updates.rule_steps import RuleUpdate

__all__ = ["PreparedStep"]


def _arguments(writes: Writes, variables: Iterable[Any] = (), counts: bool = True) -> None:
    """Create it with the arguments of `PreparedStep`."""


class PreparedStep(Prepared):
    """A step that has been checked but has not changed anything yet.

    A wrapper appends its own operations to the inner optimizer's step with `update`, `assign` and
    `count`. They are checked at once, and carried out together with the step or not at all.

    Parameters
    ----------
    writes : list of Call or Write
        Carried out last, by one call.
    variables : iterable of Variable or array
        The variables that are written to.
    counts : bool
        Whether optimizers count it as a step; false if gradients are only accumulated or the step
        is skipped.

    Attributes
    ----------
    work : list of callable
        Python functions that run before the writes, and may append to them.
    kept : list of ndarray
        Arrays that the work writes to; they are copied, and restored if anything raises.
    owners : list of object
        Objects whose attributes the work sets; restored likewise.
    after : list of callable
        Called after the step has been taken.
    clipped : bool
        Whether a norm of the gradients exceeds its limit.
    launches : bool
        Whether the work writes to GPU memory, which is not restored; Ctrl-C then waits for its end.
    """

    __signature__ = signature(_arguments)  # which the compiled base does not know
    launches, clipped = False, False
    # few steps need these lists, which are made when they are asked for
    work: list[Work]
    kept: list[np.ndarray]
    owners: list[Any]
    after: list[Callable[[], None]]

    def __getattr__(self, name: str) -> list[Any]:
        if name not in PreparedStep.__annotations__:
            raise AttributeError(f"a step has no attribute {name!r}")
        made: list[Any] = []
        setattr(self, name, made)
        return made

    # ---- operations that wrappers append

    def update(self, rule: str, variables: Any, *others: Any, **hypers: float) -> None:
        """Append an update of variables or slots by a rule of the table.

        Parameters
        ----------
        rule : str
            As in ``training_ops.apply_<rule>``.
        variables : Variable, ndarray or list of them
        *others
            The rule's slots and its gradient, in its order; each in the form of `variables`.
        **hypers : float
            The hyperparameters of the rule, by name.

        Raises
        ------
        InvalidArgumentError
            If an argument is invalid.
        """
        if rule not in kernels:
            raise InvalidArgumentError(f"unknown rule {rule!r}: see tfopt.rules.RULES")
        row = kernels[rule].rule
        if set(hypers) != {*row.hypers, *row.flags}:
            raise InvalidArgumentError(
                f"{rule} takes {', '.join((*row.hypers, *row.flags))}, not {', '.join(hypers)}"
            )
        flags = {flag: bool(hypers[flag]) for flag in row.flags}
        first, update = as_variable(_listed(variables)[0]), RuleUpdate(rule, hypers, flags)
        if first.device == "gpu":
            *there, read = [_arrays(column) for column in (variables, *others)]
            step = DeviceRule(tuple(there))
            self.writes.append(step.write(update, 1.0, read, first.name))
        else:
            *operands, grads = [_hosted(column) for column in (variables, *others)]
            self.writes.append(update.step().dense(tuple(operands), grads))
        for column in (variables, *others[:-1]):
            self.variables += _listed(column)

    def assign(self, variable: Any, value: Any) -> None:
        """Append an assignment to a variable or a slot.

        Parameters
        ----------
        variable : Variable or ndarray
        value : Variable, ndarray or number
            Of the same shape and dtype, or of float32 for a variable of 16 bits. It is read after
            the preceding writes. For a variable on a GPU it must be there, too.
        """
        if (there := as_variable(variable)).device == "gpu":
            copy = DeviceCopy([there.value()], there.name)
            self.writes.append(copy.launch(_arrays(value)))
            self.variables.append(variable)
            return
        [into] = _hosted(variable)
        array = np.asarray(value, into.dtype) if np.isscalar(value) else _hosted(value)[0]
        narrows = array.dtype == np.float32 and into.dtype.itemsize == 2
        self.writes.append(
            scale_call([into], [array], 1.0, 1.0, True) if narrows else Assign(into, array)
        )
        self.variables.append(variable)

    def count(self, number: Any) -> None:
        """Append an increment of an integer weight by one."""
        [array] = _hosted(number)
        self.writes.append(Count(array))
        self.variables.append(number)

    def join(self, other: PreparedStep) -> None:
        """Append the work and writes of another step to those of this one."""
        self.writes += other.writes
        self.variables += other.variables
        self.launches |= other.launches
        self.clipped |= other.clipped
        for name in PreparedStep.__annotations__.keys() & other.__dict__:
            getattr(self, name).extend(getattr(other, name))

    # ---- carrying out

    def carry_out(self, moved: Undo | None = None) -> None:
        """Take the step, or raise and change nothing.

        Once it is taken, `moved` no longer restores the changes made before it.
        """
        prepare_writes(self.variables)
        asked = self.__dict__
        if "work" in asked:
            transact(self.work, self.writes, self.kept, self.owners, self.launches, moved)
        else:
            carry_out(self.writes, moved)
        if "after" in asked:
            for look in self.after:
                look()


def _listed(variables: Any) -> list[Any]:
    return list(variables) if isinstance(variables, (list, tuple)) else [variables]


def _arrays(operands: Any) -> list[Any]:
    """Return the arrays of variables."""
    return [as_variable(each).value() for each in _listed(operands)]


def _hosted(operands: Any) -> list[np.ndarray]:
    """Return the arrays of variables in host memory."""
    return [as_variable(each).numpy() for each in _listed(operands)]

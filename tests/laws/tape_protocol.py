"""A tape follows its few rules in any order of calls.

The specification is a model in plain Python: what is recorded, since when, and which calls are
refused. Each call has the model's outcome: a number, None, or the class of an exception.
"""

from __future__ import annotations

from laws.law import Draw, Law

PROGRAM = """
import warnings
import numpy as np
import tfopt
from tfopt.core import engine

warnings.simplefilter("ignore")
recorders = engine.recorders
engine.set_recorders(())


class Model:
    \"\"\"Numbers and what they were made of, as far as the tape has seen it.\"\"\"

    def __init__(self, persistent):
        self.persistent = persistent
        self.entered = self.recording = self.used = False
        self.seen = None        # the slopes of what is recorded, by name
        self.stops = []

    def enter(self):
        if self.recording:
            raise ValueError
        self.entered = True
        self.start()

    def start(self):
        self.seen = {{}} if self.seen is None else self.seen
        self.recording = True

    def leave(self):
        self.entered = self.recording = False

    def watch(self):
        if self.seen is None:
            raise RuntimeError
        if self.recording:
            self.seen["x"] = 1.0

    def compute(self, name, factor):
        if self.recording and "x" in self.seen:
            self.seen[name] = factor
        elif self.seen is not None:
            self.seen.pop(name, None)

    def stop(self):
        if self.seen is None:
            raise RuntimeError
        if not self.recording:
            raise ValueError
        self.recording = False
        self.stops.append(True)

    def resume(self):
        if self.stops:
            self.stops.pop()
            if self.entered:
                self.start()

    def reset(self):
        if not self.recording:
            raise ValueError
        self.seen = {{}}

    def slope(self, name):
        if self.seen is None:
            raise RuntimeError
        if name is None:
            raise TypeError
        found = self.seen.get(name, {unconnected})
        if not self.persistent:
            self.seen, self.used, self.recording = None, True, False
        return found


class Real:
    \"\"\"The same with a tape.\"\"\"

    def __init__(self, persistent):
        self.tape = tfopt.GradientTape(persistent=persistent)
        self.x = tfopt.constant(np.full((2, 1), 3.0))
        self.made = {{"x": self.x, None: None}}
        self.stops = []

    def enter(self):
        self.tape.__enter__()

    def leave(self):
        self.tape.__exit__(None, None, None)

    def watch(self):
        self.tape.watch(self.x)

    def compute(self, name, factor):
        self.made[name] = self.x * factor

    def stop(self):
        manager = self.tape.stop_recording()
        manager.__enter__()
        self.stops.append(manager)

    def resume(self):
        if self.stops:
            self.stops.pop().__exit__(None, None, None)

    def reset(self):
        self.tape.reset()

    def slope(self, name):
        g = {gradient}
        return None if g is None else float(np.max(g))


def outcome(f, *args):
    try:
        return f(*args)
    except Exception as error:
        return type(error)


model, real = Model({persistent}), Real({persistent})
{before}
for number, (method, *args) in enumerate({events}):
    if method == "slope" and args[0] not in real.made:
        continue
    wanted = outcome(getattr(model, method), *args)
    found = outcome(getattr(real, method), *args)
    assert found == wanted, f"{{number}}: {{method}}{{args}} gave {{found}}, not {{wanted}}"
    assert len(recorders()) == model.recording and None not in recorders(), number
model.leave()
real.leave()
while real.stops:
    real.resume()
assert recorders() == ()
"""
EVENTS = {
    "enter": ("enter",), "leave": ("leave",), "watch": ("watch",), "stop": ("stop",),
    "resume": ("resume",), "reset": ("reset",), "y": ("compute", "y", 2.0),
    "z": ("compute", "z", 5.0), "slope of y": ("slope", "y"), "slope of z": ("slope", "z"),
    "slope of None": ("slope", None),
}  # fmt: skip
GRADIENTS = {
    "gradient": "self.tape.gradient(self.made[name], self.x)",
    "jacobian": "self.tape.jacobian(self.made[name], self.x)",
    "batch_jacobian": "self.tape.batch_jacobian(self.made[name], self.x)",
}
BEFORE = {
    "nothing": "",
    "entered": "for each in (model, real): each.enter(), each.watch()",
    "stopped": "for each in (model, real): each.enter(), each.watch(), each.stop()",
}


def program(draw: Draw) -> str:
    levels = draw.levels
    return PROGRAM.format(
        persistent=levels["persistent"] == "yes",
        unconnected=0.0 if levels["asked by"] == "batch_jacobian" else None,
        gradient=GRADIENTS[levels["asked by"]],
        before=BEFORE[levels["before"]],
        events=[EVENTS[event] for event in draw.events],
    )


LAW = Law(
    "tape_protocol",
    {"persistent": ("no", "yes"), "asked by": tuple(GRADIENTS), "before": tuple(BEFORE)},
    program,
    events=tuple(EVENTS),
    length=14,
    alone=True,
    further=200,
)

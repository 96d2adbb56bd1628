"""No lock outlives its holder: neither an interrupt nor a fork leaves one that nobody will release.

In processes of their own, since a test that fails would hang.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tfopt.kernels.platform.locking import Held

LIMIT = 120  # seconds, after which a process is taken to hang
SETUP = """
import os, signal, sys, threading, time, warnings
import numpy as np
import tfopt
from tfopt.core.locks import locked

warnings.simplefilter("ignore")  # newer Pythons warn of any fork beside threads
a, b = (tfopt.Variable(np.zeros(9)) for _ in range(2))

def update():
    tfopt.raw_ops.ResourceApplyMomentum(
        var=a, accum=b, lr=0.1, grad=np.ones(9), momentum=0.9, use_locking=True
    )

traced = tfopt.function(update)
traced()

def steps(optimizer=tfopt.optimizers.Adam(0.1, use_locking=True)):
    optimizer.apply_gradients([(np.ones(9), a)])

def free(lock):
    found = []
    thread = threading.Thread(target=lambda: found.append(lock.acquire(timeout=5)))
    thread.start()
    thread.join()
    return found[0]
"""


def run(script: str) -> str:
    """Run a script in a process that may take `LIMIT` seconds; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", SETUP + textwrap.dedent(script)],
        check=False, capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


INTERRUPTED = """
taken = 0
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
random = np.random.default_rng(0)
for _ in range(150):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 1e-3))
        while True:
            WORK()
    except KeyboardInterrupt:
        taken += 1
print(taken, free(a.lock), free(b.lock))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no such signals")
@pytest.mark.parametrize("work", ["update", "traced", "steps"])
def test_interrupts_leave_no_lock_held(work: str) -> None:
    assert run(INTERRUPTED.replace("WORK", work)) == "150 True True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.parametrize("held", ["a.lock", "b.lock", "locked(a)", "locked(b.numpy())"])
def test_a_forked_child_does_not_wait_for_its_parents_threads(held: str) -> None:
    got = run(f"""
    taken = threading.Event()
    def hold():
        with {held}:
            taken.set()
            time.sleep(1000)
    threading.Thread(target=hold, daemon=True).start()
    taken.wait()
    child = os.fork()
    if not child:
        signal.alarm(10)
        update()
        traced()
        with a.lock, locked(a, b, a.numpy()):
            grandchild = os.fork()
            if not grandchild:
                signal.alarm(10)
                update()
                print(a.numpy()[0] != 0, flush=True)
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]) == 0
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)
    """)
    assert got == "True\n0"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_does_not_wait_for_a_trace_of_its_parent() -> None:
    got = run("""
    inside, first = threading.Event(), [True]
    def body(x):
        if first.pop() if first else False:
            inside.set()
            time.sleep(1000)
        return x * 2
    f = tfopt.function(body)
    threading.Thread(target=f, args=(np.ones(2),), daemon=True).start()
    inside.wait()
    child = os.fork()
    if not child:
        signal.alarm(10)
        print(f(np.ones(2)).numpy(), flush=True)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    os._exit(0)
    """)
    assert got == "[2. 2.]\n0"


class Counted:
    """A lock that says which call of `acquire` fails, or does not get it."""

    log: list[str]

    def __init__(self, name: str, answers: list[object]) -> None:
        self.name, self.answers = name, answers

    def acquire(self, blocking: bool = True) -> bool:
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, type):
            raise answer
        if answer:
            self.log.append(f"+{self.name}")
        return bool(answer)

    def release(self) -> None:
        self.log.append(f"-{self.name}")


@pytest.mark.parametrize(
    ("answers", "log"),
    [
        ([[], [], []], "+a +b +c -a -b -c"),
        ([[], [False], []], "+a -a +b +c +a -a -b -c"),  # b is waited for with nothing held
        ([[], [], [False]], "+a +b -a -b +c +a +b -a -b -c"),
        ([[KeyboardInterrupt], [], []], ""),
        ([[], [], [MemoryError]], "+a +b -a -b"),
        ([[], [False, KeyboardInterrupt], []], "+a -a"),
    ],
)
def test_locks_taken_are_released(answers: list[list[object]], log: str) -> None:
    Counted.log = []
    locks = [Counted(name, each) for name, each in zip("abc", answers, strict=True)]
    fails = any(isinstance(answer, type) for each in answers for answer in each)
    try:
        with Held(locks):
            assert sorted(Counted.log[-3:]) == ["+a", "+b", "+c"]
    except (KeyboardInterrupt, MemoryError):
        assert fails
    else:
        assert not fails
    assert Counted.log == log.split()


def test_a_context_that_is_dropped_releases_its_locks() -> None:
    """So Python 3.14 does with one that an interrupt follows before its body begins."""
    Counted.log = []
    Held([Counted("a", []), Counted("b", [])]).__enter__()
    assert Counted.log == ["+a", "+b", "-a", "-b"]


def test_a_context_that_is_only_left_ends() -> None:
    Held([]).__exit__(None, None, None)

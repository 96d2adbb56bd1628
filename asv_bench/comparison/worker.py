"""One process of the comparison: tfopt against one rival, taking turns.

``python -m comparison.worker LIBRARY`` prints a line of JSON for each comparison. A library has a
process of its own, as its threads and allocator would disturb those of another.
"""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any

from benchmarks.common import public

from comparison.measure import Timed, difference, interleaved, timed
from comparison.quiet import BUSY, Others, Patience
from comparison.results import Facts, Message, Missing, Result, line
from comparison.rival import Rival, Unavailable
from comparison.works import Dense, Work, works

if TYPE_CHECKING:
    from comparison.linear import Fit

__all__ = ["LIBRARIES", "chosen"]

#: The rivals, by the module that has to be installed, and whether linear models are the works.
LIBRARIES = dict.fromkeys(("torch", "numpy", "tensorflow"), False)
LIBRARIES |= dict.fromkeys(("sklearn", "snapml", "glum", "celer", "skglm"), True)

#: Seconds for the rounds of one comparison, the fewest rounds and the most; quick and full.
QUICK = (0.3, 3, 15)
FULL = (0.7, 5, 30)

#: How often a comparison is measured at most if other programs are busy; the quietest time counts.
ATTEMPTS = 3

#: The part of the time that may be spent waiting for them, and the most seconds.
WAITING, LONGEST = 0.3, 60.0


def chosen(work: Work | Fit, label: str, pattern: str) -> bool:
    """Return whether a comparison is requested, by a part of its name."""
    return fnmatch(f"{work.name} against {label}".lower(), f"*{pattern.lower()}*")


def messages(library: str, quick: bool, pattern: str, seconds: float) -> Iterator[Message]:
    """Make the comparisons within a time limit; report the remaining ones as missing."""
    end = monotonic() + seconds
    module = import_module(f"comparison.{library}_rival")
    yield Facts(library, {**public("core.versions.versions")(), **module.versions()})
    told: set[str] = set()
    patience = Patience(min(WAITING * seconds, LONGEST))
    for work in works_of(library, quick):
        try:
            rivals = module.rivals(work)
        except Unavailable as error:
            if str(error) not in told and chosen(work, library, pattern):
                told.add(str(error))
                yield Missing(library, work.rule, str(error))
            continue
        for rival in rivals:
            name = f"{work.name} against {rival.label}"
            if not chosen(work, rival.label, pattern):
                continue
            if monotonic() > end:
                yield Missing(library, name, "the time was up")
                continue
            try:
                yield compare(library, work, rival, patience, *(QUICK if quick else FULL))
            except (NotImplementedError, Unavailable) as error:
                yield Missing(library, name, str(error))
            except Exception as error:  # a comparison that breaks must not end the others
                traceback.print_exc()
                yield Missing(library, name, f"{type(error).__name__}: {error}", failed=True)


def works_of(library: str, quick: bool) -> Sequence[Work | Fit]:
    """Return the works compared with a library."""
    if not LIBRARIES[library]:
        return works(quick)
    from comparison.linear import fits  # needs scikit-learn

    return fits(quick)


def compare(
    library: str,
    work: Work | Fit,
    rival: Rival,
    patience: Patience,
    seconds: float,
    least: int,
    most: int,
) -> Result:
    """Take a step on each side, compare the answers, then measure."""
    ours, theirs = work.ours(), rival.side()
    ours.step()
    theirs.step()
    apart = None
    if rival.tolerance is not None:
        apart = difference(ours.state(), theirs.state())
    sides = [timed(ours.step), timed(theirs.step)]
    loop, make_loop = None, work.loop(ours.state())
    if make_loop is not None:
        loop = make_loop(1)
        loop()
        _, repeats, _, long = timed(loop)
        sides.append(Timed(make_loop(repeats), 1, repeats, long))
    quietest, samples = 2.0, [[0.0]]
    for _ in range(ATTEMPTS):
        watch = Others()
        attempt = interleaved(sides, seconds, least, most, cold=loop if work.cold else None)
        others = watch.share()
        if (others or 0.0) < quietest:
            quietest, samples = others or 0.0, attempt
        if quietest <= BUSY or not patience.wait():
            break
    return Result(
        work=work.name,
        kind=work.kind,
        rule=work.rule,
        variant=work.variant if isinstance(work, Dense) else work.rule,
        elements=work.size if isinstance(work, Dense) else 0,
        library=library,
        rival=rival.label,
        note=rival.note,
        difference=apart,
        tolerance=rival.tolerance,
        share=work.share,
        others=None if others is None else quietest,
        ours=samples[0],
        theirs=samples[1],
        loop=samples[2] if loop is not None else [],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=800.0)
    arguments: Any = parser.parse_args()
    for message in messages(arguments.library, arguments.quick, arguments.only, arguments.seconds):
        print(line(message), flush=True)


if __name__ == "__main__":
    main()

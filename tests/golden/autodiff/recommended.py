"""Which behaviours are TensorFlow's, and which are what its users would rather have.

`FOLLOWS` says "TensorFlow" or "recommended" for each. `OURS` has our answer where it is another
one, with the reason.
"""

from __future__ import annotations

from typing import Any

from golden.autodiff.more_behaviours import BEHAVIOURS

__all__ = ["FOLLOWS", "OURS"]

OURS: dict[str, tuple[str, Any]] = {
    "B24": (
        "a tensor given by name is an input, as if it were given by position",
        [
            [10.0, 20.0],
            "custom_gradient function expected to return 2 gradients, but returned 1 instead.",
        ],
    ),
    "B25": (
        "the custom gradient is not silently ignored where all inputs are given by name",
        [[10.0, 20.0], [10.0, 20.0]],
    ),
    "B32": ("a gradient has the shape of its input", "ValueError"),
    "B38": (
        "a variable given by name is an input, too",
        [
            "custom_gradient function expected to return 2 gradients, but returned 1 instead.",
            [10.0, 20.0],
        ],
    ),
    "B43": (
        "None for the list of gradients is a wrong number of them",
        [["ValueError", True], ["ValueError", True], None, "ValueError"],
    ),
    "B47": ("variables come in the order in which they were made, everywhere", [["c", "a", "b"]]),
    "B50": (
        "what a custom gradient closes over gets no gradient, whoever watches its inputs",
        [[10.0, None], [None], [30.0, 1010.0]],
    ),
    "B57": (
        "keywords work in functions, too",
        [["nothing", False], ["TypeError", True], [10.0, 20.0]],
    ),
    "B61": (
        "watching before the tape is entered says so",
        [
            ["RuntimeError", True], ["RuntimeError", True], ["TypeError", True], 6.0,
            ["ValueError", True], ["RuntimeError", True], ["ValueError", True],
            ["ValueError", True], ["ValueError", True], "RuntimeError", ["ValueError", True],
            ["ValueError", True], ["ValueError", True],
        ],
    ),
    "B70": (
        "the second order of what is computed again works",
        [12.0, [[4.0, 12.0], 2], 4, 8, [2.0, 0.0], [16.0, 2, 6], [2.0, 0.0], [1458.0, 2430.0]],
    ),
    "B71": (
        "a gradient that is passed through is broadcast to its input",
        [[9.0, 9.0], 6.0, [1.0, None], ["ValueError", True], [1.0, 1.0], 1.0],
    ),
    "B72": (
        "what has no gradient is an error only on the path of one, in functions, too",
        [True, ["KeyError", True], ["TypeError", True], ["TypeError", True], 2.0,
         ["LookupError", True], 5.0, "nothing"],
    ),
}  # fmt: skip

FOLLOWS = {name: "recommended" if name in OURS else "TensorFlow" for name in BEHAVIOURS}

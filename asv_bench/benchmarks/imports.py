"""How long a program waits for `import tfopt`."""

from __future__ import annotations

from .common import least_printed

CODE = """
from time import perf_counter
start = perf_counter()
import {}
print(perf_counter() - start)
"""


class Import:
    """The time to import tfopt, which imports NumPy, relative to that of NumPy alone."""

    unit = "times"

    def track_ratio_to_numpy(self) -> float:
        """Return the import time of tfopt, which includes NumPy's, relative to NumPy's alone."""
        tfopt, numpy = least_printed(
            (CODE.format("tfopt"), {}), (CODE.format("numpy"), {}), runs=12
        )
        return tfopt / numpy

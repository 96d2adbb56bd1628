"""What a training run says on standard error while it works."""

from __future__ import annotations

import os
import sys
from types import TracebackType

from tqdm import tqdm


class Progress:
    """A bar with the time left on a terminal, else one line per epoch; silent if `quiet`.

    Parameters
    ----------
    total_rows : int
        Rows times epochs.
    quiet : bool
    """

    def __init__(self, total_rows: int, quiet: bool) -> None:
        quiet = quiet or sys.stderr is None
        terminal = not quiet and sys.stderr.isatty()
        self._prints_lines = not quiet and not terminal
        # a terminal without a size (in a container, say) would get a bar of width 0
        sizeless = terminal and not os.get_terminal_size(sys.stderr.fileno()).columns
        self._bar = tqdm(
            total=total_rows,
            desc="training",
            unit=" rows",
            unit_scale=True,
            disable=not terminal,
            ncols=80 if sizeless else None,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.close()

    def rows(self, count: int) -> None:
        """Count the rows of one batch."""
        self._bar.update(count)

    def epoch(self, number: int, losses: dict[str, float]) -> None:
        """Report an epoch that is done, with its loss on the training and the test data."""
        shown = {f"{part} loss": f"{loss:.6g}" for part, loss in losses.items()}
        self._bar.set_postfix(shown)
        if self._prints_lines:
            text = "  ".join(f"{name} {loss}" for name, loss in shown.items())
            print(f"epoch {number:3}  {text}", file=sys.stderr, flush=True)

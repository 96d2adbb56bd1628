"""`python -m tfopt` and ``tfopt`` are the command line."""

import gc
import sys

from tfopt.cli import main


def run() -> int:
    """Run the command line as all that a process does; return the exit code."""
    code = main()
    gc.freeze()  # else Python would look through all that was imported once more as it ends
    return code


if __name__ == "__main__":
    sys.exit(run())

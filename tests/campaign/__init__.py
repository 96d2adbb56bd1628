"""The campaign of faults: random cases and provoked failures, for as long as one likes.

``python -m campaign`` (in ``tests``) runs every check for its share of the time, each in a process
of its own, and prints a line for each: what was tried, and what was lost. A case is drawn from the
seed, the name of the check and the number of the case, so that any can be repeated alone.
"""

"""Data that several tests of the command line use."""

#: Eight rows of two classes, one-based, that a linear model separates.
TINY = "\n".join(["+1 1:1 3:.5", "-1 2:1", "+1 1:.8", "-1 2:.9 3:.1"] * 2) + "\n"

"""Base classes of optimizers, and how they take steps."""

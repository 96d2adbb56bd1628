"""The optimizers, a file for each: what its step is, and which hyperparameters it has."""

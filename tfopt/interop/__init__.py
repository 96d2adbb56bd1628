"""Moving in: the state of other libraries' optimizers, and ours in their loops."""

"""The state of optimizers: slots, other weights, settings; saving and loading them."""

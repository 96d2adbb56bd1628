"""What every optimizer has: slots, hyperparameters, a state that is saved, pairs of gradients."""

"""What TensorFlow's SDCA ops have beside the solver: groups of features and fingerprints."""

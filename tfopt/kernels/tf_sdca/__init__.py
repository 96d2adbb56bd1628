"""Parts of TensorFlow's SDCA ops besides the solver: groups of features and fingerprints."""

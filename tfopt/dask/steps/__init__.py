"""Steps of optimizers with gradients from a Dask cluster."""

"""Tables whose rows lie on the workers of a Dask cluster."""

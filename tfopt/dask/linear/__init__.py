"""Linear models on a Dask cluster: fits with a certificate, streams, predictions."""

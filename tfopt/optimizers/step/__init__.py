"""Steps: requests, gradients, plans of calls, clipping, deferred rows, reports."""

"""The solvers of linear models.

A fit to dense rows enters these files, each once but for the loop: `classifier` has `validation`
check the data and `parameters` the options; `estimator` makes a `problem` of them, with the record
of its loss (`loss_record`), and asks `plan`, which counts `work`, for a solver; `fit` loops over
steps of `newton` with the `rows` of a `design`, `certificate` says how far from the minimum each
led, and `monitor` whether that is near enough; `fitted` keeps the result.
"""

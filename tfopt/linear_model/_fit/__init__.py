"""The solvers of linear models.

A fit to dense rows passes through these files. `classifier` calls `validation` to check the data
and `parameters` to check the options. `estimator` makes a `problem` of both, with the record of its
loss (`loss_record`). `plan` counts the `work` of the solvers and chooses one. `fit` is the loop: a
step of `newton` computes with the `rows` of a `design`, `certificate` bounds the distance from the
minimum, and `monitor` decides whether to stop. `fitted` keeps the result.
"""

# cython: language_level=3

ctypedef fused real:
    float
    double

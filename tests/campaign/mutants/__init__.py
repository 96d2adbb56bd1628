"""Mutation testing: small faults in kernels, checks, checkpoints and solvers, which tests must see.

`sites` finds what can be changed in a source file, `schemata` writes a file that holds many mutants
and carries out the one that is chosen at run time, `build` makes a copy of the checkout from such
files, `server` runs in it the tests that reach a mutant, `page` shows what became of them.
"""

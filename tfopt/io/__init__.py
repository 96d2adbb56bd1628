"""Reads data files into arrays.

:func:`read_libsvm` reads a LIBSVM file on all threads; :func:`iter_libsvm` reads one that is larger
than memory, some rows at a time. Both read from local files, standard input, file objects and, with
fsspec, URLs, and decompress gzip, bzip2, xz and Zstandard by content.
:func:`iter_hashed` reads rows of categories and numbers as hashed features, from delimited text or
that of Vowpal Wabbit. :func:`hash_features` hashes columns if there are too many of them.
"""

from tfopt.io.hashed_text import HashedBlock, iter_hashed
from tfopt.io.hashing import hash_features
from tfopt.io.libsvm import LibsvmData, iter_libsvm, read_libsvm

__all__ = [
    "HashedBlock",
    "LibsvmData",
    "hash_features",
    "iter_hashed",
    "iter_libsvm",
    "read_libsvm",
]


def __dir__() -> list[str]:
    return __all__

"""A sparse matrix whose columns are hashes already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scipy import sparse

if TYPE_CHECKING:
    from tfopt.io.text_options import HashedText

__all__ = ["HashedRows"]


class HashedRows(sparse.csr_matrix):  # type: ignore[misc]
    """Rows of hashed features, which an estimator with `n_hashes` takes as they are.

    Some of its rows are one again; what `scipy.sparse.vstack` makes of several is not.

    Attributes
    ----------
    reading : HashedText or None
        How they were read, which an estimator keeps for its file.
    """

    reading: HashedText | None = None

    def __getitem__(self, key: Any) -> Any:
        some = super().__getitem__(key)
        if isinstance(some, HashedRows):
            if some.shape[1] != self.shape[1]:  # some of its columns
                return sparse.csr_matrix(some)
            some.reading = self.reading
        return some

    def as_plain(self) -> Any:
        """Return the same numbers as a matrix of SciPy's own class."""
        return sparse.csr_matrix((self.data, self.indices, self.indptr), self.shape)

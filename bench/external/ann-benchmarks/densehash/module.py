"""densehash for ann-benchmarks: vectors by angle or distance, and bits by Hamming distance."""

from densehash import Index

from ..base.module import BaseANN  # noqa: TID252  as in all modules there


class Densehash(BaseANN):
    """Signs in groups; queries have a recall as their setting."""

    def __init__(self, metric, groups_a_row):
        self._metric = {"angular": "cosine", "euclidean": "l2"}[metric]
        self._groups_a_row = groups_a_row

    def fit(self, X):
        self._index = Index.build(
            X,
            metric=self._metric,
            kind="grouped",
            groups_a_row=self._groups_a_row,
            random_state=0,
            verbose=0,
        )

    def set_query_arguments(self, recall):
        self._recall = recall

    def query(self, q, n):
        return self._index.search(q[None], n, recall=self._recall, n_threads=1).ids[0]

    def batch_query(self, X, n):
        self.res = self._index.search(X, n, recall=self._recall).ids

    def __str__(self):
        return f"Densehash(groups_a_row={self._groups_a_row}, recall={self._recall})"


class DensehashBits(BaseANN):
    """Given bits; a query is compared with all of them."""

    name = "DensehashBits()"

    def __init__(self, metric):
        if metric != "hamming":
            raise NotImplementedError(f"bits are compared by Hamming distance, not by {metric}")

    def fit(self, X):
        self._index = Index.from_codes(X, verbose=0)

    def query(self, q, n):
        return self._index.search(q[None], n, n_threads=1).ids[0]

    def batch_query(self, X, n):
        self.res = self._index.search(X, n).ids

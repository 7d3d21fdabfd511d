"""Rows and queries as people have them: one vector, lists, tensors, columns, frames."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from index_cases import KINDS, build, every_kind, rows

from densehash import DSH
from densehash.checks import check_vectors
from densehash.errors import InputError
from densehash.index import Hits, Index, Ranges

Q = rows(3, seed=5)


def sketches() -> list[Index]:
    """Codes of every kind, and signs in both ways that they are searched."""
    some = [build(kind, rows(60)) for kind in KINDS]
    signs = Index.build(rows(60), sketch="signs", random_state=0)
    return [*some, signs, Index.build(rows(60), ids=[f"row {i}" for i in range(60)])]


# --- one vector ---------------------------------------------------------------------------


ONE: dict[str, dict[str, Any]] = {
    "k": {"k": 4},
    "more than there are": {"k": 70},
    "Hamming, or estimates": {"k": 3, "rerank": None},
    "near": {"k": 3, "radius": 4.0},
    "without itself": {"k": 3, "exclude_self": True},
    "filtered": {"k": 3, "filter": lambda ids: np.arange(len(ids)) % 3 == 0},
}


@pytest.mark.parametrize("asked", ONE.values(), ids=ONE)
def test_one_vector_is_answered_as_the_only_row(asked: dict[str, Any]) -> None:
    for index in sketches():
        if index.kind == "multi":  # Hamming radii there are counted
            asked = {**asked, "rerank": asked.get("rerank", "exact")}
        whole = index.search(Q[:1], **asked)
        for one in (Q[0], Q[0].astype(np.float64), Q[0].tolist(), tuple(Q[0].tolist())):
            found = index.search(one, **asked)
            assert isinstance(found, Hits)
            assert found.ids.shape == found.distances.shape == (asked["k"],)
            assert found.ids.dtype == whole.ids.dtype
            assert found.distances.dtype == whole.distances.dtype
            assert found.ids.tolist() == whole.ids[0].tolist()
            assert found.distances.tolist() == whole.distances[0].tolist()
            assert (found.effort is None) == (whole.effort is None)
            if found.effort is not None and whole.effort is not None:
                assert found.effort == tuple(part[0] for part in whole.effort)


@every_kind
def test_all_near_one_vector(kind: str) -> None:
    index = build(kind, rows(60))
    found, whole = index.search(Q[0], radius=5.0), index.search(Q[:1], radius=5.0)
    assert isinstance(found, Ranges)
    assert all(np.array_equal(a, b) for a, b in zip(found, whole, strict=True))


def test_one_vector_may_be_left_out_by_its_id() -> None:
    X = rows(60)
    by_number = Index.build(X, random_state=0)
    by_name = Index.build(X, ids=[f"row {i}" for i in range(60)], random_state=0)
    cases: list[tuple[Index, Any]] = [(by_number, 7), (by_number, np.int64(7)), (by_name, "row 7")]
    for index, own in cases:
        expected = index.search(X[7:8], 5, exclude_self=[own])
        assert own not in expected.ids
        assert index.search(X[7], 5, exclude_self=own).ids.tolist() == expected.ids[0].tolist()
        assert index.search(X[7], 5, exclude_self=[own]).ids.tolist() == expected.ids[0].tolist()
        with pytest.raises(InputError, match="one dimension|array of ids"):
            index.search(X[7:9], 5, exclude_self=own)


def test_no_vector_is_one() -> None:
    index = Index.build(rows(60), random_state=0)
    bad: dict[str, tuple[Any, str]] = {
        "nothing": ([], "empty|0 sample|minimum"),
        "no numbers": (np.zeros(0, np.float32), "2 dimensions"),
        "narrow": (Q[0, :4], "Q has 4 features, the index 6"),
        "texts": (["a"] * 6, ""),
        "a number": (3.0, "2 dimensions"),
        "not finite": ([np.nan] * 6, "NaN"),
    }
    for asked, message in bad.values():
        with pytest.raises((InputError, TypeError), match=message or None):
            index.search(asked)


def test_an_empty_index_answers_one_vector() -> None:
    index = Index.build(rows(20), random_state=0)
    index.remove(index.ids)
    found = index.search(Q[0], 3)
    assert found.ids.tolist() == [-1] * 3
    assert index.search(Q[0], radius=1.0).ids.shape == (0,)


# --- vectors as other libraries hold them ---------------------------------------------------


class Tensor:
    """What densehash asks of a tensor of torch, with the refusals of the real one."""

    def __init__(self, array: Any, *, device: str = "cpu", grad: bool = False, odd: bool = False):
        self.array, self.device, self.requires_grad = np.asarray(array), device, grad
        self.odd = odd  # of a type that numpy does not have

    def __len__(self) -> int:
        return len(self.array)

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def detach(self) -> Tensor:
        return Tensor(self.array, device=self.device, odd=self.odd)

    def cpu(self) -> Tensor:
        return Tensor(self.array, grad=self.requires_grad, odd=self.odd)

    def float(self) -> Tensor:
        return Tensor(self.array.astype(np.float32), device=self.device, grad=self.requires_grad)

    def numpy(self) -> Any:
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        if self.device != "cpu" or self.odd:
            raise TypeError("can't convert to numpy")
        return self.array


Tensor.__module__ = "torch"


class Parameter(Tensor):
    """A class that others have derived."""


def objects(values: list[Any]) -> Any:
    found = np.empty(len(values), object)
    for at, value in enumerate(values):  # all at once, numpy would look into them
        found[at] = value
    return found


def pandas() -> Any:
    return pytest.importorskip("pandas")


def polars() -> Any:
    return pytest.importorskip("polars")


def arrow() -> Any:
    return pytest.importorskip("pyarrow", reason="needs the extra parquet")


def fixed(X: Any) -> Any:
    pa = arrow()
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(X)), X.shape[1])


def lists(X: Any, kind: str = "list_") -> Any:
    pa = arrow()
    return pa.array(X.tolist(), getattr(pa, kind)(pa.from_numpy_dtype(X.dtype)))


def in_chunks(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda X: arrow().chunked_array([make(X[:2]), make(X[2:2]), make(X[2:])])


def of_a_slice(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda X: make(np.r_[X[:1] + 1, X[:1] + 2, X, X[:1] + 3])[2 : 2 + len(X)]


COLUMNS: dict[str, Callable[[Any], Any]] = {
    "lists": lambda X: X.tolist(),
    "tuples of arrays": tuple,
    "objects: arrays": lambda X: objects(list(X)),
    "objects: lists": lambda X: objects(X.tolist()),
    "objects: numbers in rows": lambda X: X.astype(object),
    "stub tensor": Tensor,
    "stub tensor on a GPU": lambda X: Tensor(X, device="cuda:0"),
    "stub tensor that learns": lambda X: Parameter(X, device="cuda:0", grad=True),
    "stub tensor of bfloat16": lambda X: Tensor(X, grad=True, odd=True),
    "list of stub tensors": lambda X: [Tensor(row, device="cuda:0", grad=True) for row in X],
    "objects: stub tensors": lambda X: objects([Tensor(row, odd=True) for row in X]),
    "pandas frame": lambda X: pandas().DataFrame(X).add_prefix("x"),
    "pandas column of arrays": lambda X: pandas().Series(list(X), index=range(9, 9 + len(X))),
    "pandas column of lists": lambda X: pandas().DataFrame({"v": X.tolist()})["v"],
    "pandas column of Arrow": lambda X: pandas().Series(
        pandas().arrays.ArrowExtensionArray(arrow().chunked_array([lists(X)]))
    ),
    "polars frame": lambda X: polars().DataFrame(X),
    "polars column of lists": lambda X: polars().Series(X.tolist()),
    "polars column of arrays": lambda X: polars().Series(
        X.tolist(), dtype=polars().Array(polars().Float64, X.shape[1])
    ),
    "polars slice of lists": of_a_slice(lambda X: polars().Series(X.tolist())),
    "Arrow lists": lists,
    "Arrow large lists": lambda X: lists(X, "large_list"),
    "Arrow fixed-size lists": fixed,
    "Arrow slice of lists": of_a_slice(lists),
    "Arrow slice of fixed-size lists": of_a_slice(fixed),
    "Arrow chunks of lists": in_chunks(lists),
    "Arrow chunks of fixed-size lists": in_chunks(fixed),
    "Arrow table": lambda X: arrow().table({f"x{at}": part for at, part in enumerate(X.T)}),
    "Arrow record batch": lambda X: arrow().RecordBatch.from_arrays(
        [arrow().array(part) for part in X.T], [f"x{at}" for at in range(X.shape[1])]
    ),
}


@pytest.mark.parametrize("make", COLUMNS.values(), ids=COLUMNS)
def test_rows_of_any_library_are_rows(make: Callable[[Any], Any]) -> None:
    X = rows(20)
    made = make(X)
    found = check_vectors(made)
    np.testing.assert_array_equal(np.asarray(found), X)

    index = Index.build(made, n_bits=16, random_state=0)
    expected = Index.build(X, n_bits=16, random_state=0)
    index.add(made)
    index.update(range(20), make(X[::-1]))
    np.testing.assert_array_equal(index.get(range(40)), np.r_[X[::-1], X])
    assert index.search(make(Q), 40).ids.shape == (3, 40)
    np.testing.assert_array_equal(expected.search(make(Q), 20).ids, expected.search(Q, 20).ids)
    np.testing.assert_array_equal(expected.search(make(X[:1]), 1).ids, [[0]])  # one row is many


@pytest.mark.parametrize("make", COLUMNS.values(), ids=COLUMNS)
def test_hashers_take_them_too(make: Callable[[Any], Any]) -> None:
    X = rows(40).astype(np.float64)
    hasher = DSH(8, random_state=0).fit(make(X))
    expected = DSH(8, random_state=0).fit(X)
    np.testing.assert_allclose(hasher.planes_, expected.planes_)
    np.testing.assert_array_equal(hasher.transform(make(X[:5])), expected.transform(X[:5]))


ONE_OF: dict[str, Callable[[Any], Any]] = {
    "stub tensor": lambda x: Tensor(x, device="cuda:0", grad=True),
    "objects": lambda x: x.astype(object),
    "pandas": lambda x: pandas().Series(x),
    "polars": lambda x: polars().Series(x),
    "Arrow": lambda x: arrow().array(x),
}


@pytest.mark.parametrize("make", ONE_OF.values(), ids=ONE_OF)
def test_one_vector_of_any_library(make: Callable[[Any], Any]) -> None:
    index = Index.build(rows(60), random_state=0)
    if make is ONE_OF["objects"]:
        with pytest.raises((InputError, TypeError)):
            index.add(make(Q[0]))
        return
    assert index.search(make(Q[0]), 5).ids.tolist() == index.search(Q[0], 5).ids.tolist()
    with pytest.raises(InputError, match="2 dimensions"):
        index.add(make(Q[0]))


@pytest.mark.skipif(not find_spec("torch"), reason="needs torch")
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "uint8", "int64"])
def test_tensors_of_torch(dtype: str) -> None:
    import torch

    X = rows(30)
    tensor = torch.tensor(X).to(getattr(torch, dtype))
    if tensor.is_floating_point():
        tensor.requires_grad_()
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        for made in (tensor.to(device), torch.stack(list(tensor)), list(tensor.to(device))):
            np.testing.assert_array_equal(np.asarray(check_vectors(made)), X)
        np.testing.assert_array_equal(check_vectors(tensor.to(device).T[:, :6]), X.T[:, :6])
    index = Index.build(tensor, random_state=0)
    assert index.search(tensor[7], 1).distances.tolist() == [0.0]
    assert index.search(tensor[:4], 1).distances.tolist() == [[0.0]] * 4
    with pytest.raises(InputError, match=r"use X\.to_dense\(\)"):
        index.add(torch.tensor(X).to_sparse())
    with pytest.raises(InputError, match=r"use Q\.to_dense\(\)"):
        index.search(torch.tensor(X).to_sparse_csr())


# --- frames ---------------------------------------------------------------------------------


def frames() -> list[Callable[[dict[str, Any]], Any]]:
    made: list[Callable[[dict[str, Any]], Any]] = []
    if find_spec("pandas"):
        made.append(pandas().DataFrame)
    if find_spec("polars"):
        made.append(polars().DataFrame)
    if find_spec("pyarrow"):
        made += [arrow().table, arrow().RecordBatch.from_pydict]
    return made


@pytest.mark.parametrize("frame", frames())
def test_columns_of_a_frame_by_name(frame: Callable[[dict[str, Any]], Any]) -> None:
    X = rows(20)
    names = [f"row {at}" for at in range(20)]

    def made(at: slice) -> Any:
        parts = {"id": names[at], "n": list(range(20))[at], "embedding": X[at].tolist()}
        n = len(parts["id"])
        return frame({**parts, "text": ["a"] * n, "tags": [["a", "b"]] * n})

    first, later = slice(0, 12), slice(12, 20)
    index = Index.build(made(first), ids="id", column="embedding", random_state=0)
    assert index.add(made(later), ids="id", column="embedding").tolist() == names[12:]
    index.update("id", made(slice(3, 5)), column="embedding")
    np.testing.assert_array_equal(index.get(names), X)
    numbered = Index.build(made(first), ids="n", column="embedding", random_state=0)
    assert numbered.ids.tolist() == list(range(12))

    for call in (Index.build, index.add, lambda Y: index.update(names[:12], Y), index.search):
        with pytest.raises(InputError, match=r"vectors in 'embedding': pass that column") as error:
            call(made(first))
        assert "column='embedding'" in str(error.value)
    with pytest.raises(InputError, match="vectors in 'embedding': pass that column"):
        DSH(8).fit(made(first))
    with pytest.raises(
        InputError, match="column 'v' is not there; the columns are 'id', 'n', 'emb"
    ):
        index.add(made(first), column="v")
    with pytest.raises(InputError, match="ids 'v' is not there; the columns are"):
        index.add(made(first), ids="v", column="embedding")
    with pytest.raises((InputError, TypeError)):
        index.add(made(first), ids="id", column="text")
    assert len(index) == 20


@pytest.mark.parametrize("frame", frames())
def test_a_frame_of_numbers_may_have_a_column_of_ids(frame: Callable[[Any], Any]) -> None:
    X = rows(12)
    parts = {f"x{at}": column.tolist() for at, column in enumerate(X.T)}
    ids = list(range(90, 102))
    index = Index.build(frame({"id": ids, **parts}), ids="id", random_state=0)
    assert index.ids.tolist() == ids
    np.testing.assert_array_equal(index.get(ids), X)


def test_columns_are_of_frames() -> None:
    index = Index.build(rows(20), random_state=0)
    for call in (Index.build, index.add):
        with pytest.raises(InputError, match="column is 'v', but there is no data frame"):
            call(rows(4), column="v")
        with pytest.raises(InputError, match="ids must be an array of ids, got 'id'"):
            call(rows(4), ids="id")


# --- what is refused ------------------------------------------------------------------------


def wrong(at: int, value: Any) -> Any:
    values: list[Any] = rows(5).tolist()
    values[at] = value
    return values


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "short": (lambda: wrong(3, [1.0]), "row 0 has 6 numbers, row 3 has 1"),
    "short, objects": (lambda: objects(wrong(3, [1.0])), "row 0 has 6 numbers, row 3 has 1"),
    "short, pandas": (lambda: pandas().Series(wrong(3, [1.0])), "row 0 has 6 numbers, row 3 has 1"),
    "short, polars": (lambda: polars().Series(wrong(3, [1.0])), "row 0 has 6 numbers, row 3 has 1"),
    "short, Arrow": (lambda: arrow().array(wrong(3, [1.0])), "row 0 has 6 numbers, row 3 has 1"),
    "short, a later chunk": (
        lambda: arrow().chunked_array([[[1.0] * 6] * 3, [[1.0] * 6, [1.0]]]),
        "row 3 has 6 numbers, row 4 has 1",
    ),
    "short, all of a later chunk": (
        lambda: arrow().chunked_array([[[1.0] * 6] * 3, [], [[1.0]]]),
        "row 0 has 6 numbers, row 3 has 1",
    ),
    "null, a later chunk": (
        lambda: arrow().chunked_array([[[1.0] * 6] * 3, [[1.0] * 6, None]]),
        "row 4 of Q has null in place of",
    ),
    "short, tensors": (
        lambda: [Tensor(row) for row in wrong(3, [1.0])],
        "row 0 has 6 numbers, row 3 has 1",
    ),
    "a number": (lambda: wrong(3, 1.0), "row 0 has 6 numbers, row 3 is no vector"),
    "none": (lambda: objects(wrong(2, None)), "row 2 of Q has None in place of"),
    "nan": (lambda: pandas().Series(wrong(2, np.nan)), "row 2 of Q has nan in place of"),
    "null, polars": (lambda: polars().Series(wrong(2, None)), "row 2 of Q has null in place of"),
    "null, Arrow": (lambda: arrow().array(wrong(2, None)), "row 2 of Q has null in place of"),
    "null inside, Arrow": (
        lambda: arrow().array(wrong(2, [1.0, None, *[2.0] * 4])),
        "row 2 of Q has a null in place of",
    ),
    "null inside, polars": (
        lambda: polars().Series(wrong(2, [1.0, None, *[2.0] * 4])),
        "row 2 of Q has a null in place of",
    ),
    "texts": (lambda: objects(["[1, 2]", "[3, 4]"]), r"row 0 of Q is the text '\[1, 2\]'.*json"),
    "a text": (lambda: objects(wrong(4, "[1, 2]")), r"row 4 of Q is the text '\[1, 2\]'.*json"),
    "empty lists": (lambda: objects([[], []]), "empty|features"),
    "no rows, Arrow": (
        lambda: arrow().array([], arrow().list_(arrow().float32())),
        "empty|features",
    ),
    "no rows, chunks": (
        lambda: arrow().chunked_array([], arrow().list_(arrow().float32())),
        "empty|features|dimensions",
    ),
    "no rows, polars": (
        lambda: polars().Series([], dtype=polars().List(polars().Float32)),
        "empty|features",
    ),
    "complex": (lambda: np.ones((2, 6), complex), ""),
    "dates": (lambda: np.ones((2, 6), "datetime64[s]"), ""),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_columns_that_are_refused(make: Callable[[], Any], message: str) -> None:
    index = Index.build(rows(20), random_state=0)
    with pytest.raises(InputError, match=message or None):
        index.search(make(), 3)
    with pytest.raises(InputError, match=message.replace(" Q ", " X ") or None):
        index.add(make())
    assert len(index) == 20


def test_queries_are_a_column_of_a_frame() -> None:
    pd = pytest.importorskip("pandas", reason="needs pandas")
    X = np.random.default_rng(0).standard_normal((50, 4), dtype=np.float32)
    frame = pd.DataFrame({"text": [*map(str, range(50))], "vec": [*X]})
    index = Index.build(X, random_state=0)
    assert index.search(frame, 1, column="vec").ids[:, 0].tolist() == [*range(50)]
    with pytest.raises(InputError, match="column 'v' is not there; the columns are 'text', 'vec'"):
        index.search(frame, 1, column="v")
    with pytest.raises(InputError, match="there is no data frame"):  # not passed over
        index.search(X, 1, column="vec")

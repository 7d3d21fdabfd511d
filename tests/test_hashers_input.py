"""Bad input and hard input: for every hasher a clear error or a right answer."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hasher_cases import (
    MAKERS,
    WITHOUT_CHANCE,
    Make,
    assert_same_bits,
    bits_of,
    every_hasher,
    fitted,
    learnt,
    mixture,
    parameters_of,
)
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from densehash.errors import InputError
from densehash.hashers import AGH, DSH, ITQ, KLSH, LSH, PCAH, SIKH, Hasher, SpH
from densehash.hashers.registry import HASHERS

# --- bad rows -----------------------------------------------------------------------------

BAD_ROWS: dict[str, tuple[Any, str]] = {
    "one-dimensional": (np.zeros(24), r"2 dimensions \(n, d\), got shape \(24,\)"),
    "three-dimensional": (np.zeros((5, 24, 1)), r"2 dimensions .*\(5, 24, 1\)"),
    "zero-dimensional": (np.array(3.0), r"2 dimensions .*got shape \(\)"),
    "no rows": (np.zeros((0, 24)), r"0 sample\(s\) \(shape=\(0, 24\)\)"),
    "no features": (np.zeros((5, 0)), r"0 feature\(s\) \(shape=\(5, 0\)\)"),
    "complex": (np.zeros((5, 24), complex), "[Cc]omplex"),
    "strings": (np.full((5, 24), "1.5x"), "X cannot be used: .*strings"),
    "bytes": (np.full((5, 24), b"1"), "X cannot be used: .*bytes"),
    "dates": (np.zeros((5, 24), "datetime64[s]"), "must be numbers, got dtype datetime64"),
    "sparse": (scipy.sparse.csr_array(np.eye(24)), "must be dense"),
    "ragged": ([[1.0, 2.0], [3.0]], "row 0 has 2 numbers, row 1 has 1"),
    "text": ("rows", "X cannot be used"),
    "nothing": (None, "got a NoneType"),
    "a number": (3, "got a int"),
    "missing": (np.full((50, 24), None), "NaN in row 0, column 0"),
    "nothing in lists": ([[None] * 24] * 50, "must be numbers, got dtype object"),
    "too large": (np.full((50, 24), 1e30, np.float32), r"numbers up to 1e\+30"),
    "too large for a float32": (np.full((50, 24), -1e30), r"numbers up to 1e\+30"),
}


@every_hasher
@pytest.mark.parametrize(("bad", "message"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_bad_rows(make: Make, bad: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make().fit(bad)
    hasher = fitted(make)
    for call in (hasher.transform, hasher.project):
        with pytest.raises(InputError, match=message):
            call(bad)


@every_hasher
def test_objects_that_are_no_numbers(make: Make) -> None:
    with pytest.raises(TypeError, match="number"):  # as scikit-learn wants it
        make().fit(np.full((50, 24), {}))


@every_hasher
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("last", [1712, 3000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_row_that_is_not_finite_is_named(
    make: Make, bad: float, last: int, dtype: Any
) -> None:
    X = mixture(dtype=dtype).copy()
    X[1711:last, 3] = X[2900, 0] = X[1711, 7] = bad
    word = "NaN" if np.isnan(bad) else "infinity"
    message = f"^X must be finite, got {word} in row 1711, column 3$"
    with pytest.raises(InputError, match=message):
        make().fit(X)
    hasher = fitted(make, dtype)
    for call in (hasher.transform, hasher.project):
        with pytest.raises(InputError, match=message):
            call(X)


@every_hasher
@pytest.mark.parametrize("d", [1, 23, 25, 100])
def test_another_number_of_features(make: Make, d: int) -> None:
    hasher = fitted(make)
    for call in (hasher.transform, hasher.project):
        with pytest.raises(InputError, match=f"X has {d} features, .* expecting 24 features"):
            call(np.zeros((5, d)))


@every_hasher
def test_unfitted(make: Make) -> None:
    hasher = make()
    for call in (hasher.transform, hasher.project):
        with pytest.raises(NotFittedError):
            call(mixture())
    with pytest.raises(NotFittedError):
        hasher.get_feature_names_out()


# --- bad parameters -----------------------------------------------------------------------


@every_hasher
@pytest.mark.parametrize("n_bits", [0, -1, 4097, 1.5, 8.0, "8", True, None, [8], float("nan")])
def test_bad_n_bits(make: Make, n_bits: Any) -> None:
    with pytest.raises(InputError, match="n_bits must be .*from [12] to 4096, got"):
        make(n_bits).fit(mixture())


@pytest.mark.parametrize("n_bits", [np.int8(12), np.uint64(12), np.int64(12)])
@every_hasher
def test_numbers_of_numpy_are_numbers(make: Make, n_bits: Any) -> None:
    assert learnt(make(n_bits).fit(mixture())) == learnt(fitted(make))


ALL = tuple(kind for name, kind in HASHERS.items() if "hasher" not in parameters_of(name))
BAD_PARAMETERS: list[tuple[tuple[type[Hasher], ...], str, list[Any], str]] = [
    (ALL, "verbose", [-1, 1.5, "yes", None], "verbose must be"),
    (
        tuple(kind for kind in ALL if kind.__name__ not in WITHOUT_CHANCE),
        "random_state",
        ["seed", -1, 1.5, np.random.default_rng(0)],
        "random_state cannot be used",
    ),
    ((DSH,), "alpha", [0, -1, np.nan, np.inf, "2", None, True], "alpha must be"),
    ((DSH,), "alpha", [1e9, 1e308], "groups need at least"),
    ((DSH,), "p", [0, -1, 2.0, None, True], "p must be"),
    ((DSH,), "r", [0, -1, 2.0, None, True], "r must be"),
    ((DSH,), "entropy", ["row", None, 1], "entropy must be 'centers' or 'rows', got"),
    ((DSH,), "select", ["", None, 1], "select must be 'entropy' or 'contrast', got"),
    ((DSH,), "init", ["k-means++", ""], "init must be 'random', got"),
    ((DSH,), "init", [None, 3, np.zeros(24)], "init must have 2 dimensions"),
    ((DSH,), "init", [np.zeros((5, 23))], "init has 23 features but X has 24"),
    ((DSH,), "init", [np.full((5, 24), np.nan)], "init must be finite, got NaN in row 0"),
    ((DSH,), "init", [np.zeros((1, 24))], "init must have at least 2 rows, got 1"),
    ((KLSH,), "n_landmarks", [0, 1, 2.5, None], "n_landmarks must be"),
    ((KLSH,), "n_subset", [0, 300, 2.5, None], "n_subset must be .*from 1 to 299"),
    ((KLSH,), "bandwidth", [0, -1, np.nan, None], "bandwidth must be"),
    ((SIKH,), "gamma", [0, -1, np.nan, "auto"], "gamma must be"),
    ((AGH,), "n_layers", [0, 3, 1.0, None], "n_layers must be .*from 1 to 2"),
    ((AGH,), "n_anchors", [0, 1, 2.5, None], "n_anchors must be"),
    ((AGH,), "n_nearest", [0, 1, 301, None], "n_nearest must be .*from 2 to 300"),
    ((AGH,), "n_bits", [7, 11, 4095], "two layers need an even n_bits, got"),
    ((AGH,), "n_bits", [1], "n_bits must be from 2"),
    ((ITQ,), "n_iter", [-1, 2.5, None], "n_iter must be"),
    ((PCAH,), "n_bits", [25], "n_bits must be from 1 to 24 for 24 feature.*got 25"),
]


@pytest.mark.parametrize(
    ("kind", "option", "value", "message"),
    [
        pytest.param(kind, option, value, message, id=f"{kind.__name__}-{option}-{number}")
        for kinds, option, values, message in BAD_PARAMETERS
        for kind in kinds
        for number, value in enumerate(values)
    ],
)
def test_bad_parameters(kind: type[Hasher], option: str, value: Any, message: str) -> None:
    hasher = kind().set_params(n_bits=8).set_params(**{option: value})
    with pytest.raises(InputError, match=message):
        hasher.fit(mixture())


# --- few rows, few values -----------------------------------------------------------------


@every_hasher
def test_one_row_is_too_few_to_learn_from(make: Make) -> None:
    with pytest.raises(InputError, match="at least 2 rows, got n_samples = 1"):
        make().fit(mixture()[:1])


@pytest.mark.parametrize(
    ("hasher", "message"),
    [
        (DSH(8, alpha=2), "16 groups need at least 16 rows.*got n_samples = 15"),
        (KLSH(8, n_landmarks=16, n_subset=3), "16 landmarks need at least 16 .* n_samples = 15"),
        (AGH(8, n_anchors=16), "16 anchors need at least 16 rows.*got n_samples = 15"),
    ],
)
def test_fewer_rows_than_groups(hasher: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        hasher.fit(mixture()[:15])
    hasher.fit(mixture()[:16])


@pytest.mark.parametrize("make", [LSH, SIKH, SpH, ITQ, lambda n: PCAH(1), lambda n: DSH(1)])
def test_two_rows_are_enough_for_some(make: Any) -> None:
    X = np.array([[0.0, 1.0, 2.0], [2.0, 0.0, 5.0]])
    assert make(8).fit(X).transform(X).shape == (2, 1)


@every_hasher
@pytest.mark.parametrize("value", [0, 1, -3.7, 1e6, 1e-30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_rows_are_refused(make: Make, value: float, dtype: Any) -> None:
    with pytest.raises(InputError, match="all rows are equal|only 1 different value"):
        make().fit(np.full((300, 24), value, dtype=dtype))


@every_hasher
def test_one_feature(make: Make, request: pytest.FixtureRequest) -> None:
    X = np.random.default_rng(0).standard_normal((2000, 1))
    if "PCAH" in request.node.callspec.id:
        with pytest.raises(InputError, match="from 1 to 1 for 1 feature"):
            make().fit(X)
        hasher = make(1).fit(X)
        np.testing.assert_array_equal(bits_of(hasher, X), X[:, :1] - X.mean() >= 0)
        return
    bits = bits_of(make().fit(X), X)
    n_codes = len(np.unique(bits, axis=0))
    if isinstance(make(), (LSH, ITQ)):
        assert n_codes == 2, "all planes go through the mean"
    assert n_codes > isinstance(make(), (DSH, KLSH, SIKH, SpH, AGH)) + 1
    # Along a line, a wave or a plane changes bits at some places only: neighbours agree.
    changes = (np.diff(bits[X[:, 0].argsort()].astype(int), axis=0) != 0).sum(axis=0)
    assert changes.max() < 100


@pytest.mark.parametrize("make", [MAKERS["ITQ"], MAKERS["SpH"], MAKERS["LSH"], MAKERS["SIKH"]])
@pytest.mark.parametrize("n_bits", [25, 48, 100])
def test_more_bits_than_features(make: Make, n_bits: int) -> None:
    X = np.random.default_rng(0).standard_normal((3000, 24))
    bits = bits_of(make(n_bits).fit(X), X)
    assert bits.shape == (3000, n_bits)
    assert len(np.unique(bits, axis=1).T) == n_bits, "no two bits are the same"


@pytest.mark.parametrize("side", [2, 3])
def test_too_few_candidates_on_a_grid(side: int) -> None:
    X = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
    X = np.repeat(X, 60, axis=0)
    with pytest.raises(InputError) as error:
        DSH(64, alpha=1.5, r=2, random_state=0).fit(X)
    found = re.fullmatch(
        r"(\d+) groups have (\d+) candidate planes, fewer than n_bits = 64: "
        r"raise alpha \(1\.5\) for more groups, or r \(2\) for more planes between them",
        str(error.value),
    )
    assert found
    groups, candidates = map(int, found.groups())
    assert groups == side**2
    assert groups - 1 <= candidates <= 2 * groups


# --- equal rows ---------------------------------------------------------------------------


def repeated(n_distinct: int, dtype: Any, n: int = 2049) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows of which many are equal, and which value each one has."""
    rng = np.random.default_rng(n_distinct)
    values = rng.standard_normal((n_distinct, 24)).astype(dtype)
    which = rng.integers(0, n_distinct, n)
    which[:n_distinct] = which[-n_distinct:] = np.arange(n_distinct)
    return values[which], which


def assert_equal_rows_get_equal_codes(hasher: Hasher, X: NDArray[Any], which: Any) -> None:
    codes = hasher.transform(X)
    first = np.array([np.flatnonzero(which == value)[0] for value in range(which.max() + 1)])
    np.testing.assert_array_equal(codes, codes[first][which])
    for at in (0, 1, len(X) // 2, len(X) - 1):  # alone, and in blocks of other sizes
        for stop in (at + 1, at + 2, at + 3, at + 7):
            np.testing.assert_array_equal(hasher.transform(X[at:stop]), codes[at:stop])


@every_hasher
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("n_distinct", "dtype"),
    [(2, np.float32), (3, np.float64), (17, np.float32), (50, np.float64), (400, np.float32)],
)
def test_equal_rows_get_equal_codes(make: Make, n_distinct: int, dtype: Any) -> None:
    """The last block has one row, so that matrices become vectors there."""
    X, which = repeated(n_distinct, dtype)
    try:
        hasher = make().fit(X)
    except InputError as error:
        clear = "candidate planes|useful eigenvectors|different value|give gamma"
        assert re.search(clear, str(error))  # noqa: PT017
        assert n_distinct < 20
        return
    assert_equal_rows_get_equal_codes(hasher, X, which)
    if n_distinct > 3:
        assert len(np.unique(hasher.transform(X), axis=0)) > n_distinct // 4


@every_hasher
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_row_of_many_is_different(make: Make, dtype: Any) -> None:
    value = mixture(dtype=dtype)[0]
    X = np.repeat(value[np.newaxis], 2049, axis=0)
    X[1000] += np.linspace(-1, 1, 24, dtype=dtype)
    which = (np.arange(2049) == 1000).astype(int)
    try:
        hasher = make().fit(X)
    except InputError as error:
        clear = "candidate planes|useful eigenv|give gamma|all rows are equal|raise n_landmarks"
        assert re.search(clear, str(error))  # noqa: PT017
        return
    assert_equal_rows_get_equal_codes(hasher, X, which)


@every_hasher
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_alone_has_the_code_it_has_among_others(make: Make, dtype: Any) -> None:
    """Rows lie in three dimensions of 24: most principal planes hold all of them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3)) @ rng.standard_normal((3, 24)) + rng.standard_normal(24)
    X = X.astype(dtype)
    hasher = make().fit(X)
    alone = np.concatenate([hasher.transform(X[at : at + 1]) for at in range(100)])
    np.testing.assert_array_equal(alone, hasher.transform(X)[:100])
    alone = np.concatenate([hasher.project(X[at : at + 1]) for at in range(100)])
    np.testing.assert_array_equal(alone >= 0, hasher.project(X)[:100] >= 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dsh_two_values_need_one_plane(dtype: Any) -> None:
    X, which = repeated(2, dtype)
    for alpha in (1.5, 2, 20):
        bits = bits_of(DSH(1, alpha=alpha, random_state=0).fit(X), X)
        np.testing.assert_array_equal(bits[:, 0] ^ bits[0, 0], which != which[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_distinct", [2, 3, 5])
def test_sikh_says_where_neighbours_tell_nothing(n_distinct: int, dtype: Any) -> None:
    X, which = repeated(n_distinct, dtype)
    with pytest.raises(InputError, match="give gamma"):
        SIKH(12, random_state=0).fit(X)
    assert_equal_rows_get_equal_codes(SIKH(12, gamma=1, random_state=0).fit(X), X, which)


def test_sikh_width_of_dense_rows() -> None:
    """The 50th neighbour on a line of 20,000 float32 numbers is 25 steps away."""
    X = np.linspace(0, 1, 20_000, dtype=np.float32)[:, np.newaxis]
    gamma = SIKH(8, random_state=0).fit(X).gamma_
    np.testing.assert_allclose(gamma**-0.5, 25 / 20_000, rtol=0.02)


# --- large, small and far -----------------------------------------------------------------


@every_hasher
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (np.float32, 1e-40),
        (np.float32, 1e-30),
        (np.float32, 1e-12),
        (np.float32, 1e12),
        (np.float64, 1e-100),
        (np.float64, 1e-30),
        (np.float64, 1e12),
    ],
)
def test_the_scale_of_rows_does_not_matter(make: Make, dtype: Any, scale: float) -> None:
    X = (mixture(1000, 24) * scale).astype(dtype)
    back = X.astype(np.float64) / scale
    expected = make().fit(back)
    found = make().fit(X)
    if dtype == np.float64 or scale < 1e-20:  # those are computed in float64
        wrong = bits_of(found, X) != bits_of(expected, back)
        margins = np.abs(expected.project(back))
        assert not (wrong & (margins > 1e-4 * margins.mean(axis=0))).any()
    else:
        assert bits_of(found, X).mean() == pytest.approx(bits_of(expected, back).mean(), abs=0.05)
    np.testing.assert_array_equal(found.project(X) >= 0, bits_of(found, X))
    assert np.isfinite(found.project(X)).all()


@every_hasher
@pytest.mark.parametrize("scale", [1e-300, 1e-170])
def test_rows_whose_squares_vanish_are_refused(make: Make, scale: float) -> None:
    with pytest.raises(InputError, match="scale them up"):
        make().fit(mixture() * scale)


@every_hasher
@pytest.mark.parametrize("offset", [1e3, 1e6, -1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_far_from_zero(
    make: Make, offset: float, dtype: Any, request: pytest.FixtureRequest
) -> None:
    X, options = (mixture() + offset).astype(dtype), {}
    if "KLSH" in request.node.callspec.id:  # its kernel is as wide as rows are long
        if abs(offset) == 1e6:
            with pytest.raises(InputError, match="lower bandwidth"):
                make().fit(X)
        width = 0.3 * np.linalg.norm(mixture(), axis=1).mean() / np.linalg.norm(X, axis=1).mean()
        options = {"bandwidth": width}
    near = X.astype(np.float64) - offset
    found, expected = make(**options).fit(X), make().fit(near)
    margins = expected.project(near)
    assert_same_bits(bits_of(found, X), bits_of(expected, near), margins, 1e-3)
    # Queries of another type, and one alone, are hashed as the rows that were learnt from.
    np.testing.assert_array_equal(found.transform(X[:1]), found.transform(X)[:1])
    wide = X.astype(np.float64)
    assert_same_bits(bits_of(found, wide), bits_of(found, X), margins, 1e-3)
    if dtype == np.float32:
        from_wide = make(**options).fit(wide)
        assert_same_bits(bits_of(from_wide, X), bits_of(expected, near), margins, 1e-3)


@pytest.mark.parametrize(
    "name", sorted(MAKERS.keys() - {"KLSH"})
)  # whose kernel is as wide as rows long
def test_a_large_constant_feature(name: str) -> None:
    make = MAKERS[name]
    X = np.column_stack([mixture(dtype=np.float32), np.full(3000, 1e6, np.float32)])
    found = bits_of(make().fit(X), X)
    expected = make().fit(X.astype(np.float64))
    margins = expected.project(X.astype(np.float64))
    assert_same_bits(found, bits_of(expected, X.astype(np.float64)), margins, 1e-3)

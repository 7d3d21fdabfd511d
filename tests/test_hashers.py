"""The one contract: what every hasher does, whatever its method."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hasher_cases import (
    MAKERS,
    OPTIONS,
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
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from densehash import hashers, progress
from densehash.bits import bytes_for, check_padding, pack
from densehash.errors import InputError
from densehash.hashers import AGH, Hasher, LinearHasher
from densehash.hashers.registry import HASHERS
from densehash.rows import local as rows


def test_every_hasher_is_in_the_registry() -> None:
    """Others could be saved, and not be opened again."""
    for module in pkgutil.iter_modules(hashers.__path__, "densehash.hashers."):
        importlib.import_module(module.name)
    every: list[Any] = [Hasher]
    for kind in every:  # which grows
        every += kind.__subclasses__()
    ours = {kind for kind in every if kind.__module__.startswith("densehash.")}
    assert ours - {Hasher, LinearHasher} == set(HASHERS.values())
    assert {"Hasher", "LinearHasher", "load_hasher", *HASHERS} == set(hashers.__all__)


# --- as scikit-learn has it ---------------------------------------------------------------


# Its checks have few rows of few features.
FEW: dict[str, dict[str, Any]] = {
    "KLSH": {"n_landmarks": 5, "n_subset": 2},
    "PCAH": {"n_bits": 1},
    "AGH": {"n_bits": 2, "n_anchors": 5},
    "AGH-one-layer": {"n_bits": 2, "n_anchors": 5},
}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [make(**{"n_bits": 4, **FEW.get(name, {})}) for name, make in MAKERS.items()]
)
def test_scikit_learn_takes_it_for_its_own(estimator: Any, check: Any) -> None:
    check(estimator)


@every_hasher
def test_clone_and_pickle(make: Make) -> None:
    X, hasher = mixture(), make().fit(mixture())
    copy = clone(hasher)
    assert not learnt(copy)
    assert str(copy.get_params()) == str(hasher.get_params())
    assert learnt(copy.fit(X)) == learnt(hasher)
    thawed = pickle.loads(pickle.dumps(hasher))
    assert learnt(thawed) == learnt(hasher)
    np.testing.assert_array_equal(thawed.transform(X), hasher.transform(X))


@every_hasher
def test_in_a_pipeline(make: Make) -> None:
    scaled = StandardScaler().fit_transform(mixture())
    found = make_pipeline(StandardScaler(), make()).fit_transform(mixture())
    np.testing.assert_array_equal(found, make().fit(scaled).transform(scaled))


@every_hasher
def test_fit_transform_is_fit_and_then_transform(make: Make) -> None:
    found = make().fit_transform(mixture())
    np.testing.assert_array_equal(found, fitted(make).transform(mixture()))


@every_hasher
@pytest.mark.parametrize("frames", ["pandas", "polars"])
def test_set_output(make: Make, frames: str) -> None:
    module = pytest.importorskip(frames)
    hasher = make().fit(mixture())
    expected = hasher.transform(mixture())
    frame = hasher.set_output(transform=frames).transform(mixture())
    assert isinstance(frame, module.DataFrame)
    assert list(frame.columns) == list(hasher.get_feature_names_out())
    np.testing.assert_array_equal(frame.to_numpy(), expected)
    assert frame.to_numpy().dtype == np.uint8


@every_hasher
def test_feature_names(make: Make) -> None:
    pandas = pytest.importorskip("pandas")
    hasher = make(20).fit(mixture())
    prefix = type(hasher).__name__.lower()
    assert hasher.get_feature_names_out().tolist() == [f"{prefix}{byte}" for byte in range(3)]

    names = [f"x{feature}" for feature in range(24)]
    frame = pandas.DataFrame(mixture(), columns=names)
    named = make().fit(frame)
    assert named.feature_names_in_.tolist() == names
    np.testing.assert_array_equal(named.transform(frame), make().fit_transform(mixture()))
    with pytest.raises(ValueError, match="feature names"):
        named.transform(frame[names[::-1]])


# --- codes and margins --------------------------------------------------------------------


@every_hasher
@pytest.mark.parametrize("n_bits", [2, 6, 8, 10, 16, 24])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_bit_is_the_sign_of_a_margin(make: Make, n_bits: int, dtype: Any) -> None:
    X = mixture(dtype=dtype)
    hasher = make(n_bits).fit(X)
    codes, margins = hasher.transform(X), hasher.project(X)
    assert codes.dtype == np.uint8
    assert codes.shape == (len(X), bytes_for(n_bits))
    assert margins.dtype == np.float32
    assert margins.shape == (len(X), n_bits)
    np.testing.assert_array_equal(codes, pack(margins >= 0))
    check_padding(codes, n_bits)
    assert (np.ptp(margins, axis=0) > 0).all(), "every bit says something"


@pytest.mark.parametrize("n_bits", [1, 7, 9])
@pytest.mark.parametrize("make", [m for n, m in MAKERS.items() if n != "AGH"])
def test_odd_numbers_of_bits(make: Make, n_bits: int) -> None:
    hasher = make(n_bits).fit(mixture())
    codes = hasher.transform(mixture())
    assert codes.shape == (3000, bytes_for(n_bits))
    check_padding(codes, n_bits)


@pytest.mark.parametrize("name", ["LSH", "KLSH", "SIKH", "SpH", "ITQ"])
def test_the_longest_codes(name: str) -> None:
    hasher = MAKERS[name](4096).fit(mixture())
    assert hasher.transform(mixture()[:10]).shape == (10, 512)


@every_hasher
def test_rows_alone_have_the_codes_they_have_together(make: Make) -> None:
    X = mixture()
    hasher = make().fit(X)
    codes = hasher.transform(X)
    for some in (slice(0, 1), slice(7, 8), slice(1, 3), slice(2990, None)):
        np.testing.assert_array_equal(hasher.transform(X[some]), codes[some])


@pytest.mark.parametrize("name", [n for n, m in MAKERS.items() if isinstance(m(), LinearHasher)])
def test_linear_hashers_have_planes(name: str) -> None:
    X, hasher = mixture(), MAKERS[name]().fit(mixture())
    assert hasher.planes_.shape == (12, 24)
    assert hasher.thresholds_.shape == (12,)
    assert hasher.planes_.dtype == hasher.thresholds_.dtype == np.float64
    expected = X @ hasher.planes_.T - hasher.thresholds_
    np.testing.assert_allclose(hasher.project(X), expected, rtol=1e-5, atol=1e-6)


@every_hasher
@pytest.mark.usefixtures("small_blocks")
def test_codes_go_where_they_are_wanted(make: Make, tmp_path: Path) -> None:
    X, hasher = mixture(), fitted(make)
    expected = hasher.transform(X)
    wide = np.full((3000, 5), 255, np.uint8)
    for out in (
        np.full((3000, 2), 255, np.uint8),
        np.full((3000, 2), 255, np.uint8, order="F"),
        np.lib.format.open_memmap(tmp_path / "c.npy", "w+", np.uint8, (3000, 2)),
        wide[:, 1:3],
    ):
        assert hasher.transform(X, out=out) is out
        np.testing.assert_array_equal(out, expected)
    assert (wide[:, [0, 3, 4]] == 255).all()
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy", mmap_mode="r"), expected)


READ_ONLY = np.zeros((3000, 2), np.uint8)
READ_ONLY.flags.writeable = False


@every_hasher
@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((2999, 2), np.uint8), r"out must be .*\(3000, 2\), got .*\(2999, 2\)"),
        (np.zeros((3000, 3), np.uint8), r"out must be .*\(3000, 2\), got .*\(3000, 3\)"),
        (np.zeros(6000, np.uint8), r"out must be .*\(3000, 2\), got .*\(6000,\)"),
        (np.zeros((3000, 2), np.int8), "out must be a uint8 array .*, got dtype int8"),
        (np.zeros((3000, 2)), "out must be a uint8 array .*, got dtype float64"),
        ([[0, 0]] * 3000, "out must be a uint8 array .*, got a list"),
        (READ_ONLY, "out must be writeable, got a read-only array"),
    ],
)
def test_codes_do_not_go_everywhere(make: Make, out: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted(make).transform(mixture(), out=out)


# --- the same rows in other forms ---------------------------------------------------------


@every_hasher
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_order_and_memory_maps_change_nothing(
    make: Make, dtype: Any, tmp_path: Path
) -> None:
    X = mixture(1000, 24, dtype)
    expected = make().fit(X)
    codes = expected.transform(X)
    np.save(tmp_path / "X.npy", X)
    for same in (
        np.asfortranarray(X),
        np.repeat(X, 2, axis=1)[:, ::2],
        X[::-1].copy()[::-1],
        X.astype(X.dtype.newbyteorder()),
        np.load(tmp_path / "X.npy", mmap_mode="r"),
        *([X.tolist(), X.astype(object)] if dtype == np.float64 else []),
    ):
        hasher = make().fit(same)
        assert learnt(hasher) == learnt(expected)
        np.testing.assert_array_equal(hasher.transform(same), codes)


TYPES = [np.uint8, np.int8, np.float16, np.float32, np.float64, np.int64, np.uint64, np.longdouble]


@every_hasher
@pytest.mark.parametrize("dtype", TYPES)
def test_number_types_change_bits_at_planes_only(make: Make, dtype: Any) -> None:
    whole = np.clip(10 * mixture(1000, 24) + 60, 0, 127).round()
    hasher = make().fit(whole)
    expected, margins = bits_of(hasher, whole), hasher.project(whole)
    assert_same_bits(bits_of(hasher, whole.astype(dtype)), expected, margins, 1e-3)
    # And it can be learnt from, with the same bytes as from floats of the same precision.
    float_type = np.float32 if np.dtype(dtype).itemsize <= 4 else np.float64
    learnt_from_floats = make().fit(whole.astype(float_type))
    assert learnt(make().fit(whole.astype(dtype))) == learnt(learnt_from_floats)


@every_hasher
def test_bools(make: Make) -> None:
    X = mixture() > 0
    assert learnt(make().fit(X)) == learnt(make().fit(X.astype(np.float32)))


# --- threads, blocks, seeds ---------------------------------------------------------------


@every_hasher
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_number_of_threads_changes_no_byte(make: Make, dtype: Any) -> None:
    X = mixture(30_000, 40, dtype)
    found = []
    for threads in (1, 3):
        with threadpool_limits(threads):
            hasher = make(32).fit(X)
            codes, margins = hasher.transform(X), hasher.project(X)
            found.append((learnt(hasher), codes.tobytes(), margins.tobytes()))
    assert found[0] == found[1]


@every_hasher
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_size_of_blocks_changes_bits_at_planes_only(
    make: Make, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = mixture(dtype=dtype)
    hasher = fitted(make, dtype)
    expected, margins = bits_of(hasher, X), hasher.project(X)
    for setting, value, n in [
        ("_MOST_BLOCK_ROWS", 1000, 3000),
        ("_MOST_BLOCK_ROWS", 77, 3000),
        ("_BLOCK_NUMBERS", 3000, 3000),
        ("_MOST_BLOCK_ROWS", 1, 200),
    ]:
        monkeypatch.setattr(rows, setting, value)
        assert_same_bits(bits_of(hasher, X[:n]), expected[:n], margins[:n], 1e-4)
    monkeypatch.undo()
    if dtype == np.float64:  # from float32, k-means may send a row midway to another group
        monkeypatch.setattr(rows, "_MOST_BLOCK_ROWS", 77)
        assert_same_bits(bits_of(make().fit(X), X), expected, margins, 1e-4)


@every_hasher
def test_seeds(make: Make, request: pytest.FixtureRequest) -> None:
    X, name = mixture(), request.node.callspec.id
    first, again, other = (bits_of(make(seed=seed).fit(X), X) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any() == (name not in WITHOUT_CHANCE)
    states = [np.random.RandomState(1) for _ in range(2)]
    if name not in WITHOUT_CHANCE:
        fits = [make(seed=state).fit(X) for state in (*states, states[0])]
        assert learnt(fits[0]) == learnt(fits[1])
        assert learnt(fits[0]) != learnt(fits[2])


def test_no_hasher_touches_the_global_generator() -> None:
    np.random.seed(5)  # noqa: NPY002  what must not change
    expected = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    for make in MAKERS.values():
        make().fit(mixture())
    assert np.random.get_state()[1].tolist() == expected  # type: ignore[index]  # noqa: NPY002


# --- fits and their options ---------------------------------------------------------------


@every_hasher
def test_a_second_fit_forgets_the_first(make: Make) -> None:
    pandas = pytest.importorskip("pandas")
    hasher = make().fit(pandas.DataFrame(mixture()).add_prefix("x"))
    other = mixture(2000, 15)
    assert learnt(hasher.fit(other)) == learnt(make().fit(other))
    assert not hasattr(hasher, "feature_names_in_")
    assert hasher.n_features_in_ == 15
    if isinstance(hasher, AGH) and hasher.n_layers == 2:
        hasher.set_params(n_layers=1).fit(other)
        assert not hasattr(hasher, "second_thresholds_")


BAD_LATE = np.array(mixture())
BAD_LATE[2500, 3] = np.nan


@every_hasher
@pytest.mark.parametrize("bad", [BAD_LATE, mixture()[:1], np.ones((3000, 24)), "text", None])
def test_a_failed_fit_leaves_the_hasher_as_it_was(make: Make, bad: Any) -> None:
    hasher = make().fit(mixture())
    before, attributes = learnt(hasher), dict(vars(hasher))
    with pytest.raises(ValueError):  # noqa: PT011
        hasher.fit(bad)
    assert vars(hasher).keys() == attributes.keys()
    assert all(vars(hasher)[name] is value for name, value in attributes.items())
    assert learnt(hasher) == before
    np.testing.assert_array_equal(hasher.transform(mixture()), fitted(make).transform(mixture()))
    unfitted = make()
    with pytest.raises(ValueError):  # noqa: PT011
        unfitted.fit(bad)
    assert vars(unfitted).keys() == vars(make()).keys()


@every_hasher
def test_an_interrupt_leaves_the_hasher_as_it_was(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasher = make().fit(mixture())
    before = learnt(hasher)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(rows.Rows, "map_reduce", interrupted)
    with pytest.raises(KeyboardInterrupt):
        hasher.fit(mixture())
    assert learnt(hasher) == before


@every_hasher
def test_a_fit_changes_no_parameter(make: Make) -> None:
    hasher = make()
    before = hasher.get_params(deep=False)
    hasher.fit(mixture())
    after = hasher.get_params(deep=False)
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)


EVERY_OPTION: list[tuple[str, str, Any]] = [
    *((name, "n_bits", 10) for name in HASHERS if "n_bits" in parameters_of(name)),
    *((name, "random_state", 7) for name in HASHERS if name not in WITHOUT_CHANCE),
    *((name, *option) for name, options in OPTIONS.items() for option in options.items()),
    ("Refined", "hasher__n_bits", 10),
]


@pytest.mark.parametrize("name", HASHERS)
def test_every_option_is_in_the_table(name: str) -> None:
    tried = {option for of, option, _ in EVERY_OPTION if of == name and "__" not in option}
    assert tried | {"verbose"} == parameters_of(name), "see OPTIONS in hasher_cases.py"


@pytest.mark.parametrize(("name", "option", "value"), EVERY_OPTION)
def test_every_option_changes_the_codes(name: str, option: str, value: Any) -> None:
    X, hasher = mixture(), MAKERS[name]().fit(mixture())
    before = hasher.transform(X)
    hasher.set_params(**{option: value})
    # Not before the next fit.
    np.testing.assert_array_equal(hasher.transform(X), before)
    assert hasher.project(X[:5]).shape == (5, 12)
    assert hasher.fit(X).transform(X).tobytes() != before.tobytes()
    survivor = pickle.loads(pickle.dumps(clone(hasher)))
    np.testing.assert_equal(str(survivor.get_params()[option]), str(value))
    assert learnt(survivor.fit(X)) == learnt(hasher)


@every_hasher
def test_verbose_shows_a_bar(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", -1)
    quiet = make().fit(mixture())
    quiet.transform(mixture())
    assert capsys.readouterr() == ("", "")
    loud = make().set_params(verbose=1).fit(mixture())
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "100%" in printed.err
    assert learnt(loud) == learnt(quiet)

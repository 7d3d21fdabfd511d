"""Hashers as plain data: what is rebuilt hashes the same, and nothing else can be built."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hasher_cases import (
    MAKERS,
    OPTIONS,
    Make,
    every_hasher,
    fitted,
    learnt,
    mixture,
    parameters_of,
    small,
)
from numpy.random import RandomState

from densehash.errors import DensehashError, FileError, InputError
from densehash.hashers import DSH, ITQ, KLSH, LSH, PCAH, SIKH, Hasher, Refined, SpH
from densehash.hashers.registry import HASHERS, NAMES, hasher_named
from densehash.hashers.state import HasherState, hasher_of, state_of

# A value other than the default, for every parameter there is.
OTHERS: list[Hasher] = [
    make(10, seed=3, **OPTIONS.get(name, {}), verbose=1)
    for name, make in MAKERS.items()
    if name in HASHERS and "hasher" not in parameters_of(name)
]
OTHERS += [
    KLSH(9, n_landmarks=30, n_subset=5, verbose=True),
    SpH(40),
    DSH(9, alpha=np.float64(2.5), p=2, r=4, entropy="rows", select="contrast", random_state=3),
    DSH(9, init=mixture()[:20].astype(np.float16).tolist()),
    ITQ(30, n_iter=3, random_state=RandomState(3)),
    Refined(PCAH(9), n_steps=4, near=0.1, n_rows=300, random_state=RandomState(1), verbose=1),
    Refined(Refined(DSH(9, init=mixture()[:20]), n_steps=2, n_rows=300), n_steps=2, n_rows=300),
]


def through_json(hasher: Hasher) -> HasherState:
    description, arrays = state_of(hasher)
    return HasherState(json.loads(json.dumps(description, allow_nan=False)), arrays)


def assert_same(found: Hasher, expected: Hasher) -> None:
    assert type(found) is type(expected)
    assert learnt(found) == learnt(expected)
    for dtype in (np.float32, np.float64):
        X = mixture(dtype=dtype)
        for rows in (X, X[:1], 1e3 * X[:7]):
            assert found.project(rows).tobytes() == expected.project(rows).tobytes()
            assert found.transform(rows).tobytes() == expected.transform(rows).tobytes()


@every_hasher
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_rebuilt_hasher_is_the_same(make: Make, dtype: Any) -> None:
    hasher = fitted(make, dtype)
    again = hasher_of(*through_json(hasher))
    assert_same(again, hasher)
    assert repr(again) == repr(hasher)
    assert_same(hasher_of(*through_json(again)), hasher)


@pytest.mark.parametrize("hasher", OTHERS, ids=lambda hasher: type(hasher).__name__)
def test_parameters_stay(hasher: Hasher) -> None:
    hasher.fit(mixture())
    again = hasher_of(*through_json(hasher))
    assert_same(again, hasher)
    before, after = hasher.get_params(deep=False), again.get_params(deep=False)
    assert list(before) == list(after)
    for name, value in before.items():
        if isinstance(value, RandomState):
            assert after[name] is None
        elif isinstance(value, Hasher):
            assert type(after[name]) is type(value)
        else:
            np.testing.assert_array_equal(after[name], value)


def test_every_parameter_and_every_attribute_was_tried() -> None:
    for name, kind in HASHERS.items():
        tried = [hasher for hasher in OTHERS if type(hasher) is kind]
        default = Refined(LSH()) if kind is Refined else kind()
        for parameter, value in default.get_params(deep=False).items():
            others = [hasher.get_params(deep=False)[parameter] for hasher in tried]
            assert any(np.ndim(other) > 0 or other != value for other in others), (name, parameter)


def test_rows_far_from_zero_stay_in_float64() -> None:
    X = mixture() + 1e9
    hasher = LSH(12, random_state=0).fit(X)
    assert hasher.uses_float64_
    again = hasher_of(*through_json(hasher))
    assert again.project(X).tobytes() == hasher.project(X).tobytes()


def test_names_of_features_stay() -> None:
    pandas = pytest.importorskip("pandas", reason="a table with names of columns")
    frame = pandas.DataFrame(mixture()[:, :3], columns=["height", "width", "ä"])
    for hasher in (LSH(4), Refined(LSH(4), n_steps=2, n_rows=100)):
        again = hasher_of(*through_json(hasher.fit(frame)))
        assert list(again.feature_names_in_) == ["height", "width", "ä"]
        assert again.transform(frame).tobytes() == hasher.transform(frame).tobytes()
        with pytest.raises(ValueError, match="feature names"):
            again.transform(frame.rename(columns={"ä": "a"}))


def test_a_rebuilt_hasher_has_arrays_of_its_own() -> None:
    state = state_of(fitted(MAKERS["DSH"]))
    again = hasher_of(*state)
    assert isinstance(again, DSH)
    assert not np.shares_memory(again.planes_, state.arrays["planes_"])
    assert again.planes_.flags.writeable


def test_a_rebuilt_hasher_can_learn_again() -> None:
    again = hasher_of(*through_json(fitted(MAKERS["Refined"])))
    afresh = MAKERS["Refined"]()  # not one that another test may have fitted in smaller blocks
    assert learnt(again.fit(mixture())) == learnt(afresh.fit(mixture()))


def test_what_cannot_be_stored_is_said() -> None:
    class Mine(LSH):
        pass

    X = mixture()
    with pytest.raises(InputError, match="LSH has not learnt yet: call fit"):
        state_of(LSH())
    with pytest.raises(InputError, match="of the class .*Mine cannot be stored: a file names"):
        state_of(Mine(4).fit(X))
    with pytest.raises(InputError, match="Mine cannot be stored"):
        state_of(Refined(Mine(4), n_steps=1, n_rows=50).fit(X))
    broken = LSH(4).fit(X)
    broken.planes_ = broken.planes_[:, :-1]
    with pytest.raises(InputError, match="LSH cannot be stored: planes_ must be float64 of shape"):
        state_of(broken)
    broken.planes_ = np.array(["a"])
    with pytest.raises(InputError, match="planes_ cannot be stored: it is an array of <U1"):
        state_of(broken)
    broken = LSH(4).fit(X)
    broken.mean_ = {}  # type: ignore[assignment]
    with pytest.raises(InputError, match="LSH.mean_ cannot be stored: it is a dict"):
        state_of(broken)
    kernel = SIKH(4).fit(X)
    kernel.gamma_ = float("nan")
    with pytest.raises(InputError, match="SIKH.gamma_ must be finite to be stored, got nan"):
        state_of(kernel)


# --- attacks ------------------------------------------------------------------------------


def state(name: str = "DSH") -> tuple[dict[str, Any], dict[str, Any]]:
    """A right one, to be broken."""
    found = through_json(fitted(MAKERS[name]))
    return found.description, dict(found.arrays)


@every_hasher
def test_everything_that_is_missing_is_noticed(make: Make) -> None:
    description, arrays = through_json(fitted(make))
    for name in arrays:
        with pytest.raises(FileError):
            hasher_of(description, {key: value for key, value in arrays.items() if key != name})
    for part in ("parameters", "learnt"):
        for name in description[part]:
            less = {key: value for key, value in description[part].items() if key != name}
            with pytest.raises(FileError):
                hasher_of({**description, part: less}, arrays)
    for part in description:
        with pytest.raises(FileError, match="must be an object of class, learnt, parameters"):
            hasher_of({key: value for key, value in description.items() if key != part}, arrays)


@every_hasher
@pytest.mark.parametrize("value", [[], {}, "text", float("nan"), b"", 1j], ids=repr)
def test_every_value_of_a_wrong_type_is_noticed(make: Make, value: Any) -> None:
    description, arrays = through_json(fitted(make))
    for part in ("parameters", "learnt"):
        for name, right in description[part].items():
            if isinstance(right, str) and isinstance(value, str):
                continue  # what a text says matters to the next fit only
            with pytest.raises(FileError):
                hasher_of({**description, part: {**description[part], name: value}}, arrays)


@every_hasher
def test_every_array_of_a_wrong_type_or_shape_is_noticed(make: Make) -> None:
    description, arrays = through_json(fitted(make))
    for name, array in arrays.items():
        if name.rpartition(".")[2] in ("inertia_", "losses_"):  # of any length
            continue
        for wrong in (
            array.astype(np.float32),
            array[..., np.newaxis],
            array[0] if array.ndim > 1 else array[:0],
            np.concatenate([array, array]),
            array.astype(object),
            None,
        ):
            with pytest.raises(FileError):
                hasher_of(description, {**arrays, name: wrong})


def test_arrays_that_nobody_knows_are_refused() -> None:
    description, arrays = state()
    with pytest.raises(FileError, match="a hasher has unknown arrays: 'extra_'"):
        hasher_of(description, {**arrays, "extra_": np.zeros(1)})
    description, arrays = state("LSH")
    with pytest.raises(FileError, match="unknown arrays: 'init'"):
        hasher_of(description, {**arrays, "init": np.zeros((3, 24))})


def test_values_that_nobody_knows_are_refused() -> None:
    description, arrays = state()
    for part in ("parameters", "learnt"):
        with pytest.raises(FileError, match=f"{part} has an unknown '__class__'"):
            hasher_of({**description, part: {**description[part], "__class__": 1}}, arrays)
    with pytest.raises(FileError, match="must be an object of class, learnt, parameters"):
        hasher_of({**description, "module": "os"}, arrays)


@pytest.mark.parametrize("name", ["os.system", "Hasher", "LinearHasher", "dsh", "", None, 1, []])
def test_only_classes_of_the_registry_are_built(name: Any) -> None:
    description, arrays = state()
    with pytest.raises(FileError, match="class must be one of LSH, KLSH"):
        hasher_of({**description, "class": name}, arrays)


@pytest.mark.parametrize("name", sorted(set(HASHERS) - {"DSH"}))
def test_a_hasher_is_no_other(name: str) -> None:
    description, arrays = state()
    with pytest.raises(FileError):
        hasher_of({**description, "class": name}, arrays)


@pytest.mark.parametrize(
    ("hasher", "name", "value", "message"),
    [
        ("DSH", "n_bits_", 0, "n_bits_ must be an integer from 1 to 4096"),
        ("DSH", "n_bits_", 1 << 40, "n_bits_ must be"),
        ("DSH", "n_bits_", True, "n_bits_ must be"),
        ("DSH", "n_features_in_", -1, "n_features_in_ must be a positive integer"),
        ("LSH", "n_features_in_", 1 << 30, "must be float64 of shape"),
        ("DSH", "uses_float64_", 1, "uses_float64_ must be"),
        ("AGH", "n_nearest_", 41, "n_nearest_ must be an integer from 1 to 40"),
        ("AGH", "n_nearest_", 0, "n_nearest_ must be an integer from 1 to 40"),
        ("AGH", "n_nearest_", 1 << 40, "n_nearest_ must be an integer"),
        ("AGH", "sigma_", 0, "AGH cannot hash"),
        ("KLSH", "t_", 0.0, "KLSH cannot hash"),
    ],
)
def test_numbers_that_cannot_be(hasher: str, name: str, value: Any, message: str) -> None:
    description, arrays = state(hasher)
    with pytest.raises(FileError, match=message):
        hasher_of({**description, "learnt": {**description["learnt"], name: value}}, arrays)


def test_nonsense_in_arrays_is_noticed_at_once() -> None:
    description, arrays = state()
    arrays["thresholds_"] = np.full(12, np.nan)
    with pytest.raises(FileError, match="DSH cannot hash: .* no NaN"):
        hasher_of(description, arrays)
    for number in (-1, 12, 1 << 60):
        description, arrays = state("SpH")
        arrays["mode_directions_"] = np.full(12, number)
        with pytest.raises(FileError, match="mode_directions_ must be positions below 12"):
            hasher_of(description, arrays)
    description, arrays = state("AGH")
    del arrays["second_thresholds_"]
    with pytest.raises(FileError, match="AGH cannot hash"):
        hasher_of(description, arrays)


def test_only_linear_hashers_lie_in_refined() -> None:
    description, arrays = state("Refined")
    inner = {"class": "SpH", "parameters": {"n_bits": 12, "verbose": 0}}
    parameters = {**description["parameters"], "hasher": inner}
    with pytest.raises(FileError, match="parameters.hasher must be a linear hasher"):
        hasher_of({**description, "parameters": parameters}, arrays)


def test_hashers_do_not_nest_without_end() -> None:
    description, arrays = state("Refined")
    for _ in range(200):
        deeper = {"class": "Refined", "parameters": dict(description["parameters"])}
        description["parameters"]["hasher"] = deeper
    with pytest.raises(FileError, match="inside more than 8 others"):
        hasher_of(description, arrays)


@pytest.mark.parametrize("wrong", [None, [], 7, "DSH", {1: 2}, {"planes_": [1.0]}], ids=repr)
def test_other_things_are_no_state(wrong: Any) -> None:
    description, arrays = state()
    with pytest.raises(FileError):
        hasher_of(wrong, arrays)
    with pytest.raises(FileError):
        hasher_of(description, wrong)


def test_random_damage_gives_our_error_or_a_hasher() -> None:
    chance = random.Random(0)
    values: list[Any] = [None, True, -1, 0, 1, 7, 1 << 70, 0.5, "", "DSH", "x", [], [1], {}, [""]]
    built = 0
    for _ in range(1500):
        description, arrays = state(chance.choice(list(MAKERS)))
        for _ in range(chance.randint(1, 2)):  # a value, or a flip and often a cut
            if chance.random() < 0.5:
                damage(description, values, chance)
            else:
                name = chance.choice(list(arrays))
                array = arrays[name].copy()
                raw = array.view(np.uint8).reshape(-1)
                raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
                arrays[name] = array[: chance.randint(len(array) - 1, 3 * len(array))]
        try:
            hasher = hasher_of(description, arrays)
        except FileError:
            continue
        built += 1
        try:
            codes = hasher.transform(np.ones((3, hasher.n_features_in_)))
        except DensehashError:
            continue
        assert codes.shape == (3, (hasher.n_bits_ + 7) // 8)
    assert 0 < built < 1500


def damage(tree: Any, values: list[Any], chance: random.Random) -> None:
    """Put something else in a random place of nested dicts."""
    while True:
        name = chance.choice(list(tree))
        if not isinstance(tree[name], dict) or not tree[name] or chance.random() < 0.2:
            break
        tree = tree[name]
    if chance.random() < 0.3:
        tree[chance.choice([*tree, "more"])] = tree.pop(name)
    else:
        tree[name] = chance.choice(values)


# --- names --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_name_makes_a_hasher(name: str) -> None:
    for written in (name, name.upper(), f" {name.lower()} "):
        hasher = hasher_named(written, 6, random_state=5)
        assert type(hasher) is HASHERS[name.split("(", maxsplit=1)[0].split(" ", maxsplit=1)[0]]
        seeds = [v for k, v in hasher.get_params().items() if k.endswith("random_state")]
        assert seeds == [5] * len(seeds)
        assert state_of(hasher.set_params(**small(hasher)).fit(mixture())).description


def test_parameters_of_a_named_hasher() -> None:
    hasher = hasher_named("refined", 8, n_steps=5, hasher__alpha=2.0)
    assert isinstance(hasher, Refined)
    assert isinstance(hasher.hasher, DSH)
    assert (hasher.n_steps, hasher.hasher.alpha, hasher.hasher.n_bits) == (5, 2.0, 8)
    assert hasher_named("dsh contrast").get_params()["select"] == "contrast"
    with pytest.raises(InputError, match="PCAH has no parameter 'alpha'; its parameters are"):
        hasher_named("pcah", alpha=1)
    for wrong in ("dhs", "", "refined(sph)", 5, None):
        with pytest.raises(InputError, match="there is no hasher"):
            hasher_named(wrong)  # type: ignore[arg-type]

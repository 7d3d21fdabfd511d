"""An index and its model, changed side by side in ways nobody thought of; the disk may fail."""

from __future__ import annotations

import contextlib
import errno
import functools
import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from index_cases import (
    KINDS,
    N_BITS,
    D,
    Disk,
    build,
    check_hits,
    check_ranges,
    fast_folder,
    hasher,
    leftovers,
    model_of,
    no_fsync,
    rows,
)
from index_model import Model
from soak import SOAK
from where_cases import filters, truth

from densehash.errors import FileError, InputError
from densehash.index import Index

EXAMPLES = 21 if SOAK == 1 else 100 * SOAK
LEARN_AT = 7  # rows, where an index is made empty: most of those there can be

POOL = rows(9, seed=11)  # few, so that there are ties
QUERIES = np.concatenate([POOL[:2], rows(2, seed=12)])
INTS = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 2**40, 2**63 - 2]
STRINGS = ["", "a", "aa", "ä", "日本", "z", "z" * 30, "😀", "b", "c", "d", "e"]

PAYLOADS: list[dict[str, Any]] = [
    {
        "lang": (None, "en", "de", "en")[at % 4],
        "year": None if at == 5 else 2015 + at % 3,
        "tags": (None, [], ["a"], ["b", "a"], ["b"])[at % 5],
    }
    for at in range(11)
]

WHERE: dict[str, tuple[list[Any], bool]] = {
    "lang": (["en", "de", "x"], True),
    "year": ([2014, 2016, 2016.5], True),
    "tags": (["a", "b", "x"], False),
}

some_names = st.sets(st.integers(0, 11), max_size=5)
shifts = st.integers(0, 8)
faults = st.one_of(st.none(), st.none(), st.integers(1, 30))
questions: dict[str, Any] = {
    "k": st.sampled_from([1, 3, 14]),
    "how": st.sampled_from([None, "exact"]),
    "metric": st.sampled_from(["l2", "ip"]),
    "candidates": st.sampled_from([1, 4, 99]),
    "chosen": st.one_of(st.none(), some_names),
    "own": st.sampled_from([False, True, "names"]),
    "probes": st.sampled_from([1, 3, 12]),
    "radius": st.sampled_from([None, 0, 4, 9]),
    "where": st.one_of(st.none(), filters(WHERE)),
}


class Machine(RuleBasedStateMachine):
    """One index, in memory or opened; what it should say, and what its folder should hold."""

    kind: str
    id_type: str
    keep: Any
    has_payload: bool
    is_created: bool = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="densehash-", dir=fast_folder()))
        self.path = self.folder / "a.dh"
        names = INTS if self.id_type == "int64" else STRINGS
        self.names = names
        self.on_disk: Model | None = None
        if self.is_created:
            self.index, self.model = self.created()
            return
        X, payload = POOL[:4], self.beside(PAYLOADS[:4])
        self.index = build(self.kind, X, names[:4], keep_vectors=self.keep, payload=payload)
        self.model = model_of(self.index)
        self.model.put(names[:4], X, payload)

    def created(self) -> tuple[Index, Model]:
        """An index of no rows, and a model that compares all of them until it learns."""
        told: Any = {**KINDS[self.kind], "hasher": "lsh", "n_bits": N_BITS, "random_state": 1}
        if "n_groups" in told:
            told["n_groups"] = LEARN_AT
        told |= {"kind": self.kind, "keep_vectors": self.keep}
        index = Index.create(D, learn_at=LEARN_AT, **told)
        kept = "float32" if self.keep is True else self.keep
        return index, Model(hasher(), vector_type=kept, waits=True)

    def learnt(self) -> Model:
        """The model of an index that has just learnt from the rows that were there."""
        now = model_of(self.index)
        now.put(self.model.ids, self.model.table[1])
        now.payloads = dict(self.model.payloads)
        return now

    @initialize(opened=st.booleans())
    def begin(self, opened: bool) -> None:
        if opened:
            self.index.save(self.path)
            self.on_disk = self.model
            self.open()

    def beside(self, payload: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """The payload, where this index has one."""
        return payload if self.has_payload else None

    def given(self, payload: list[dict[str, Any]] | None) -> Any:
        """The payload; as a table, where it may be the first, and dicts may tell no type."""
        if payload is None or not self.index._state.is_open:
            return payload
        pa = pytest.importorskip("pyarrow")
        types = (("lang", pa.string()), ("year", pa.int64()), ("tags", pa.list_(pa.string())))
        return pa.Table.from_pylist(payload, pa.schema(types))

    # --- changed --------------------------------------------------------------------------

    @rule(which=some_names, shift=shifts, fault=faults)
    def add(self, which: set[int], shift: int, fault: int | None) -> None:
        names = [self.names[at] for at in which]
        X, payload = self.drawn(which, shift)
        add = functools.partial(self.index.add, X, ids=names)
        if not names or any(name in self.model.rows for name in names):
            self.refused(lambda: add(payload=payload))
        else:
            if self.has_payload and not self.index._state.is_open:
                self.refused(add)
            given = self.given(payload)
            self.change(lambda: add(payload=given), lambda m: m.put(names, X, payload), fault)

    @rule(which=some_names, shift=shifts, fault=faults, keeps=st.booleans())
    def update(self, which: set[int], shift: int, fault: int | None, keeps: bool) -> None:
        names = [self.names[at] for at in which]
        X, payload = self.drawn(which, shift)
        new = None if keeps else payload
        if not names or any(name not in self.model.rows for name in names):
            self.refused(lambda: self.index.update(names, X, payload=new))
        else:
            self.change(
                lambda: self.index.update(names, X, payload=new),
                lambda m: m.put(names, X, new),
                fault,
            )

    def drawn(self, which: set[int], shift: int) -> tuple[Any, list[dict[str, Any]] | None]:
        """Vectors, and a payload."""
        X = POOL[(np.array([*which], np.intp) * 3 + shift) % len(POOL)]
        return X, self.beside([PAYLOADS[(at * 5 + shift) % len(PAYLOADS)] for at in which])

    @rule(which=some_names, shift=shifts, fault=faults)
    def upsert(self, which: set[int], shift: int, fault: int | None) -> None:
        names = [self.names[at] for at in which]
        X, payload = self.drawn(which, shift)
        there = sum(name in self.model.rows for name in names)
        if not names:
            self.refused(lambda: self.index.upsert(names, X, payload=payload))
            return
        twice = None if payload is None else [*payload, payload[0]]
        self.refused(lambda: self.index.upsert([*names, names[0]], np.r_[X, X[:1]], payload=twice))
        if payload is not None and not self.index._state.is_open:
            self.refused(lambda: self.index.upsert(names, X))
        found = self.change(
            lambda: self.index.upsert(names, X, payload=self.given(payload)),
            lambda m: m.put(names, X, payload),
            fault,
        )
        assert found in ((len(names) - there, there), FileError)

    @rule(which=some_names, fault=faults)
    def remove(self, which: set[int], fault: int | None) -> None:
        names = [self.names[at] for at in which]
        there = sum(name in self.model.rows for name in names)
        found = self.change(lambda: self.index.remove(names), lambda m: m.remove(names), fault)
        assert found in (there, FileError)

    @rule(fault=faults)
    def compact(self, fault: int | None) -> None:
        if self.change(self.index.compact, lambda m: None, fault) is not FileError:
            info = self.index.info()
            assert info["removed"] == 0
            assert info["segments"] == ([len(self.model)] if len(self.model) else [])

    def change(
        self, do: Callable[[], Any], follow: Callable[[Model], object], fault: int | None
    ) -> Any:
        """A change of the index that its model follows, if the disk lets it."""
        opened = self.index.path is not None
        disk = Disk(fault or 0, errno.ENOSPC) if opened else Disk()
        try:
            with disk.at_work():
                result = do()
        except FileError:
            assert disk.failed
            assert leftovers(self.path) == set()
            return FileError
        assert not disk.failed
        follow(self.model)
        if self.model.waits and len(self.model) >= LEARN_AT:
            self.model = self.learnt()
        if opened:
            self.on_disk = self.model.copy()
        return result

    def refused(self, do: Callable[[], object]) -> None:
        with pytest.raises(InputError):
            do()

    # --- on the disk ----------------------------------------------------------------------

    @rule(fault=faults)
    def save(self, fault: int | None) -> None:
        disk = Disk(fault or 0, errno.EIO)
        try:
            with disk.at_work():
                self.index.save(self.path)
        except FileError:
            assert disk.failed
            if self.on_disk is None:
                assert not self.path.exists()
            return
        assert not disk.failed
        self.on_disk = self.model.copy()

    @precondition(lambda self: self.on_disk is not None)
    @rule()
    def open(self) -> None:
        """Which is what is left after a crash, too: all that was in memory is gone."""
        self.index = Index.open(self.path)
        assert self.on_disk is not None
        self.model = self.on_disk.copy()

    @precondition(lambda self: self.index.path is not None)
    @rule(which=some_names, fault=st.integers(1, 30))
    def crash(self, which: set[int], fault: int) -> None:
        """The process dies in the middle of a change, and another one opens the folder."""

        class Killed(BaseException):
            pass

        names = [self.names[at] for at in which]
        with Dying(fault, Killed).at_work() as disk, contextlib.suppress(Killed):
            self.index.remove(names)
        after = self.model.copy()
        after.remove(names)
        self.index = Index.open(self.path)
        self.index.verify()
        died = disk.failed
        ids = self.index.ids.tolist()
        assert ids == after.ids or (died and ids == self.model.ids)
        if ids == after.ids:
            self.model = after
        self.on_disk = self.model.copy()

    @precondition(lambda self: self.index.path is not None)
    @rule(which=some_names)
    def another_writer(self, which: set[int]) -> None:
        names = [self.names[at] for at in which]
        there = sum(name in self.model.rows for name in names)
        other = Index.open(self.path)
        assert other.remove(names) == there
        self.model.remove(names)
        self.on_disk = self.model.copy()
        assert self.index.refresh() == (there > 0)

    @precondition(lambda self: self.on_disk is not None)
    @rule()
    def verify(self) -> None:
        Index.open(self.path).verify()
        assert leftovers(self.path) == set()

    # --- asked ----------------------------------------------------------------------------

    @rule(**questions)
    def search(self, **asked: Any) -> None:
        self.ask(**asked)

    @rule(**questions)
    def search_as_often_as_change(self, **asked: Any) -> None:
        self.ask(**asked)

    def ask(
        self, *, k: int, how: str | None, metric: str, candidates: int,
        chosen: set[int] | None, own: Any, probes: int, radius: int | None,
        where: dict[str, Any] | None,
    ) -> None:  # fmt: skip
        names, id_type = self.names, self.id_type
        if not len(self.model):  # the first rows have not come, or are gone
            id_type = self.index._state.id_type
        mine: Any = [names[0], names[3], names[5], names[7]] if own == "names" else own
        asked: dict[str, Any] = {"rerank": how, "candidates": candidates}
        asked["metric"] = metric if how == "exact" else self.index.metric
        asked["probes"] = probes if self.index.kind == "grouped" else None
        match = None if chosen is None else {names[at] for at in chosen}
        told = {**asked, "exclude_self": mine, "filter": match if match is None else [*match]}
        asked |= {"own": mine, "match": None if match is None else match.__contains__}
        if self.has_payload and where is not None:
            told["filter"] = where
            rows = self.model.payloads
            asked["match"] = lambda name: truth(where, rows[name]) is True
        if radius is not None:
            found = self.index.search(QUERIES, radius=radius, **told)
            check_ranges(found, self.model.ranges(QUERIES, radius, **asked), id_type)
        hits = self.index.search(QUERIES, k, **told)
        if self.index._state.payload is not None:
            none = dict.fromkeys(PAYLOADS[0])
            beside = [self.model.payloads.get(name, none) for name in hits.ids.reshape(-1)]
            assert hits.payload.to_pylist() == beside
        check_hits(hits, self.model.hits(QUERIES, k, **asked), k, id_type)

    @invariant()
    def the_same_rows_are_there(self) -> None:
        assert len(self.index) == len(self.model)
        assert self.index.ids.tolist() == self.model.ids
        assert (self.index.sketch == "vectors") == self.model.waits
        if self.has_payload and len(self.model):
            found = self.index.payload(self.index.ids).to_pylist()
            assert found == [self.model.payloads[name] for name in self.model.ids]

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


class Dying(Disk):
    """A disk whose process dies at one of its calls."""

    def __init__(self, fail_at: int, error: type[BaseException]) -> None:
        def die() -> None:
            raise error

        super().__init__(fail_at, instead=die)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_index_is_its_model_whatever_happens(kind: str) -> None:
    arrow = find_spec("pyarrow") is not None
    cases = (("int64", "uint8", False), ("string", True, False), ("string", "uint8", True))
    for number, (id_type, keep, is_created) in enumerate(cases):
        parts = {"kind": kind, "id_type": id_type, "keep": keep, "is_created": is_created}
        parts["has_payload"] = number > 0 and arrow
        machine = type(f"Machine{number}", (Machine,), parts)
        with no_fsync():
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=EXAMPLES // len(cases),
                    stateful_step_count=50,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )

"""Measures what filters and inner products cost and find, against plain searches and exact scans.

    python bench/filters.py [--data DIR] [--set NAME] [--rows N] [--strings] [--segments N]
                            [--no-vectors] [--queries N] [--threads N] [--turns N] [--no-products]
                            [--busy] [--markdown] [--json FILE]

An index of SIFT rows, or those of another set (float32, default settings), is searched with filters
that leave a half, a tenth, a hundredth and a thousandth of the rows, drawn at random; with 100 ids
as a list, a set and a mask; and by a column of 20 values, in words and as an Expression of pyarrow,
the first time and the next. All queries are in one call, and then one per call with the same
filter. All take turns, and the least time of each counts. Recall is the share of the 10 nearest
matching rows that were found.

Ids are the numbers of the rows; with --strings they are strings of 36 characters, in random order.
With --segments N, rows are added in N steps, each at most a fifth of the rows so far, so that each
step stays a segment. With --no-vectors, the index keeps none.

An exact scan has the matching rows in one array, and as many threads. For all queries it is numpy's
product with the rows, whose squares are ready, too, and argpartition. For one query it is what
users write, ((rows - query) ** 2).sum(1) and argpartition, or densehash.truth.nearest, whichever is
faster; the product for one query is shown beside it.

GloVe vectors are searched by inner product: with length one; with uniform random lengths between
0.2 and 5; and with heavy tails, so that few long rows are near to most queries. They are kept as
signs, and as codes, flat and in groups.

The vectors are sift.npy (or those of another set, see bench/index_sets.py) and glove-large.npy in
the folder that --data or DENSEHASH_DATA names, or in ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from index_sets import SETS
from threadpoolctl import threadpool_limits

from densehash import Index
from densehash.truth import nearest

K = 10
SHARES = (0.5, 0.1, 0.01, 0.001)
LEAST_SHARE, MOST_TIMES, MOST_SCANS = 0.1, 2.0, 1.5
"""From this share of rows on, a filter may take this many times a plain search; below it, this many
times an exact scan."""
N_LISTED, N_VALUES = 100, 20
N_PRODUCTS, LENGTHS = 60_000, (0.2, 5.0)
PRODUCT_SKETCHES: dict[str, dict[str, Any]] = {
    "signs": {},
    "codes, flat": {"sketch": "codes", "kind": "flat"},
    "codes, grouped": {"sketch": "codes", "kind": "grouped"},
}

Rows = npt.NDArray[Any]
Record = dict[str, Any]
Calls = dict[str, Callable[[], object]]


class Scan:
    """Compares all matching rows exactly.

    For cosine, rows have length one, so that squared distances have the same order.
    """

    def __init__(self, X: Rows, mask: npt.NDArray[np.bool_]) -> None:
        self._numbers = np.flatnonzero(mask)
        self._rows = X[mask]
        self._k = min(K, len(self._rows))
        self._squares = np.einsum("ij,ij->i", self._rows, self._rows)

    def __call__(self, Q: Rows) -> Rows:
        k = self._k
        found = np.empty((len(Q), k), np.int64)
        step = max(2**22 // len(self._rows), 1)  # so that products roughly stay in the cache
        for start in range(0, len(Q), step):
            distances = self._squares - 2 * (Q[start : start + step] @ self._rows.T)
            near = np.argpartition(distances, k - 1, axis=1)[:, :k]
            order = np.argsort(np.take_along_axis(distances, near, axis=1), axis=1)
            found[start : start + step] = np.take_along_axis(near, order, axis=1)
        return self._numbers[found]

    def product(self, query: Rows) -> Rows:
        return self._first(self._squares - 2 * (self._rows @ query))

    def plain(self, query: Rows) -> Rows:
        return self._first(((self._rows - query) ** 2).sum(1))

    def own(self, query: Rows) -> Rows:
        found = nearest(query[np.newaxis], self._rows, k=self._k, ordered=True)[0]
        return np.asarray(self._numbers[found])

    def _first(self, distances: Rows) -> Rows:
        near = np.argpartition(distances, self._k - 1)[: self._k]
        return np.asarray(self._numbers[near[np.argsort(distances[near])]])


def least_times(calls: Calls, turns: int, clock: Callable[[], float]) -> dict[str, float]:
    """The least time of each call; they take turns."""
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(turns):
        for name, call in calls.items():
            begun = clock()
            call()
            least[name] = min(least[name], clock() - begun)
    return least


def recall_of(found: Rows, truth: Rows) -> float:
    hits = [len(set(a) & set(b)) for a, b in zip(found.tolist(), truth.tolist(), strict=True)]
    return sum(hits) / truth.size


def filters(asked: argparse.Namespace, clock: Callable[[], float]) -> Iterable[Record]:
    of = SETS[asked.set]
    X, Q = of.rows(asked.rows), of.queries(asked.queries)
    rng = np.random.default_rng(0)
    values = rng.integers(N_VALUES, size=len(X))
    names = Names(len(X), strings=asked.strings)
    index = _built(X, names.ids, values, of.metric, asked)
    one = Q[: min(len(Q), 100)]

    def search(chosen: Any, some: Rows = Q) -> Rows:
        return index.search(some, K, filter=chosen, n_threads=asked.threads).ids

    def one_by_one(chosen: Any) -> None:
        for row in one:
            search(chosen, row[np.newaxis])

    def measured(name: str, mask: npt.NDArray[np.bool_], forms: dict[str, Any]) -> Iterable[Record]:
        """Records of some forms of one filter, with those of no filter and a scan."""
        scan = Scan(X, mask)
        batch: Calls = {form: partial(search, chosen) for form, chosen in forms.items()}
        batch |= {"none": partial(search, None), "scan": partial(scan, Q)}
        alone: Calls = {form: partial(one_by_one, chosen) for form, chosen in forms.items()}
        alone["none"] = partial(one_by_one, None)
        if mask.sum() < LEAST_SHARE * len(X):  # for more rows it takes long, and is of no interest
            for scanned in (scan.plain, scan.own, scan.product):
                alone[scanned.__name__] = partial(_each, scanned, one)
        in_batch = least_times(batch, asked.turns, clock)
        single = least_times(alone, asked.turns, clock)
        if "plain" in single:
            single["scan"] = min(single["plain"], single["own"])
        truth = np.flatnonzero(mask)[np.asarray(nearest(Q, X[mask], k=min(K, int(mask.sum()))))]
        for form, chosen in forms.items():
            yield {
                "filter": name,
                "form": form,
                "rows": int(mask.sum()),
                "recall": recall_of(names.rows(search(chosen)[:, : truth.shape[1]]), truth),
                **{
                    f"{how}_{what}": times[of] / n * 1e6 if of in times else None
                    for how, times, n in (("batch", in_batch, len(Q)), ("one", single, len(one)))
                    for what, of in (
                        *(("us", form), ("none_us", "none"), ("scan_us", "scan")),
                        ("product_us", "product"),
                    )
                },
            }

    everything = np.ones(len(X), bool)
    yield from measured("none", everything, {"none": None})
    for share in SHARES:
        mask = rng.random(len(X)) < share
        yield from measured(f"{share:.1%} of the rows", mask, {"mask": names.by_id(mask)})
    some = np.sort(rng.choice(len(X), N_LISTED, replace=False))
    mask = np.isin(np.arange(len(X)), some)
    listed = names.ids[some].tolist()
    forms = {"mask": names.by_id(mask), "list of ids": listed, "set of ids": set(listed)}
    yield from measured(f"{N_LISTED} ids", mask, forms)
    yield from _of_columns(index, Q, values, names, measured, clock)


class Names:
    """Ids of rows: their numbers, or strings whose order is another one."""

    def __init__(self, n: int, *, strings: bool) -> None:
        places = np.random.default_rng(1).permutation(n) if strings else np.arange(n)
        self._order = np.argsort(places)
        self.ids = np.array([f"{at:036}" for at in places], object) if strings else places

    def by_id(self, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """A mask of rows in the order of ids."""
        return mask[self._order]

    def rows(self, ids: Rows) -> Rows:
        """The numbers of rows; -1 where there is none."""
        places = np.array([[-1 if name is None else int(name) for name in each] for each in ids])
        return np.asarray(np.where(places < 0, -1, self._order[places]))


def _built(
    X: Rows, ids: Rows, values: npt.NDArray[np.int64], metric: Any, asked: argparse.Namespace
) -> Index:
    shares = np.array([5.0**-at for at in range(asked.segments)])
    ends = np.rint(np.cumsum(shares) / shares.sum() * len(X)).astype(int).tolist()
    first = ends[0]
    index = Index.build(
        X[:first],
        ids=ids[:first],
        metric=metric,
        keep_vectors=not asked.no_vectors,
        payload=_table(values[:first]),
        random_state=0,
    )
    for start, end in pairwise(ends):
        index.add(X[start:end], ids=ids[start:end], payload=_table(values[start:end]))
    return index


def _each(call: Callable[[Rows], object], queries: Rows) -> None:
    for query in queries:
        call(query)


def _table(values: npt.NDArray[np.int64]) -> Any:
    import pyarrow as pa

    return pa.table({"value": pa.array([f"value {one}" for one in values]), "number": values})


def _of_columns(
    index: Index,
    Q: Rows,
    values: npt.NDArray[np.int64],
    names: Names,
    measured: Callable[..., Iterable[Record]],
    clock: Callable[[], float],
) -> Iterable[Record]:
    """Filters by columns: each is new the first time, and cached for the next."""
    import pyarrow.compute as pc

    first: dict[str, float] = {}
    mask = values == 7
    index.search(Q[:1], K, filter="number < 0")  # reads the payload, which happens once
    forms = {
        "string, in words": "value = 'value 7'",
        "number, as a dict": {"number": 7},
        "string, Expression": pc.field("value") == "value 7",
        "number, Expression": pc.field("number") == 7,
    }
    for form, chosen in forms.items():
        begun = clock()
        index.search(Q[:1], K, filter=chosen)
        first[form] = (clock() - begun) * 1e6
    for form, chosen in {"mask": names.by_id(mask), **forms}.items():
        for record in measured(f"one of {N_VALUES} values", mask, {form: chosen}):
            yield {**record, "first_us": first.get(form)}


def products(asked: argparse.Namespace, clock: Callable[[], float]) -> Iterable[Record]:
    glove = SETS["glove-large"]
    X, Q = glove.rows(N_PRODUCTS), glove.queries(asked.queries)
    rng = np.random.default_rng(0)
    for name, lengths in (
        ("all 1", np.ones(len(X))),
        (f"{LENGTHS[0]} to {LENGTHS[1]}", rng.uniform(*LENGTHS, len(X))),
        ("lognormal, sigma 1", np.exp(rng.standard_normal(len(X)))),
        *((f"Pareto 1.2, draw {draw}", 1 + rng.pareto(1.2, len(X))) for draw in (1, 2, 3)),
    ):
        rows = (X * lengths[:, np.newaxis]).astype(np.float32)
        truth = np.asarray(nearest(Q, rows, k=K, metric="ip"))
        indexes = {
            sketch: Index.build(rows, metric="ip", random_state=0, **told)
            for sketch, told in PRODUCT_SKETCHES.items()
        }
        calls: Calls = {
            sketch: partial(index.search, Q, K, n_threads=asked.threads)
            for sketch, index in indexes.items()
        }
        times = least_times(calls, asked.turns, clock)
        for sketch, index in indexes.items():
            hits = index.search(Q, K, n_threads=asked.threads)
            effort = hits.effort
            yield {
                "lengths": name,
                "sketch": sketch,
                "rows": len(rows),
                "recall": recall_of(hits.ids, truth),
                "batch_us": times[sketch] / len(Q) * 1e6,
                "entries": None if effort is None else float(effort.entries.mean()),
            }


def verdict(record: Record, without: float) -> str:
    """Whether the figures are good: recall as without a filter, and a time that fits the share."""
    if record["filter"] == "none":
        return ""
    wrong = [f"recall below {without:.3f}"] * (record["recall"] < without)
    for how in ("batch", "one"):
        if record["rows"] >= LEAST_SHARE * 0.98 * record["all_rows"]:
            peer, most = "none", MOST_TIMES
        else:
            peer, most = "scan", MOST_SCANS
        ratio = record[f"{how}_us"] / record[f"{how}_{peer}_us"]
        wrong += [f"{how}: {ratio:.2f} x {peer}, at most {most}"] * (ratio > most)
    return "; ".join(wrong) or "met"


def _times(time_of: float, peer: float | None) -> str:
    return "" if peer is None else f"{time_of / peer:.2f}"


def shown(records: list[Record], by_product: list[Record], *, markdown: bool) -> None:
    def line(cells: Iterable[object]) -> None:
        texts = [str(cell) for cell in cells]
        print(
            "| " + " | ".join(texts) + " |" if markdown else "  ".join(t.rjust(12) for t in texts)
        )

    head = ["filter", "form", "rows", "recall", "batch, us", "x none", "x scan"]
    head += ["one, us", "x none", "x scan", "x product", "first, us", "asked"]
    line(head)
    if markdown:
        line(["---"] * len(head))
    for one in records:
        cells: list[object] = [
            one["filter"],
            one["form"],
            f"{one['rows']:,}",
            f"{one['recall']:.3f}",
        ]
        for how in ("batch", "one"):
            time_of = one[f"{how}_us"]
            cells += [f"{time_of:.0f}", f"{time_of / one[f'{how}_none_us']:.2f}"]
            cells.append(_times(time_of, one[f"{how}_scan_us"]))
        cells.append(_times(one["one_us"], one["one_product_us"]))
        first = one.get("first_us")
        line([*cells, "" if first is None else f"{first:.0f}", one["asked"]])
    if not by_product:
        return
    print()
    line(("lengths", "sketch", "rows", "recall", "batch, us", "entries"))
    if markdown:
        line(["---"] * 6)
    for one in by_product:
        entries = "" if one["entries"] is None else f"{one['entries']:,.0f}"
        times = f"{one['recall']:.3f}", f"{one['batch_us']:.0f}", entries
        line([one["lengths"], one["sketch"], f"{one['rows']:,}", *times])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="DIR", help="the folder of sift.npy and glove-large.npy")
    parser.add_argument("--set", default="sift", choices=SETS, help="whose rows are filtered")
    parser.add_argument("--no-products", action="store_true", help="leave inner products out")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--strings", action="store_true", help="ids are strings")
    parser.add_argument("--segments", type=int, default=1, help="how many segments rows lie in")
    parser.add_argument("--no-vectors", action="store_true", help="the index keeps no vectors")
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--busy", action="store_true", help="processor time, on a busy machine")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--json", metavar="FILE", help="write the records there; - prints them")
    asked = parser.parse_args()
    if asked.data:
        os.environ["DENSEHASH_DATA"] = asked.data
    clock = time.process_time if asked.busy else time.perf_counter
    with threadpool_limits(asked.threads):
        records = list(filters(asked, clock))
        by_product = [] if asked.no_products else list(products(asked, clock))
    for record in records:
        record["all_rows"] = records[0]["rows"]
        record["asked"] = verdict(record, records[0]["recall"])
    if asked.json:
        text = json.dumps({"filters": records, "products": by_product}, indent=2) + "\n"
        if asked.json == "-":
            print(text, end="")
            return
        Path(asked.json).write_text(text, encoding="utf-8")
    shown(records, by_product, markdown=asked.markdown)


if __name__ == "__main__":
    main()

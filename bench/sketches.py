"""Measures what each choice inside the sketch of signs is worth, by changing one at a time.

    python bench/sketches.py [--sets sift,gist] [--rows 20000] [--queries 500] [--only WORD]
                             [--markdown] [--json FILE]

The first rows of a set are queries, the rows after them the database. All rows are ranked only by
the estimate: no group is left out, and no vector is compared. The figures are the shares of the
true ten among the first 10, 20, 50 and 100 rows. Rows have as many signs as in an index, 128, or
256 if there are more than 128 features, and two factors of 16 bits. The peers have as many bytes
per row, including factors: 20 or 36.

A second table has the share of all entries that must be visited, nearest groups first, until 95%
and 99% of the true ten are among them, if a row is in one group and if it is in two.

The sets are sift, glove-large, gist and wordnet, in the folder named by DENSEHASH_DATA, or in
../shared/data beside the checkout; rows of glove-large and wordnet are scaled to length one. Random
sets show where estimates fail: noise (normal, 128 features), copies (rows of sift, each with 300
others that differ by 1% of its length) and few (300 rows of sift). Peers need faiss.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from data import data_folder
from hamming import machine
from numpy.random import RandomState

from densehash import ITQ, hamming, metrics
from densehash.index.grouping import Centers, n_small_groups_for
from densehash.index.sketches import decoder as inside
from densehash.index.sketches.decoder import Decoder, learn_decoder
from densehash.index.sketches.entries import Segment, SignModel, second_groups
from densehash.index.sketches.signs import Signs
from densehash.rows import Rows
from densehash.truth import nearest

Floats = npt.NDArray[Any]

SETS = {"sift": 1000, "glove-large": 2000, "gist": 1000, "wordnet": 1000}
"""How many rows of each set are queries."""
UNIT = ("glove-large", "wordnet")
DRAWN = ("noise", "copies", "few")
AMONG = (10, 20, 50, 100)
K = 10
SAMPLE = 16_384  # rows from which an index learns a decoder
COPIES = 300
VISITED = (0.95, 0.99)


# Data


def vectors_of(name: str, n_rows: int, n_queries: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    if name == "noise":
        drawn = rng.standard_normal((n_rows + n_queries, 128), dtype=np.float32)
        return drawn[n_queries:], drawn[:n_queries]
    folder = data_folder()
    source = "sift" if name in DRAWN else name
    if folder is None or not (folder / f"{source}.npy").exists():
        raise SystemExit(f"DENSEHASH_DATA must name a folder that has sift.npy and {source}.npy.")
    every = np.load(folder / f"{source}.npy", mmap_mode="r")
    every = np.asarray(every[: SETS[source] + n_rows])
    queries = every[:n_queries].astype(np.float32)
    rows = every[SETS[source] : SETS[source] + n_rows].astype(np.float32)
    if name == "few":
        return rows[:300], queries
    if name == "copies":
        first = np.concatenate([queries, rows])[: n_rows // COPIES]
        every = np.repeat(first, COPIES, axis=0)
        size = 0.01 * np.linalg.norm(every, axis=1, keepdims=True) / np.sqrt(every.shape[1])
        rows = every + size * rng.standard_normal(every.shape, dtype=np.float32)
        return rows, first[np.arange(n_queries) % len(first)]
    if name in UNIT:
        rows, queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, queries))
    return rows, queries


class Groups(NamedTuple):
    """Rows and their groups, all relative to one point."""

    rows: Floats
    queries: Floats
    centers: Floats
    labels: npt.NDArray[np.uint32]

    @property
    def residuals(self) -> Floats:
        found: Floats = self.rows - self.centers[self.labels]
        return found

    def distances(self) -> Floats:
        """Squared distances of queries to centres: (q, g)."""
        squares = np.square(self.centers).sum(axis=1) - 2 * self.queries @ self.centers.T
        found: Floats = squares + np.square(self.queries).sum(axis=1, keepdims=True)
        return found


class Problem:
    """A set, its true neighbours and its groups, as an index makes them."""

    def __init__(self, name: str, n_rows: int, n_queries: int) -> None:
        self.name = name
        self.rows, self.queries = vectors_of(name, n_rows, n_queries)
        self.near = nearest(self.queries, self.rows, k=K)
        self.n_bits = Signs.n_bits_for(self.rows.shape[1], None)
        self.n_bytes = self.n_bits // 8 + 4

    @cached_property
    def groups(self) -> Groups:
        rows = Rows(self.rows)
        learnt = Centers.learn(rows, n_small_groups_for(rows.n_rows), RandomState(0))
        shift, labels = learnt.shift.astype(np.float32), learnt.labels(rows)
        return Groups(
            self.rows - shift,
            self.queries - shift,
            np.ascontiguousarray(learnt.centers),
            labels.astype(np.uint32),
        )

    @cached_property
    def one_group(self) -> Groups:
        mean = self.rows.mean(axis=0)
        middle, labels = np.zeros((1, len(mean)), np.float32), np.zeros(len(self.rows), np.uint32)
        return Groups(self.rows - mean, self.queries - mean, middle, labels)

    @cached_property
    def second(self) -> Groups:
        """The same rows in their second groups."""
        groups = self.groups
        return groups._replace(labels=second_groups(groups.rows, groups.labels, groups.centers))

    @cached_property
    def kept(self) -> Kept:
        return by_descent(self.groups, self.n_bits)

    def shares(self, estimates: Floats) -> list[float]:
        """Shares of the true ten among the first N rows by an estimate (q, n)."""
        among = [min(n, estimates.shape[1]) for n in AMONG]
        ends = np.partition(estimates, [n - 1 for n in among], axis=1)
        own = np.take_along_axis(estimates, self.near, axis=1)
        return [float((own <= ends[:, n - 1 : n]).mean()) for n in among]


# Estimates


class Kept(NamedTuple):
    """What is kept of rows: their groups, codes, and the decoder; all in float32."""

    groups: Groups
    codes: npt.NDArray[np.uint8]
    matrix: Floats

    @property
    def signs(self) -> Floats:
        return inside.signs_of(self.codes)


def of_lengths(r: Floats, y: Floats) -> Floats:
    return np.asarray(norms(r) / norms(y))


def least_squares(r: Floats, y: Floats) -> Floats:
    return np.asarray(products(r, y) / norms(y) ** 2)


def rabitq(r: Floats, y: Floats) -> Floats:
    return np.asarray(norms(r) ** 2 / np.maximum(products(r, y), 1e-9))


def between(r: Floats, y: Floats) -> Floats:
    return np.asarray(np.sqrt(np.maximum(of_lengths(r, y) * least_squares(r, y), 0)))


def of_scale(r: Floats, _: Floats) -> Floats:
    """One factor for all rows: decoders are learnt from residuals of length one."""
    return norms(r)


def norms(x: Floats) -> Floats:
    return np.asarray(np.maximum(np.linalg.norm(x, axis=1), 1e-12))


def products(x: Floats, y: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", x, y))


def estimates(kept: Kept, factor: Callable[[Floats, Floats], Floats] = of_lengths) -> Floats:
    """|q − c|² + |r|² + 2 f ⟨y, c⟩ − 2 f ⟨s, G q⟩, factors in full precision."""
    groups, r, y = kept.groups, kept.groups.residuals, kept.signs @ kept.matrix
    f = factor(r, y)
    constant = norms(r) ** 2 + 2 * f * products(y, groups.centers[groups.labels])
    found = (groups.queries @ kept.matrix.T) @ kept.signs.T
    found *= -2 * f
    found += constant
    found += groups.distances()[:, groups.labels]
    return found


def stored_estimates(kept: Kept, decoder: Decoder, factors: npt.NDArray[np.int16]) -> Floats:
    """The same from α and β of 16 bits, as in docs/sketches.md."""
    alpha, beta = (factors * np.array([decoder.alpha, decoder.beta], np.float32)).T
    groups = kept.groups
    sums = (groups.queries @ kept.matrix.T) @ kept.signs.T
    return np.asarray(groups.distances()[:, groups.labels] + (alpha - sums) / beta)


@contextmanager
def changed(**values: Any) -> Iterator[None]:
    """Give names inside the module of decoders other values during a ``with`` block."""
    before = {name: getattr(inside, name) for name in values}
    try:
        for name, value in values.items():
            setattr(inside, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(inside, name, value)


def learnt(groups: Groups, n_bits: int) -> Decoder:
    some = RandomState(0).permutation(len(groups.rows))[:SAMPLE]
    some.sort()
    rows, labels = groups.rows[some], groups.labels[some]
    return learn_decoder(rows, labels, groups.centers, n_bits, "l2", RandomState(0))


def by_descent(groups: Groups, n_bits: int, decoder: Decoder | None = None) -> Kept:
    decoder = decoder or learnt(groups, n_bits)
    codes, _ = decoder.encode(groups.rows, groups.labels, groups.centers)
    return Kept(groups, codes, decoder.matrix)


# Variants: each computes estimates (q, n) for a problem


def as_it_is(problem: Problem) -> Floats:
    decoder = learnt(problem.groups, problem.n_bits)
    groups = problem.groups
    codes, factors = decoder.encode(groups.rows, groups.labels, groups.centers)
    return stored_estimates(Kept(groups, codes, decoder.matrix), decoder, factors)


def native(problem: Problem) -> list[float]:
    """As a search computes it, with the query in bytes and tables of 6 bits."""
    groups = problem.groups
    shift = np.zeros(groups.rows.shape[1], np.float32)
    some = RandomState(0).permutation(len(groups.rows))[:SAMPLE]
    model = SignModel.learn(
        groups.rows[some], groups.labels[some], groups.centers, shift, problem.n_bits, "l2",
        RandomState(0),
    )  # fmt: skip
    kept = model.entries(groups.rows, groups.labels[:, np.newaxis])
    searcher = model.searcher([Segment(kept, len(groups.rows), None)])
    n_groups, most = len(groups.centers), min(AMONG[-1], len(groups.rows))
    found = searcher.search(groups.queries, most, n_groups, 0.0, 1e30, None, 2, "")[1]
    hits = [np.isin(row, near) for row, near in zip(found, problem.near, strict=True)]
    return [float(np.mean([hit[:n].sum() / K for hit in hits])) for n in AMONG]


def itq_hamming(problem: Problem) -> list[float]:
    hasher = ITQ(problem.n_bits, random_state=0).fit(problem.rows)
    asked, codes = hasher.transform(problem.queries), hasher.transform(problem.rows)
    counts = hamming.histogram(asked, codes, problem.near)
    found: list[float] = metrics.recall_at(*counts, [min(n, len(codes)) for n in AMONG]).tolist()
    return found


def itq(factor: Callable[[Floats, Floats], Floats]) -> Callable[[Problem], Floats]:
    def made(problem: Problem) -> Floats:
        hasher = ITQ(problem.n_bits, random_state=0).fit(problem.groups.residuals)
        codes = hasher.transform(problem.groups.residuals)
        return estimates(Kept(problem.groups, codes, hasher.planes_), factor)

    return made


def without_descent(problem: Problem) -> Floats:
    """Signs of the first rotation, and a decoder by least squares."""
    r = problem.groups.residuals
    units = (r / norms(r)[:, np.newaxis]).astype(np.float32)
    signs = inside._first_signs(units, problem.n_bits, RandomState(0))
    codes = np.packbits(signs > 0, axis=1, bitorder="little")
    return estimates(Kept(problem.groups, codes, inside._least_squares(signs, units)))


def with_changed(**values: Any) -> Callable[[Problem], Floats]:
    def made(problem: Problem) -> Floats:
        with changed(**values):
            return as_it_is(problem)

    return made


def with_factor(factor: Callable[[Floats, Floats], Floats]) -> Callable[[Problem], Floats]:
    return lambda problem: estimates(problem.kept, factor)


def exact_decoder(problem: Problem) -> Floats:
    """The last decoder by least squares, before it is rounded to bytes."""
    matrices: list[Floats] = []
    plain = inside._least_squares

    def remembered(signs: Floats, residuals: Floats) -> Floats:
        matrices.append(plain(signs, residuals))
        return matrices[-1]

    groups = problem.groups
    with changed(_least_squares=remembered):
        decoder = learnt(groups, problem.n_bits)
    codes, _ = decoder.encode(groups.rows, groups.labels, groups.centers)
    return estimates(Kept(groups, codes, matrices[-1]))


def in_one_group(problem: Problem) -> Floats:
    return estimates(by_descent(problem.one_group, problem.n_bits))


def with_bits(n_bits: int) -> Callable[[Problem], Floats]:
    def made(problem: Problem) -> Floats:
        same = n_bits == problem.n_bits
        return estimates(problem.kept if same else by_descent(problem.groups, n_bits))

    return made


def in_two_groups(combined: Callable[[Floats, Floats], Floats]) -> Callable[[Problem], Floats]:
    def made(problem: Problem) -> Floats:
        first, second = problem.groups, problem.second
        labels = np.concatenate([first.labels, second.labels])
        both = first._replace(rows=np.tile(first.rows, (2, 1)), labels=labels)
        decoder = learnt(both, problem.n_bits)
        found = [estimates(by_descent(one, problem.n_bits, decoder)) for one in (first, second)]
        return combined(found[0], found[1])

    return made


def mean_of(one: Floats, two: Floats) -> Floats:
    return np.asarray((one + two) / 2)


# Peers: product quantisation of the same residuals, decoded, and compared with queries exactly


def decoded_estimates(groups: Groups, decoded: Floats) -> Floats:
    rows = groups.centers[groups.labels] + decoded
    squares = np.square(rows).sum(axis=1) - 2 * groups.queries @ rows.T
    return np.asarray(squares + np.square(groups.queries).sum(axis=1, keepdims=True))


def pq(problem: Problem) -> Floats:
    import faiss

    r, parts = problem.groups.residuals, problem.n_bytes
    width = -(-r.shape[1] // parts) * parts  # padded with zeros to a multiple of the parts
    padded = np.pad(r, ((0, 0), (0, width - r.shape[1])))
    quantizer: Any = faiss.ProductQuantizer(width, parts, 8)
    quantizer.cp.min_points_per_centroid = 1
    quantizer.train(padded)
    decoded = quantizer.decode(quantizer.compute_codes(padded))[:, : r.shape[1]]
    return decoded_estimates(problem.groups, decoded)


def opq(problem: Problem) -> Floats:
    import faiss

    r, parts = problem.groups.residuals, problem.n_bytes
    width = min(-(-r.shape[1] // parts), 8) * parts  # for wide rows, the first 8 * parts directions
    rotation = faiss.OPQMatrix(r.shape[1], parts, width)
    quantizer: Any = faiss.ProductQuantizer(width, parts, 8)
    quantizer.cp.min_points_per_centroid = 1
    # A second quantizer: learning a rotation leaves it with settings that rank worse.
    of_rotation: Any = faiss.ProductQuantizer(width, parts, 8)
    of_rotation.cp.min_points_per_centroid = 1
    rotation.pq, rotation.max_train_points = of_rotation, SAMPLE
    rotation.train(r)
    turned = rotation.apply(r)
    quantizer.train(turned)
    decoded = rotation.reverse_transform(quantizer.decode(quantizer.compute_codes(turned)))
    return decoded_estimates(problem.groups, decoded)


def faiss_rabitq(problem: Problem) -> list[float]:
    """That of faiss: a bit for each principal direction, and 8 bytes of factors; all groups."""
    import faiss

    groups = problem.groups
    width = min(8 * problem.n_bytes - 64, groups.rows.shape[1])
    index = faiss.IndexIVFRaBitQ(faiss.IndexFlatL2(width), width, len(groups.centers))
    index.cp.min_points_per_centroid = 1
    index.nprobe = len(groups.centers)
    whole = faiss.IndexPreTransform(faiss.RandomRotationMatrix(width, width), index)
    whole.prepend_transform(faiss.PCAMatrix(groups.rows.shape[1], width))
    whole.train(groups.rows)
    whole.add(groups.rows)
    found = whole.search(groups.queries, min(AMONG[-1], len(groups.rows)))[1]
    hits = [np.isin(row, near) for row, near in zip(found, problem.near, strict=True)]
    return [float(np.mean([hit[:n].sum() / K for hit in hits])) for n in AMONG]


@dataclass(frozen=True)
class Variant:
    name: str
    measure: Callable[[Problem], Floats | list[float]]
    is_peer: bool = False


VARIANTS = (
    Variant("as it is", as_it_is),
    Variant("as a search computes it: query in bytes, tables of 6 bits", native),
    Variant("ITQ, Hamming distance", itq_hamming),
    Variant("ITQ on residuals, f = |r|² / ⟨y, r⟩ (RaBitQ's)", itq(rabitq)),
    Variant("ITQ on residuals, f = |r| / |y|", itq(of_lengths)),
    Variant("first rotation, decoder by least squares, no descent", without_descent),
    Variant("descent, decoder never learnt anew", with_changed(_ROUNDS=0)),
    Variant("rounds: 1", with_changed(_ROUNDS=1)),
    Variant("rounds: 2", with_changed(_ROUNDS=2)),
    Variant("rounds: 12", with_changed(_ROUNDS=12)),
    Variant("sweeps of a row: 0", with_changed(_SWEEPS=0)),
    Variant("sweeps of a row: 2", with_changed(_SWEEPS=2)),
    Variant("sweeps of a row: 8", with_changed(_SWEEPS=8)),
    Variant("factors in full precision", with_factor(of_lengths)),
    Variant("f = ⟨y, r⟩ / |y|² (least squares)", with_factor(least_squares)),
    Variant("f = √cos(y, r) |r| / |y| (between)", with_factor(between)),
    Variant("f = |r|² / ⟨y, r⟩ (RaBitQ's)", with_factor(rabitq)),
    Variant("f = |r| (as learnt)", with_factor(of_scale)),
    Variant("decoder and factors in full precision", exact_decoder),
    Variant("one group", in_one_group),
    Variant("two groups, the lower estimate", in_two_groups(np.minimum)),
    Variant("two groups, the mean of both", in_two_groups(mean_of)),
    Variant("64 bits", with_bits(64)),
    Variant("128 bits", with_bits(128)),
    Variant("256 bits", with_bits(256)),
    Variant("PQ on residuals, as many bytes", pq, is_peer=True),
    Variant("OPQ on residuals, as many bytes", opq, is_peer=True),
    Variant("RaBitQ of faiss, as many bytes", faiss_rabitq, is_peer=True),
)


def visited(problem: Problem) -> dict[str, list[float]]:
    """Shares of entries to visit for shares of the true ten, with one and two groups per row."""
    groups = problem.groups
    order = np.argsort(groups.distances(), axis=1)
    ranks = np.argsort(order, axis=1)  # the rank of each group, for each query
    found = {}
    for name, of_rows in (("one", [groups]), ("two", [groups, problem.second])):
        labels = np.stack([one.labels for one in of_rows])  # (copies, n)
        sizes = np.bincount(labels.ravel(), minlength=len(groups.centers))
        entries = np.cumsum(sizes[order], axis=1)  # visited after each group, in the query's order
        own = labels[:, problem.near]  # (copies, q, k)
        at = np.take_along_axis(ranks[np.newaxis], own, axis=2).min(axis=0)
        # The same number of groups for each query: enough to hold the share of all true rows.
        limits = np.quantile(at, VISITED, method="inverted_cdf").astype(int)
        found[name] = [float(entries[:, limit].mean() / len(problem.rows)) for limit in limits]
    return found


# The command


def has_faiss() -> bool:
    try:
        import faiss  # noqa: F401
    except ImportError:
        return False
    return True


def fraction(number: float) -> str:
    text = f"{number:.3f}"
    return "1" if text == "1.000" else text.removeprefix("0")


def line(cells: list[str], widths: list[int], *, markdown: bool) -> None:
    if markdown:
        escaped = (cell.replace("|", "\\|") for cell in cells)  # lengths are written |r|
        sys.stdout.write(f"| {' | '.join(escaped)} |\n")
    else:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        sys.stdout.write("  ".join(padded).rstrip() + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--sets", default=",".join(SETS), help=f"of {', '.join((*SETS, *DRAWN))}")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a set; 20,000")
    parser.add_argument("--queries", type=int, default=500, help="at most 1,000; 500")
    parser.add_argument("--only", default="", help="variants that have this word, and the first")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    parser.add_argument("--json", metavar="FILE", help="write the results there")
    asked = parser.parse_args()
    begun = time.perf_counter()
    problems = [Problem(name, asked.rows, asked.queries) for name in asked.sets.split(",")]
    titles = [f"{p.name}, {len(p.rows):,} × {p.rows.shape[1]}, {p.n_bits} bits" for p in problems]
    wide = [58, *(max(len(title), 25) for title in titles)]
    line([f"the true ten among {', '.join(map(str, AMONG))}", *titles], wide,
         markdown=asked.markdown)  # fmt: skip
    if asked.markdown:
        line(["---"] * (len(problems) + 1), wide, markdown=True)
    results: list[dict[str, Any]] = []
    for variant in VARIANTS:
        if (results and asked.only not in variant.name) or (variant.is_peer and not has_faiss()):
            continue
        found = []
        for problem in problems:
            measured = variant.measure(problem)
            found.append(measured if isinstance(measured, list) else problem.shares(measured))
        results.append({"variant": variant.name, "shares": dict(zip(titles, found, strict=True))})
        cells = [" / ".join(map(fraction, shares)) for shares in found]
        line([variant.name, *cells], wide, markdown=asked.markdown)
    sys.stdout.write("\n")
    tables = [visited(problem) for problem in problems]
    shares = " and ".join(f"{share:.0%}" for share in VISITED)
    line([f"entries visited for {shares} of the true ten", *titles], wide, markdown=asked.markdown)
    if asked.markdown:
        line(["---"] * (len(problems) + 1), wide, markdown=True)
    for name in ("one", "two"):
        cells = [" / ".join(f"{share:.1%}" for share in table[name]) for table in tables]
        line([f"a row in {name}", *cells], wide, markdown=asked.markdown)
    sys.stdout.write(f"\n{time.perf_counter() - begun:,.0f} s\n")
    if asked.json:
        named = dict(zip(titles, tables, strict=True))
        text = json.dumps({**machine(), "results": results, "visited": named}, indent=2)
        Path(asked.json).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

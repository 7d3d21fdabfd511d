"""Payloads of every type, with nulls, as tables and as dicts."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="payloads need the extra payload")

Row = dict[str, Any]

DAY = dt.datetime(2020, 1, 1)
SCHEMA = pa.schema(
    [
        ("lang", pa.string()),  # repeated
        ("text", pa.string()),  # never repeated
        ("year", pa.int64()),
        ("small", pa.int8()),
        ("count", pa.uint64()),
        ("price", pa.float64()),
        ("weight", pa.float32()),
        ("good", pa.bool_()),
        ("day", pa.date32()),
        ("time", pa.timestamp("us")),
        ("zoned", pa.timestamp("ms", tz="UTC")),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
    ]
)


def dicts(n: int, seed: int = 0) -> list[Row]:
    """Rows of all columns; about every sixth value is null."""
    rng = np.random.default_rng(seed)
    words = ["en", "de", "日本語", "", "fr"]
    found = []
    for at in range(n):
        number = int(rng.integers(-100, 100))
        row: Row = {
            "lang": words[rng.integers(5)],
            "text": f"text {at} " + "ä" * int(rng.integers(9)),
            "year": 1990 + int(rng.integers(40)),
            "small": number,
            "count": int(rng.choice([0, 7, 2**63 + 5])),
            "price": float(rng.integers(0, 8)) / 4,
            "weight": float(rng.integers(0, 8)) / 4,
            "good": bool(rng.integers(2)),
            "day": DAY.date() + dt.timedelta(days=number),
            "time": DAY + dt.timedelta(hours=number, microseconds=1),
            "zoned": (DAY + dt.timedelta(hours=number)).replace(tzinfo=dt.timezone.utc),
            "raw": bytes([number % 256] * int(rng.integers(3))),
            "tags": [words[i] for i in rng.integers(5, size=int(rng.integers(4)))],
        }
        found.append({name: None if rng.random() < 1 / 6 else row[name] for name in row})
    return found


def table(rows: list[Row]) -> Any:
    """The same as a table."""
    return pa.Table.from_pylist(rows, SCHEMA)

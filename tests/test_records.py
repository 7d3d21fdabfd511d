"""Records: what was measured stays, whatever happens while it is written."""

import errno
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from densehash.errors import FileError
from densehash.paper.records import Records, pack_array, unpack_array

KEY = {"method": "DSH", "bits": 64, "parameters": {"p": 3, "alpha": 1.5}}


def test_a_second_reader_finds_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    records = Records(path)
    records.add(KEY, {"seconds": 1.0})
    records.add({**KEY, "bits": 32}, {"seconds": 2.0})
    again = Records(path)
    assert len(again) == 2
    assert again.get({**KEY, "parameters": {"alpha": 1.5, "p": 3}}) == {"seconds": 1.0}
    assert again.get({**KEY, "parameters": {"alpha": 1.5, "p": 4}}) is None


@pytest.mark.parametrize("left", [1, 20, 60])
def test_a_line_that_was_cut_is_passed_over_and_harms_no_other(tmp_path: Path, left: int) -> None:
    path = tmp_path / "records.jsonl"
    records = Records(path)
    records.add(KEY, {"seconds": 1.0})
    whole = path.stat().st_size
    records.add({**KEY, "bits": 32}, {"seconds": 2.0})
    with path.open("rb+") as file:
        file.truncate(whole + left)
    again = Records(path)
    assert (len(again), again.passed_over) == (1, 1)
    again.add({**KEY, "bits": 48}, {"seconds": 3.0})
    third = Records(path)
    assert (len(third), third.passed_over) == (2, 1)
    assert third.get({**KEY, "bits": 48}) == {"seconds": 3.0}


def test_lines_that_are_no_records_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'[]\n{"key": 1}\n\xff\xfe\nnull\n' + json.dumps({"a": 1}).encode() + b"\n")
    assert Records(path).passed_over == 5


def test_a_full_disk_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "records.jsonl"
    records = Records(path)
    records.add(KEY, {"seconds": 1.0})

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(FileError, match=r"records\.jsonl cannot be written: No space"):
            records.add({**KEY, "bits": 32}, {"seconds": 2.0})
    assert records.get({**KEY, "bits": 32}) is None
    assert len(Records(path)) == 1


def test_a_folder_is_no_file_of_records(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        Records(tmp_path)


def _add_many(path: Path, who: int) -> None:
    records = Records(path)
    for number in range(50):
        records.add({"who": who, "number": number}, {"text": "x" * 20_000})


def test_who_reads_while_another_writes_spoils_nothing(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    Records(path).add({"number": 1}, {"text": "x"})
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])  # so much is there when the second process reads
    assert Records(path).passed_over == 1
    path.write_bytes(whole + b"\n")  # its end of line comes after the rest of the line
    records = Records(path)
    assert (len(records), records.passed_over) == (1, 0)


def test_two_processes_do_not_mix_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_add_many, args=(path, who)) for who in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    records = Records(path)
    assert (len(records), records.passed_over) == (100, 0)


@given(
    st.sampled_from(["u1", "i2", "i8", "u8", "f4", "f8", ">i4"]),
    st.lists(st.integers(0, 200), min_size=0, max_size=20),
)
def test_arrays_survive(dtype: str, numbers: list[int]) -> None:
    array: Any = np.array(numbers, dtype=dtype).reshape(-1, 1)
    found = unpack_array(json.loads(json.dumps(pack_array(array))))
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)


def test_integers_take_the_fewest_bytes_that_hold_them() -> None:
    assert pack_array(np.array([255]))["dtype"] == "|u1"
    assert pack_array(np.array([256]))["dtype"] == "<u2"
    assert pack_array(np.array([-1]))["dtype"] == "<i8"
    assert pack_array(np.array([2.5], np.float32))["dtype"] == "<f4"

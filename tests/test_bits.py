from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from densehash import bits
from densehash.errors import InputError

WIDTHS = (1, 7, 8, 9, 16, 31, 64, 65, 96, 1000, 4095, 4096)


def packed_by_loop(array: NDArray[Any]) -> NDArray[np.uint8]:
    codes = np.zeros((array.shape[0], (array.shape[1] + 7) // 8), dtype=np.uint8)
    for row in range(array.shape[0]):
        for bit in range(array.shape[1]):
            if array[row, bit]:
                codes[row, bit // 8] |= 1 << (bit % 8)
    return codes


bit_arrays = hnp.arrays(
    st.sampled_from([np.bool_, np.uint8, np.int8, np.int32, np.int64, np.uint64]),
    st.tuples(st.integers(0, 4), st.integers(1, 70)),
    elements=st.integers(0, 1),
)
code_arrays = hnp.arrays(np.uint8, st.tuples(st.integers(0, 4), st.integers(1, 9)))


@given(bit_arrays)
def test_pack_agrees_with_a_plain_loop(array: NDArray[Any]) -> None:
    codes = bits.pack(array)
    assert codes.dtype == np.uint8
    assert codes.flags.c_contiguous
    np.testing.assert_array_equal(codes, packed_by_loop(array))


@given(bit_arrays)
def test_unpack_inverts_pack(array: NDArray[Any]) -> None:
    unpacked = bits.unpack(bits.pack(array), array.shape[1])
    assert unpacked.dtype == np.bool_
    assert unpacked.flags.c_contiguous
    np.testing.assert_array_equal(unpacked, array.astype(bool))


@given(code_arrays)
def test_pack_inverts_unpack(codes: NDArray[np.uint8]) -> None:
    np.testing.assert_array_equal(bits.pack(bits.unpack(codes, 8 * codes.shape[1])), codes)


@given(code_arrays)
def test_big_endian_round_trip(codes: NDArray[np.uint8]) -> None:
    big = bits.to_big_endian(codes)
    assert big.dtype == np.uint8
    np.testing.assert_array_equal(bits.from_big_endian(big), codes)
    np.testing.assert_array_equal(bits.to_big_endian(bits.from_big_endian(codes)), codes)


@given(bit_arrays)
def test_big_endian_is_numpys_own_order(array: NDArray[Any]) -> None:
    np.testing.assert_array_equal(
        bits.to_big_endian(bits.pack(array)), np.packbits(array.astype(bool), axis=1)
    )


@pytest.mark.parametrize("n_bits", WIDTHS)
def test_every_width(n_bits: Any) -> None:
    array = np.random.default_rng(n_bits).integers(0, 2, (3, n_bits), dtype=np.uint8)
    codes = bits.pack(array)
    assert codes.shape == (3, bits.bytes_for(n_bits))
    np.testing.assert_array_equal(codes, packed_by_loop(array))
    np.testing.assert_array_equal(bits.unpack(codes, n_bits), array.astype(bool))


def test_any_memory_order() -> None:
    array = np.random.default_rng(0).integers(0, 2, (6, 20), dtype=np.uint8)
    wide = np.repeat(array, 2, axis=1)
    for same in (np.asfortranarray(array), wide[:, ::2], array[::-1][::-1]):
        np.testing.assert_array_equal(bits.pack(same), packed_by_loop(array))
    codes = np.asfortranarray(bits.pack(array))
    np.testing.assert_array_equal(bits.unpack(codes, 20), array.astype(bool))
    np.testing.assert_array_equal(bits.from_big_endian(bits.to_big_endian(codes)), codes)


def test_pack_takes_nested_lists() -> None:
    np.testing.assert_array_equal(bits.pack([[1, 0, 1], [0, 1, 0]]), [[5], [2]])


def test_big_endian_returns_new_memory() -> None:
    codes = np.zeros((2, 2), dtype=np.uint8)  # zero and its reverse are the same byte
    assert not np.shares_memory(bits.to_big_endian(codes), codes)


@pytest.mark.parametrize("n_bits", [1, 7, 9, 12, 4095])
def test_each_dirty_padding_bit_is_refused(n_bits: Any) -> None:
    clean = bits.pack(np.ones((4, n_bits), dtype=bool))
    bits.check_padding(clean, n_bits)
    for padding_bit in range(n_bits % 8, 8):
        dirty = clean.copy()
        dirty[2, -1] |= 1 << padding_bit
        with pytest.raises(InputError, match=f"{n_bits} bits .* {8 - n_bits % 8} zero .* row 2$"):
            bits.unpack(dirty, n_bits)


def test_the_first_dirty_row_is_named() -> None:
    codes = np.array([[7], [8], [255]], dtype=np.uint8)
    with pytest.raises(InputError) as error:
        bits.check_padding(codes, 3, name="queries")
    assert str(error.value) == (
        "queries of 3 bits must have 5 zero padding bits in the last byte, got 0b00001000 in row 1"
    )


def test_a_wrong_width_is_refused_with_both_numbers() -> None:
    with pytest.raises(InputError) as error:
        bits.unpack(np.zeros((2, 3), dtype=np.uint8), 12)
    assert str(error.value) == "codes of 12 bits must be 2 bytes wide, got 3"


@pytest.mark.parametrize("n_bits", [0, -1, 4097, True, 8.0, "8", None])
def test_bad_n_bits(n_bits: Any) -> None:
    with pytest.raises(InputError, match="n_bits must be .*from 1 to 4096, got"):
        bits.bytes_for(n_bits)
    with pytest.raises(InputError, match="n_bits must be .*from 1 to 4096, got"):
        bits.unpack(np.zeros((1, 1), dtype=np.uint8), n_bits)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros(8, bool), r"bits must have 2 dimensions \(n, n_bits\), got shape \(8,\)"),
        (np.zeros((2, 2, 2), bool), r"got shape \(2, 2, 2\)"),
        (np.zeros((2, 0), bool), "bits must have 1 to 4096 columns, got 0"),
        (np.zeros((2, 4097), bool), "bits must have 1 to 4096 columns, got 4097"),
        (np.zeros((2, 8)), "bits must be bool or integers 0 and 1, got dtype float64"),
        ([[1], [1, 0]], "bits cannot be read as an array"),
        (None, "got dtype object"),
        (np.array([[0, 1], [2, -1]]), "bits must be 0 or 1, got 2 in row 1, column 0"),
        (np.array([[0, 1], [1, -1]]), "bits must be 0 or 1, got -1 in row 1, column 1"),
        (np.array([[2**64 - 1]], np.uint64), "got 18446744073709551615 in row 0, column 0"),
    ],
)
def test_pack_refuses(bad: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bits.pack(bad)


def test_no_rows() -> None:
    assert bits.pack(np.zeros((0, 20), bool)).shape == (0, 3)
    assert bits.unpack(np.zeros((0, 3), np.uint8), 20).shape == (0, 20)
    assert bits.to_big_endian(np.zeros((0, 3), np.uint8)).shape == (0, 3)

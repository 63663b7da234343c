"""Threefry in NumPy against known answers, and its distributions."""

import numpy as np
import pytest
from mithril.execution import random

# Random123, kat_vectors: threefry2x32, 20 rounds: counter, key, result.
KNOWN = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


def word(value):
    return np.array([value], np.uint32).view(np.int32)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected):
    block = random.threefry_block(*(word(w) for w in (*key, *counter)))
    assert tuple(int(w.view(np.uint32)[0]) for w in block) == expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform_numbers_fill_the_unit_interval(dtype):
    drawn = random.uniform(random.key_of_seed(1), (1000, 100), dtype)
    assert drawn.dtype == dtype
    assert drawn.min() >= 0
    assert drawn.max() < 1
    wide = drawn.astype(np.float64)
    assert abs(wide.mean() - 0.5) < 0.003
    assert abs(wide.var() - 1 / 12) < 0.001


def test_normal_numbers():
    drawn = random.normal(random.key_of_seed(2), (100_000,), np.float64)
    assert abs(drawn.mean()) < 0.01
    assert abs(drawn.std() - 1) < 0.01
    assert abs((drawn**4).mean() - 3) < 0.1
    assert np.isfinite(drawn).all()


def test_integers_are_uniform_and_in_range():
    drawn = random.integers(random.key_of_seed(3), (80_000,), -3, 5)
    counts = np.bincount(drawn + 3)
    assert len(counts) == 8
    assert abs(counts / 10_000 - 1).max() < 0.05


def test_integers_are_the_product_of_bits_and_span():
    key, low, high = random.key_of_seed(4), -(2**40), 2**61
    drawn = random.integers(key, (50,), low, high)
    first, second = (
        w.view(np.uint32).astype(object) for w in random._words(key, np.arange(50, dtype=np.int64))
    )
    expected = [
        (int(a) << 32 | int(b)) * (high - low) >> 64 for a, b in zip(first, second, strict=True)
    ]
    assert [int(d) for d in drawn] == [e + low for e in expected]


def test_draws_of_a_stream_differ_and_repeat():
    stream = random.Stream(5)
    first, second = (stream.uniform((4,), np.float32) for _ in range(2))
    assert not np.array_equal(first, second)
    stream.seed(5)
    np.testing.assert_array_equal(stream.uniform((4,), np.float32), first)

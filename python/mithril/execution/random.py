"""Threefry-2x32-20: counter-based random bits, equal on every backend.

The block function is written once, over any array type with wrapping 32-bit integers and the
operators ``+ ^ << >> & |``: int32 arrays of NumPy, PyTorch and JAX alike.

Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011), with the
constants of its reference implementation (Random123).
"""

from __future__ import annotations

from typing import Any

from mithril.base.numpy import np

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_ROUNDS = 20
_DIGITS = {"float16": 11, "bfloat16": 8}


def _rotate(x: Any, by: int) -> Any:
    # `>>` keeps the sign, so the bits that it copies in are masked off.
    return (x << by) | ((x >> (32 - by)) & ((1 << by) - 1))


def threefry_block(key0: Any, key1: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Both words of the block at counter (low, high) under the key, as int32 arrays."""
    keys = (key0, key1, key0 ^ key1 ^ _PARITY)
    x, y = low + keys[0], high + keys[1]
    for r in range(_ROUNDS):
        x = x + y
        y = _rotate(y, _ROTATIONS[(r // 4) % 2][r % 4]) ^ x
        if r % 4 == 3:
            turn = r // 4 + 1
            x = x + keys[turn % 3]
            y = y + keys[(turn + 1) % 3] + turn
    return x, y


def key_of_seed(seed: int) -> np.ndarray:
    """The key uint32[2] of an integer: its low and its high word."""
    seed = int(seed) & 0xFFFF_FFFF_FFFF_FFFF
    return np.array([seed & 0xFFFF_FFFF, seed >> 32], np.uint32)


class Stream:
    """A sequence of random arrays: draw k uses the key that block k of the seed's key gives.

    >>> Stream(0).uniform((2,), np.float32) == Stream(0).uniform((2,), np.float32)
    array([ True,  True])
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Starts over."""
        self._key = key_of_seed(seed).view(np.int32)
        self._draws = 0

    def key(self) -> np.ndarray:
        """The key of the next draw, uint32[2]."""
        words = _words(self._key, np.array([self._draws], np.int64))
        return np.stack([words[0][0], words[1][0]]).view(np.uint32)

    def next_key(self) -> np.ndarray:
        """A fresh key, uint32[2]."""
        key = self.key()
        self._draws += 1
        return key

    def uniform(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Uniform in [0, 1)."""
        return uniform(self.next_key(), shape, dtype)

    def normal(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Standard normal."""
        return normal(self.next_key(), shape, dtype)


def _words(key: np.ndarray, counter: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = counter.astype(np.uint32), (counter >> 32).astype(np.uint32)
    with np.errstate(over="ignore"):
        key = np.asarray(key).view(np.int32)
        # Rank 1 throughout: NumPy's scalars would warn where arrays wrap.
        return threefry_block(
            np.atleast_1d(key[0]), np.atleast_1d(key[1]), low.view(np.int32), high.view(np.int32)
        )


def _unit(words: tuple[np.ndarray, np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Bits as a number in [0, 1): as many leading bits as the type has digits."""
    first, second = (w.view(np.uint32) for w in words)
    if dtype == np.float64:
        return ((first >> 5) * 2.0**26 + (second >> 6)) * 2.0**-53
    digits = _DIGITS.get(dtype.name, 24)
    return (first >> (32 - digits)).astype(np.float32) * np.float32(2.0**-digits)


def _counters(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)


def uniform(key: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Uniform in [0, 1): element i from the block at counter i.

    float64 takes 27 bits of the first word and 26 of the second, float32 the top 24 bits of the
    first word, float16 its top 11 and bfloat16 its top 8.
    """
    dtype = np.dtype(dtype)
    return _unit(_words(key, _counters(shape)), dtype).reshape(shape).astype(dtype, copy=False)


def normal(key: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Standard normal by Box and Muller: element i from the blocks at counters 2i and 2i + 1.

    Computed in float32, for float64 in float64.
    """
    dtype = np.dtype(dtype)
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    counters = _counters(shape)
    u = _unit(_words(key, 2 * counters), wide)
    v = _unit(_words(key, 2 * counters + 1), wide)
    radius = np.sqrt(wide.type(-2) * np.log(wide.type(1) - u))
    drawn = radius * np.cos(v * wide.type(2 * np.pi))
    return drawn.reshape(shape).astype(dtype, copy=False)


def integers(key: np.ndarray, shape: tuple[int, ...], low: int, high: int) -> np.ndarray:
    """Integers in [low, high), int64, from 64 bits each; the bias is below (high - low) / 2^64."""
    first, second = (w.view(np.uint32).astype(np.uint64) for w in _words(key, _counters(shape)))
    span = np.uint64(high - low)
    # floor(bits * span / 2^64), exact: products of 32-bit halves, carried by hand.
    mask = np.uint64(0xFFFF_FFFF)
    word = np.uint64(32)
    span_low, span_high = span & mask, span >> word
    middle = first * span_low + ((second * span_low) >> word)
    carry = (middle & mask) + second * span_high
    drawn = first * span_high + (middle >> word) + (carry >> word)
    return (drawn.astype(np.int64) + low).reshape(shape)

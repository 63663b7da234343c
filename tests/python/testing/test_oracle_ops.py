"""The oracle's ops at values worked out by hand, or published."""

import numpy as np
import pytest
from mithril.testing.oracle_ops import SIMPLE, ops_for, threefry

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("op", "args", "attrs", "expected"),
    [
        ("floor_divide", ([7, -7, 5], [2, 2, 0]), {}, [3, -4, 0]),
        ("mod", ([7, -7, 5], [3, 3, 0]), {}, [1, 2, 0]),
        ("power", ([0.0, 2.0], [0.0, -1.0]), {}, [1.0, 0.5]),
        ("power", ([2, 3], [3, -1]), {}, [8, 0]),
        ("clamp", ([-2.0, 0.5, 9.0],), {"min_val": -1.0, "max_val": 1.0}, [-1.0, 0.5, 1.0]),
        ("shift_left", ([1, 1, 1], [2, 64, -1]), {}, [4, 0, 0]),
        ("shift_right", ([-8, -8, 8], [1, 99, 99]), {}, [-4, -1, 0]),
        ("cast", ([1.9, -1.9, 1e9, NAN, -INF],), {"dtype": "int8"}, [1, -1, 127, 0, -128]),
        ("sigmoid", ([0.0, 1000.0, -1000.0],), {}, [0.5, 1.0, 0.0]),
        ("softplus", ([0.0, 1000.0],), {}, [np.log(2.0), 1000.0]),
        ("leaky_relu", ([-1.0, 0.0, 2.0],), {"slope": 0.2}, [-0.2, 0.0, 2.0]),
        ("gelu", ([1.0],), {}, [0.841344746068543]),
        ("gelu", ([1.0],), {"approximate": True}, [0.841191990608276]),
        ("erf", ([0.5, -INF],), {}, [0.520499877813047, -1.0]),
        ("softmax", ([[0.0, np.log(3.0)]],), {}, [[0.25, 0.75]]),
        ("maximum", ([1.0, NAN], [2.0, 0.0]), {}, [2.0, NAN]),
        ("argmax", ([[1.0, 3.0], [3.0, NAN]],), {"axis": 1}, [1, 1]),
        ("argmax", ([[1.0, 3.0], [3.0, 0.0]],), {}, 1),
        ("variance", ([1.0, 2.0, 3.0],), {"correction": 1.0}, 1.0),
        ("sum", ([[True, True]],), {"axis": 1, "keepdim": True}, [[2]]),
        ("prod", (np.zeros((0, 2)),), {"axis": 0}, [1.0, 1.0]),
        ("sum_to", (np.ones((4, 2, 3)), np.ones((2, 1))), {}, [[12.0], [12.0]]),
        ("pad", ([[1.0]],), {"pad_width": ((1, 0), (0, 2))}, [[0.0] * 3, [1.0, 0.0, 0.0]]),
        ("index_add", (np.zeros(3), [1.0, 2.0]), {"index": [1, 1]}, [0.0, 3.0, 0.0]),
        ("layer_norm", ([[1.0, 3.0]],), {"eps": 0.0}, [[-1.0, 1.0]]),
        ("sgd", ([1.0], [2.0]), {"lr": 0.1, "weight_decay": 0.5}, [0.75]),
        ("size", (np.zeros((2, 3)),), {"dim": (1, 0)}, (3, 2)),
        ("arange", (5, 0, -2), {}, [5, 3, 1]),
        ("eye", (2, 3), {}, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    ],
)  # fmt: skip
def test_values(op, args, attrs, expected):
    with np.errstate(all="ignore"):
        result = SIMPLE[op](*(np.asarray(a) if isinstance(a, list) else a for a in args), **attrs)
    np.testing.assert_allclose(result, expected, rtol=1e-14)


def test_convolution_by_hand():
    x = np.arange(9.0).reshape(1, 1, 3, 3)
    w = np.array([[[[1.0, 0.0], [0.0, -1.0]]]])
    assert SIMPLE["conv2d"](x, w).tolist() == [[[[-4.0, -4.0], [-4.0, -4.0]]]]
    padded = SIMPLE["conv2d"](x, w, (2, 2), ((1, 0), (0, 1)))
    assert padded.tolist() == [[[[-1.0, 0.0], [-4.0, 5.0]]]]


def test_pooling_by_hand():
    x = -np.arange(9.0).reshape(1, 1, 3, 3)
    same = {"kernel_size": 3, "stride": 1, "padding": "same", "input": x}
    assert SIMPLE["max_pooling2d"](**same)[0, 0, 2].tolist() == [-3.0, -3.0, -4.0]
    assert SIMPLE["avg_pooling2d"](**same)[0, 0, 0, 0] == pytest.approx(-8.0 / 9.0)


def test_cross_entropy_by_hand():
    loss = ops_for()["cross_entropy"]
    p = np.array([[0.5, 0.25, 0.25], [0.1, 0.0, 0.9]])
    assert loss(p, np.array([1, 2]), input_type="probs") == pytest.approx(-np.log([0.25, 0.9]))
    logits = np.log(np.array([[0.5, 0.25, 0.25]])) + 700.0
    assert loss(logits, np.array([0]), weights=[2.0, 1.0, 1.0]) == pytest.approx(2 * np.log(2))
    # Balanced: N / (C n_c) = 2 / (3 · 1) for both classes that occur.
    balanced = loss(p, np.array([0, 2]), weights="auto", input_type="probs")
    assert balanced == pytest.approx(-np.log([0.5, 0.9]) * 2 / 3)


def test_threefry_is_the_published_one():
    """Known answers of the Random123 distribution for threefry2x32, 20 rounds."""
    for key, counter, words in [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ]:
        block = np.uint64(counter[0] | counter[1] << 32).astype(np.int64)
        assert tuple(int(word) for word in threefry(*key, block)) == words

"""The oracle's layers of windows and norms at values worked out by hand."""

import numpy as np
import pytest
from mithril.testing.oracle_windows import TABLE

X = [[[1.0, 2.0, 4.0, 8.0]]]
LINE = {"kernel_size": 2, "stride": 1, "dilation": 1}

CASES = {
    "a convolution of a sequence": (
        *("convolution1d", {"weight": [[[1.0, -1.0]]], "input": X, "padding": (1, 0)}),
        [[[-1.0, -1.0, -2.0, -4.0]]],
    ),
    "strides and dilation": (
        *("convolution1d", {"weight": [[[1.0, 1.0]]], "input": X, "stride": 2, "dilation": 2}),
        [[[5.0]]],
    ),
    "two groups": (
        "convolution1d",
        {"weight": [[[2.0]], [[3.0]]], "input": [[[1.0], [1.0]]], "groups": 2},
        [[[2.0], [3.0]]],
    ),
    "a convolution of a volume": (
        "convolution3d",
        {"weight": np.ones((1, 1, 2, 1, 1)), "input": np.arange(3.0).reshape(1, 1, 3, 1, 1)},
        np.array([1.0, 3.0]).reshape(1, 1, 2, 1, 1),
    ),
    "a transposed convolution": (
        *("convtranspose1d", {"weight": [[[1.0, 10.0]]], "input": [[[1.0, 2.0]]], "stride": 2}),
        [[[1.0, 10.0, 2.0, 20.0]]],
    ),
    "one that is cut and goes on": (
        "convtranspose1d",
        {"weight": [[[1.0, 10.0]]], "input": [[[1.0, 2.0]]], "stride": 2, "padding": 1,
         "output_padding": 1},
        [[[10.0, 2.0, 20.0]]],
    ),
    "maxima": ("max_pooling1d", {"input": X, "padding": (1, 0), **LINE}, [[[1.0, 2.0, 4.0, 8.0]]]),
    "minima": ("min_pooling1d", {"input": X, "padding": (0, 1), **LINE}, [[[1.0, 2.0, 4.0, 8.0]]]),
    "means": ("avg_pooling1d", {"input": X, "padding": (0, 1), **LINE}, [[[1.5, 3.0, 6.0, 4.0]]]),
    "windows that overlap": (
        *("adaptiveavgpool1d", {"input": [[1.0, 2.0, 6.0]], "output_size": 2}),
        [[1.5, 4.0]],
    ),
    "the largest of each": (
        *("adaptivemaxpool1d", {"input": [[1.0, 2.0, 6.0]], "output_size": 2}),
        [[2.0, 6.0]],
    ),
    "nearest": ("interpolate", {"input": [[[1.0, 2.0]]], "size": 4}, [[[1.0, 1.0, 2.0, 2.0]]]),
    "linear": (
        *("interpolate", {"input": [[[1.0, 3.0]]], "size": 4, "mode": "linear"}),
        [[[1.0, 1.5, 2.5, 3.0]]],
    ),
    "linear, corners kept": (
        "interpolate",
        {"input": [[[1.0, 4.0]]], "size": 4, "mode": "linear", "align_corners": True},
        [[[1.0, 2.0, 3.0, 4.0]]],
    ),
    "mirrored": ("reflectionpad", {"input": [1.0, 2.0], "pad_width": (1, 1)}, [2.0, 1.0, 2.0, 1.0]),
    "going on": ("circularpad", {"input": [1.0, 2.0], "pad_width": (1, 0)}, [2.0, 1.0, 2.0]),
    "repeated": ("replicationpad", {"input": [1.0, 2.0], "pad_width": (2, 0)}, [1.0] * 3 + [2.0]),
    "two groups of channels": (
        *("group_norm", {"input": [[1.0, 3.0, 5.0, 9.0]], "num_groups": 2, "eps": 0.0}),
        [[-1.0, 1.0, -1.0, 1.0]],
    ),
    "channels alone": (
        *("instance_norm", {"input": [[[1.0, 3.0], [5.0, 9.0]]], "eps": 0.0}),
        [[[-1.0, 1.0], [-1.0, 1.0]]],
    ),
    "mean squares": (
        *("rms_norm", {"input": [3.0, 4.0], "eps": 0.0, "weight": [5.0, 5.0]}),
        [15.0 / 12.5**0.5, 20.0 / 12.5**0.5],
    ),
    "no stride": ("stride_converter", {"input": None, "kernel_size": 3}, 3),
    "half a window": ("padding_converter_1d", {"input": "same", "kernel_size": 5}, (2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_values(what):
    op, named, expected = CASES[what]
    tensors = ("input", "weight")
    arrays = {
        k: np.asarray(v) if k in tensors and isinstance(v, list) else v for k, v in named.items()
    }
    np.testing.assert_allclose(TABLE[op](**arrays), expected, rtol=1e-14)


def test_weights_of_cubic_convolution():
    """The kernel with a = -0.75 at halves: 19/32 for neighbours, -3/32 for the next ones."""
    x = np.array([0.0, 0.0, 1.0, 0.0, 0.0]).reshape(1, 1, 1, 5)
    wide = TABLE["interpolate"](x, size=(1, 9), mode="bicubic", align_corners=True)
    near, far = 19 / 32, -3 / 32
    np.testing.assert_allclose(
        wide.reshape(-1), [0, far, 0, near, 1, near, 0, far, 0], rtol=1e-14, atol=1e-15
    )


def test_running_statistics_move():
    x = np.array([[1.0], [3.0]])
    y, mean, var = TABLE["batch_norm1d"](
        x, np.zeros(1), np.ones(1), eps=0.0, momentum=0.5, mode="train"
    )
    assert y.tolist() == [[-1.0], [1.0]]
    assert (mean.tolist(), var.tolist()) == ([1.0], [1.5])

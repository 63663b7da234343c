"""Numbers by position in the order of other libraries are told; what is meant is quiet."""

import warnings

import mithril as ml
import pytest
from mithril.errors import NearMissWarning


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ml.Conv2d(3, 16, 3), r"\(3, 16, 3\): taken for kernel_size=3, out_channels=16, "
         r"stride=3; if it is in PyTorch's order .*kernel_size=3, out_channels=16\)"),
        (lambda: ml.Conv2D(16, 3), r"taken for kernel_size=16, out_channels=3; if it is in Keras' "
         r"order, write Convolution2D\(kernel_size=3, out_channels=16\)"),
        (lambda: ml.Conv1d(4, 8, 5), "stride=5"),
        (lambda: ml.ConvTranspose2D(8, 4, 2), "stride=2"),
    ],
)  # fmt: skip
def test_orders_of_others(make, said):
    with pytest.warns(NearMissWarning, match=said) as caught:
        make()
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "make",
    [
        lambda: ml.Conv2d(3, 16),
        lambda: ml.Conv2d(3, 1),
        lambda: ml.Conv2d(7, 3),
        lambda: ml.Conv2d(16, 768, stride=16),
        lambda: ml.Conv2d(kernel_size=16, out_channels=3, stride=2),
        lambda: ml.Conv2d(3, filters=8),
        lambda: ml.Conv2d((3, 3), 8, (2, 2)),
    ],
)
def test_what_is_meant_is_quiet(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make()

"""Numbers that arguments may be: typed errors where the layer is written."""

import math

import mithril as ml
import pytest
from mithril.errors import ArgumentError

NAN = math.nan
OUTSIDE = [
    (ml.Dropout, "p", (-0.1, 1.5, NAN, math.inf), "from 0 to 1"),
    (ml.DropoutAttention, "p", (-0.1, 1.5, NAN), "from 0 to 1"),
    (ml.BatchNorm1D, "momentum", (-0.1, 1.5, NAN), "from 0 to 1"),
    (ml.BatchNorm2D, "eps", (-1e-5, NAN), "at least 0"),
    (ml.LayerNorm, "eps", (-1e-5, NAN), "at least 0"),
    (ml.RMSNorm, "eps", (-1e-5, NAN), "at least 0"),
    (ml.GroupNorm, "eps", (-1e-5, NAN), "at least 0"),
    (ml.InstanceNorm, "eps", (-1e-5, NAN), "at least 0"),
    (ml.CosineSimilarity, "eps", (-1.0, NAN), "at least 0"),
    (ml.GaussianNLLLoss, "eps", (-1.0, NAN), "at least 0"),
    (ml.PoissonNLLLoss, "eps", (-1.0, NAN), "at least 0"),
    (ml.QuantileLoss, "quantile", (-0.1, 1.5, NAN), "from 0 to 1"),
    (ml.HuberLoss, "delta", (-1.0, 0.0, NAN), "above 0"),
    (ml.SmoothL1Loss, "beta", (-1.0, NAN), "at least 0"),
]
INSIDE = [
    (ml.Dropout, "p", (0, 0.0, 0.3, 1, 1.0)),
    (ml.BatchNorm1D, "momentum", (0.0, 1)),
    (ml.LayerNorm, "eps", (0.0, 1e-12)),
    (ml.HuberLoss, "delta", (1e-3, 2)),
    (ml.SmoothL1Loss, "beta", (0.0,)),
]


@pytest.mark.parametrize("layer, argument, numbers, range_", OUTSIDE)
def test_numbers_outside_are_refused(layer, argument, numbers, range_):
    for number in numbers:
        with pytest.raises(ArgumentError, match=f"'{argument}' must be {range_}, got "):
            layer(**{argument: number})


@pytest.mark.parametrize("layer, argument, numbers", INSIDE)
def test_numbers_inside_are_taken(layer, argument, numbers):
    for number in numbers:
        layer(**{argument: number})


def test_a_refused_layer_says_what_it_got():
    with pytest.raises(ArgumentError, match="dropout: 'p' must be from 0 to 1, got 1.5"):
        ml.Dropout(1.5)

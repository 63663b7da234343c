"""Pooling layers of users: the bases do what the engine's own layers do by the same op."""

import mithril as ml
import pytest
from mithril import models as m
from mithril.errors import SignatureError
from models.composite_cases import numbers, run


class Max1D(m.Pool1D):
    pool_model = m.PrimitiveMaxPool1D


class Max2D(m.Pool2D):
    @property
    def pool_model(self):
        return m.PrimitiveMaxPool2D


class Avg2D(m.Pool2D):
    pool_model = m.PrimitiveAvgPool2D


LINE = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 1, "padding": "same"},
    {"kernel_size": 2, "stride": 1, "padding": 1, "dilation": 2},
    {"kernel_size": 2, "padding": (1, 0)},
]
IMAGE = [*LINE, {"kernel_size": (3, 2), "stride": (1, 2), "padding": ((1, 0), (0, 1))}]
PAIRS = [(Max1D, m.MaxPool1D, LINE), (Max2D, m.MaxPool2D, IMAGE), (Avg2D, m.AvgPool2D, IMAGE)]


@pytest.mark.parametrize("own, builtin, cases", PAIRS)
def test_values(own, builtin, cases, backend_name):
    inputs = numbers(5, input=(2, 3, 7, 6)[: 3 if own is Max1D else 4])
    for arguments in cases:
        found, wanted = (run(c(**arguments), inputs, backend_name)[0] for c in (own, builtin))
        assert found["output"].tolist() == wanted["output"].tolist(), arguments


def test_keys():
    assert Max1D(2).input_keys == ["stride", "kernel_size", "padding", "input", "dilation"]
    assert Max2D(2).input_keys == ["kernel_size", "stride", "padding", "dilation", "input"]
    model = ml.Model()
    model |= Max1D(ml.TBD)(input="x", kernel_size="k", output="y")
    assert model.input_keys == ["k", "x"]


@pytest.mark.parametrize("kind", ["Max", "Min", "Avg"])
def test_the_layers_count_as_such(kind):
    assert isinstance(getattr(m, f"{kind}Pool1D")(2), m.Pool1D)
    assert issubclass(getattr(m, f"{kind}Pool2D"), m.Pool2D)


@pytest.mark.parametrize("base", [m.Pool1D, m.Pool2D])
def test_bases_are_no_layers(base):
    with pytest.raises(SignatureError, match="is the base of pooling layers"):
        base(2)

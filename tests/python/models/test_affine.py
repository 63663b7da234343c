import mithril as ml
import numpy as np
import pytest
from mithril.models import ElementWiseAffine
from models.composite_cases import check, numbers

SHAPES = [
    ((2, 3), (2, 3), (2, 3)),
    ((2, 3), (3,), (2, 1)),
    ((3,), (), (2, 3)),
    ((0, 3), (3,), (3,)),
]


@pytest.mark.parametrize("shapes", SHAPES)
def test_values_and_gradients(shapes, backend_name):
    inputs = numbers(1, **dict(zip(("input", "weight", "bias"), shapes, strict=True)))
    check(
        ElementWiseAffine(),
        lambda input, weight, bias: {"output": input * weight + bias},
        inputs,
        backend_name,
    )


def test_of_numbers():
    model = ml.Model()
    model |= ElementWiseAffine()(input=3, weight=2, bias=1.5, output="y")
    assert model.y.metadata.value == 7.5
    assert model.conns.get_type("y") == "float"


def test_kinds():
    model = ElementWiseAffine(weight=ml.Tensor([2]), bias=3)
    model.set_types(input=ml.Tensor[int])
    assert model.conns.get_type("output") == "int tensor"
    assert np.all([c.key == "input" for c in model.conns.cins])

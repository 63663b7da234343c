"""Models that are one op: what their constructors take."""

import mithril as ml
import pytest
from mithril.errors import ArgumentError, MithrilError, SignatureError
from mithril.operator_model import OperatorModel


def test_it_has_no_op_of_its_own():
    with pytest.raises(SignatureError, match="subclasses"):
        OperatorModel()


def test_a_default_pins_its_key_and_tbd_opens_it():  # reference 7.2-28
    assert "axis" not in ml.models.Mean().connect().connections
    pinned, open_ = ml.models.Mean(), ml.models.Mean(axis=ml.TBD)
    assert pinned.conns.get_type("axis") == "none"
    assert "int" in open_.conns.get_type("axis")


def test_a_value_given_to_a_wire():
    model = ml.models.Add(right=2.0)
    assert model._node.is_valued("right")
    assert [wire.key for wire in model.conns.cins] == ["left"]


def test_a_tensor_is_used_once():
    weights = ml.Tensor([[1.0, 2.0]])
    ml.Linear(1, weight=weights)
    with pytest.raises(ArgumentError, match="one place only"):
        ml.Linear(1, weight=weights)


def test_a_failed_constructor_leaves_the_tensor_free():
    weights = ml.Tensor([[1.0, 2.0]])
    with pytest.raises(MithrilError):
        ml.Linear(3, weight=weights)
    assert ml.Linear(1, weight=weights) is not None

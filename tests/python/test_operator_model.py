"""Models that are one op: what their constructors take."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, DTypeError, MithrilError, SignatureError
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


ROBUST = {"Log": "RobustLog", "Sqrt": "RobustSqrt", "Power": "RobustPower"}


@pytest.mark.parametrize("name", ROBUST)
def test_robust_forms(name):
    plain = getattr(ml.models, name)
    robust = plain(robust=True)
    assert type(robust) is getattr(ml.models, ROBUST[name]) and isinstance(robust, plain)
    assert robust.input_keys == [*plain().input_keys, "threshold"]
    assert robust.formula_key == f"robust_{plain().formula_key}"
    assert plain(robust=False).input_keys == plain().input_keys
    with pytest.raises(SignatureError) as failure:
        plain(threshold=0.5)
    assert str(failure.value).startswith(f"{name}: threshold: requires robust=True")
    with pytest.raises(SignatureError):
        plain(robust="yes")


@pytest.mark.device
@pytest.mark.parametrize("threshold", [0.25, ml.Tensor(0.25), None])
def test_thresholds(threshold):
    model, data = ml.Model(), {"x": np.array([0.0, -0.125, 4.0])}
    if threshold is None:
        limit = ml.IOKey("limit", type=ml.Tensor[float])
        model |= ml.Sqrt(robust=True, threshold=ml.TBD)(input="x", threshold=limit, output="y")
        data["limit"] = np.array(0.25)
    else:
        model |= ml.Sqrt(robust=True, threshold=threshold)(input="x", output="y")
    pm = ml.compile(model, ml.NumpyBackend(dtype="float64"), inference=True)
    assert pm.evaluate({}, data)["y"].tolist() == [0.0, 0.25, 2.0]


def test_robust_forms_are_kept_by_files(tmp_path):
    model = ml.Model()
    model |= ml.Power(robust=True, exponent=3.0)(base="x", output="y")
    model.save(tmp_path / "model.json")
    loaded, _ = ml.load(tmp_path / "model.json")
    assert loaded.to_json() == model.to_json()
    assert "robust_power" in loaded.to_json()


@pytest.mark.parametrize("name", ["Cast", "Arange", "Randn", "Ones", "Eye", "ToTensor"])
def test_dtypes_are_given_by_name_too(name):
    further = {
        "Arange": {"stop": 3},
        "Randn": {"shape": (2,)},
        "Ones": {"shape": (2,)},
        "Eye": {"N": 3},
    }
    cls, arguments = getattr(ml, name), further.get(name, {})
    model = cls(dtype="int16", **arguments)
    assert model.factory_args["dtype"] is ml.int16
    with pytest.raises(DTypeError, match=f"{name}: dtype: requires one of .*, got 'sixteen'"):
        cls(dtype="sixteen", **arguments)
    with pytest.raises(DTypeError, match="dtype must be none or dtype, got int"):
        ml.Model().extend(cls(dtype=3, **arguments))


@pytest.mark.device
def test_casts_to_a_dtype_by_name():
    model = ml.Model()
    model |= ml.Cast(dtype="float64")(input="x", output="y")
    x = np.array([1.5, 0.0], "f4")
    y = ml.compile(model, ml.NumpyBackend(), inference=True).evaluate({}, {"x": x})["y"]
    assert y.dtype == np.float64 and y.tolist() == [1.5, 0.0]

"""Models that are one op: what their constructors take."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, DTypeError, MithrilError, SignatureError
from mithril.models.operator_model import OperatorModel


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
    dtype = "float16" if name == "Randn" else "int16"
    model = cls(dtype=dtype, **arguments)
    assert model.factory_args["dtype"] is ml.Dtype(dtype)
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


def test_a_dtype_is_the_one_chosen_at_compile(backend_name):
    for width in ("float32", "float64"):
        backend = ml.get_backend(backend_name, dtype=width)
        x, i = ml.IOKey("x", type=ml.Tensor[float]), ml.IOKey("i", type=ml.Tensor[int])
        narrow = x.cast(ml.float16)
        wires = {"of_x": x.dtype(), "of_narrow": narrow.dtype(), "of_bool": (x > 0).dtype()}
        # Until dtypes are chosen a cast to a wire's dtype has none that counts.
        wires["of_cast"] = i.cast(narrow.cast(x.dtype()).dtype()).dtype()
        model = ml.Model()
        for name, wire in wires.items():
            model |= ml.Buffer()(input=wire, output=name)
        model |= ml.Buffer()(input=i.cast(x.dtype()), output="cast")
        shapes = {"x": [2], "i": [2]}
        for jit in (False, True):
            pm = ml.compile(
                model, backend, data_keys={"x", "i"}, shapes=shapes, inference=True, jit=jit
            )
            found = pm.evaluate({}, {"x": np.zeros(2, width), "i": np.array([1, 2])})
            assert backend.to_numpy(found.pop("cast")).dtype == width
            of = {"of_x": width, "of_narrow": "float16", "of_bool": "bool", "of_cast": width}
            assert found == {key: ml.Dtype(name) for key, name in of.items()}
            assert all(type(dtype) is ml.Dtype for dtype in found.values())


def test_values_of_list_items():
    model = ml.Model()
    model |= ml.models.ToTuple(2, input1=3)(input2="n", output="pair")
    model |= ml.models.PrimitiveUnion(2, input1=(1, 2))(input2="n", output="joined")
    model |= ml.models.PrimitiveUnion(input1=(1, 2))(output="alone")
    model.set_values(n=5)
    found = [model[key].metadata.value for key in ("pair", "joined", "alone")]
    assert found == [(3, 5), (1, 2, 5), (1, 2)]
    assert ml.models.ToList(2, input1=3).factory_args == {"n": 2, "input1": 3}
    with pytest.raises(MithrilError, match="no key 'input3'"):
        ml.models.ToList(2, input3=3)


def values_of(model, data):
    pm = ml.compile(model, ml.NumpyBackend(), data_keys=set(data), inference=True)
    return pm.evaluate({}, data)


def test_what_layers_take_as_wires():
    model = ml.Model()
    model |= ml.models.Split(ml.TBD, ml.TBD)(input="x", split_size=2, axis=1, output="parts")
    model |= ml.Buffer()(input=model.parts[1], output="last")
    model |= ml.models.PositionalEncoding(max_len=3)(input="x", hidden_dim=4, output="told")
    x = np.arange(8.0).reshape(2, 4)
    found = values_of(model, {"x": x})
    np.testing.assert_array_equal(found["last"], x[:, 2:])
    np.testing.assert_allclose(found["told"][0], x[0] + [0, 1, 0, 1])
    with pytest.raises(MithrilError, match="at most max_len = 3"):
        model.set_shapes(x=[4, 4])


def test_inference_is_another_word_for_the_mode():
    def mode(**arguments):
        return ml.models.BatchNorm2D(3, **arguments).factory_args["mode"]

    assert [mode(), mode(inference=True), mode(inference=False)] == [None, "eval", "train"]
    assert mode(inference=True, mode="eval") == "eval"
    with pytest.raises(SignatureError, match="inference=True is mode='eval', got mode='train'"):
        mode(inference=True, mode="train")
    with pytest.raises(SignatureError, match="requires True or False"):
        mode(inference=1.5)


@pytest.mark.parametrize(
    ("drawn", "form", "further"),
    [("Rand", "PrimitiveRand", {}), ("Randn", "PrimitiveRandn", {}),
     ("RandInt", "PrimitiveRandInt", {"low": 0, "high": 9})],
)  # fmt: skip
def test_draws_with_a_key_are_those_of_the_primitive(drawn, form, further):
    cls, primitive = getattr(ml.models, drawn), getattr(ml.models, form)
    model = ml.Model()
    model |= cls(key=7, **further)(shape=(2, 3), output="given")
    model |= cls(key=ml.IOKey(type=int), **further)(shape=(2, 3), key="k", output="wired")
    model |= primitive(key=7, **further)(shape=(2, 3), output="wanted")
    model |= cls((2, 3), **further)(output="moving")
    model.set_values(k=7)
    found = values_of(model, {})
    for key in ("given", "wired"):
        np.testing.assert_array_equal(found[key], found["wanted"])
    assert not np.array_equal(found["moving"], found["wanted"])
    assert isinstance(cls(key=7, **further), cls)
    with pytest.raises(MithrilError, match="has no key 'key'"):
        ml.Model().extend(cls((2, 3), **further), key=7)

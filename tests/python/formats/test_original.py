"""Dictionaries of the original, written down from its documented form (reference, section 6)."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import KeyNotFound, MithrilError, ParseError, UnsupportedError
from mithril.formats import dict_to_model

LINEARS = {
    "name": "Model",
    "args": {},
    "submodels": {
        "m_0": {"name": "Linear", "args": {"dimension": 4}},
        "m_1": {"name": "Relu", "args": {}},
        "m_2": {"name": "linear", "args": {"dimension": 1}},
    },
    "connections": {
        "m_0": {"input": "input", "weight": "w0", "output": {"key": {"name": "h"}}},
        "m_1": {"input": {"key": {"connect": [["m_0", "output"]]}}},
        "m_2": {"input": {"key": {"connect": [["m_1", "output"]]}}, "output": "out"},
    },
    "exposed_keys": ["out", "h"],
    "assigned_shapes": [["input", ["batch", 3]]],
}


def test_a_structure():
    model = dict_to_model(LINEARS)
    assert model.output_keys == ["out", "h"]
    assert model.shapes["input"] == ["batch", 3]
    assert model.shapes["w0"] == [4, 3]
    assert [child.class_name for child in model._node.submodels] == ["Linear", "Relu", "Linear"]
    built = ml.Model()
    built |= ml.Linear(4)(input="input", weight="w0", output="h")
    built |= ml.Relu()(input="h", output="r")
    built |= ml.Linear(1)(input="r", output="out")
    built.expose_keys("out", "h")
    x = {"input": np.ones((2, 3))}
    rows = []
    for each in (model, built):
        pm = ml.compile(each, ml.NumpyBackend(), shapes={"input": [2, 3]})
        weights = [np.full_like(v, 0.5) for v in pm.randomize_params().values()]
        rows.append(pm.evaluate(dict(zip(pm.param_keys, weights, strict=True)), x))
    np.testing.assert_array_equal(rows[0]["out"], rows[1]["out"])


def test_constants_tensors_and_facts_of_keys():
    model = dict_to_model({
        "name": "Model",
        "submodels": {
            "m_0": {"name": "Add", "args": {}},
            "m_1": {"name": "Mean", "args": {"axis": [0, 1], "keepdim": True}, "tuples": ["axis"]},
            "m_2": {"name": "Multiply", "args": {}},
        },
        "connections": {
            "m_0": {"left": {"tensor": [[1.0, 2.0]]}, "right": {"key": {
                "name": "x", "shape": ["a", "V, ..."], "type": {"Tensor": ["float"]},
                "differentiable": True}}},
            "m_1": {"input": {"key": {"connect": [["m_0", "output"]]}}},
            "m_2": {"left": {"key": {"connect": [["m_1", "output"]], "name": "mean"}}, "right": 2.0,
                    "output": {"key": {"name": "y"}}},
        },
        "assigned_types": [["y", {"Tensor": ["float"]}]],
        "assigned_cins": ["x"],
        "assigned_couts": [["m_2", 2]],
    })  # fmt: skip
    assert model._node.differentiable("x") is True
    assert model.shapes["x"][0] == "a"
    assert model.cin.key == "x"
    assert model.cout.key == "y"
    assert model["mean"].key == "mean"
    pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": [2, 2]})
    y = pm.evaluate({"x": np.ones((2, 2))})["y"]
    np.testing.assert_allclose(y, [[5.0]])


def test_unnamed_keys_stay_unnamed():
    form = {**LINEARS, "unnamed_keys": ["w0"]}
    assert "w0" not in dict_to_model(form).input_keys
    assert "$1" in dict_to_model(form).input_keys


def test_a_class_by_its_name():
    assert isinstance(dict_to_model("sigmoid"), ml.Sigmoid)
    pool = dict_to_model({"name": "MaxPool2D", "args": {"kernel_size": [2, 2], "padding": 1},
                          "tuples": ["kernel_size"],
                          "enums": {"padding": "PaddingType"}})  # fmt: skip
    assert isinstance(pool, ml.MaxPool2D)


def test_training():
    train = dict_to_model({
        "is_train_model": True,
        "model": LINEARS,
        "losses": [{"model": {"name": "SquaredError", "args": {}},
                    "reduce_steps": [{"name": "Mean", "args": {}}],
                    "args": {"input": "out", "target": {"tensor": [[1.0], [2.0]]}}}],
        "regularizations": [{"model": {"name": "Sum", "args": {}}, "coef": 0.1,
                             "args": {"input": {"pattern": "^w"}}}],
    })  # fmt: skip
    assert isinstance(train, ml.TrainModel)
    pm = ml.compile(train, ml.NumpyBackend(), shapes={"input": [2, 3]})
    outputs = pm.evaluate(pm.randomize_params(), {"input": np.ones((2, 3))})
    assert "final_cost" in getattr(outputs, "outputs", outputs)


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ("NoSuchModel", KeyNotFound),
        ({"name": "__class__"}, KeyNotFound),
        ({"name": "Model", "submodels": {"m_0": {"name": "Gone"}}}, KeyNotFound),
        ({"args": {}}, ParseError),
        (3, MithrilError),
        ({"name": "Model", "submodels": []}, ParseError),
        ({**LINEARS, "connections": {"m_9": {}}}, KeyNotFound),
        ({**LINEARS, "connections": {"m_0": {"nothing": "x"}}}, MithrilError),
        ({**LINEARS, "assigned_shapes": [["gone", [1]]]}, KeyNotFound),
        ({**LINEARS, "assigned_shapes": [[["m_0", 99], [1]]]}, KeyNotFound),
        ({**LINEARS, "assigned_shapes": ["input"]}, ParseError),
        ({**LINEARS, "assigned_types": [["input", "__import__('os')"]]}, ParseError),
        ({**LINEARS, "assigned_types": [["input", {"Tensor": []}]]}, ParseError),
        ({**LINEARS, "assigned_constraints": [{"fn": "f", "keys": []}]}, UnsupportedError),
        ({**LINEARS, "assigned_constraints": [None]}, ParseError),
        ({"is_train_model": True, "model": LINEARS, "losses": [None]}, ParseError),
        ({"is_train_model": True, "model": LINEARS, "regularizations": ["x"]}, ParseError),
        ({**LINEARS, "unnamed_keys": [["w0"]]}, ParseError),
        ({**LINEARS, "exposed_keys": [[["m_0"], "output"]]}, ParseError),
        ({**LINEARS, "exposed_keys": [["m_0", ["output"]]]}, ParseError),
        ({"name": "Relu", "tuples": [{}]}, ParseError),
        ({"name": "MaxPool2D", "args": {"padding": 1}, "enums": {"padding": []}}, MithrilError),
        ({**LINEARS, "connections": {"m_0": {"model": "x"}}}, TypeError),
        (
            {
                "is_train_model": True,
                "model": LINEARS,
                "losses": [{"model": "SquaredError", "args": {"reduce_steps": "x"}}],
            },
            TypeError,
        ),
        ({"name": "Linear", "args": {"dimension": 4, "no": 1}}, TypeError),
    ],
)
def test_what_is_not_of_that_form_is_refused(form, error):
    with pytest.raises(error):
        dict_to_model(form)


def test_deep_forms_are_refused():
    form = LINEARS
    for _ in range(3000):
        form = {"name": "Model", "submodels": {"m_0": form}}
    with pytest.raises(ParseError):
        dict_to_model(form)


def test_facts_of_a_class():
    form = {"name": "Add", "assigned_types": [["left", {"Tensor": ["float"]}]],
            "assigned_shapes": [[["left", ["a", 3]]], [["right", ["a", 1]]]],
            "assigned_differentiabilities": [["right", True]]}  # fmt: skip
    model = dict_to_model(form)
    assert model.shapes["left"][1] == 3 and model.shapes["right"][1] == 1
    assert model.shapes["output"][1] == 3  # "a" of two calls is two sizes
    assert model.right.metadata.differentiable
    one_call = {"name": "Add", "assigned_shapes": [[["left", ["a", 3]], ["right", ["a", 1]]]]}
    shapes = dict_to_model(one_call).shapes
    assert shapes["left"][0] == shapes["right"][0] == shapes["output"][0] == "a"


def test_words_and_models_among_arguments():
    svm = dict_to_model({"name": "kernelizedsvm", "args": {"kernel": "RBFKernel"}})
    assert "sigma" in svm.input_keys
    form = {"name": "Convolution1D", "args": {"kernel_size": 3, "out_channels": 2, "padding": "SAME"},  # noqa: E501
            "enums": {"padding": "PaddingType"}, "assigned_shapes": [["input", [1, 4, 9]]]}  # fmt: skip  # noqa: E501
    assert dict_to_model(form).shapes["output"] == [1, 2, 9]
    indexer = {"name": "Indexer", "args": {"index": "(Ellipsis,)"},
               "assigned_shapes": [["input", [2, 3]]]}  # fmt: skip
    assert dict_to_model(indexer).shapes["output"] == [2, 3]
    cast = dict_to_model({"name": "Cast", "args": {"dtype": "Dtype.int32"}})
    assert cast._node.value("dtype") == (ml.int32,)
    with pytest.raises(ParseError, match="there is no 'Dtype.float7'"):
        dict_to_model({"name": "Cast", "args": {"dtype": "Dtype.float7"}})
    with pytest.raises(ParseError, match="holds pairs"):
        dict_to_model({"name": "Add", "assigned_shapes": [[["left", [1]]], "left"]})

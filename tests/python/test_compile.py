# Covers: compile.cc
# Covers: mithril/physical/compilation.py mithril/physical/program.py
# Covers: mithril/physical/executables.py mithril/physical/snapshots.py
# Covers: mithril/physical/program_keys.py mithril/physical/targets.py mithril/physical/literals.py
"""`ml.compile`: its keywords, and what it refuses."""

import importlib
import inspect

import mithril as ml
import numpy as np
import pytest
from mithril.errors import (
    ArgumentError,
    EmptyModelWarning,
    KeyNotFound,
    MithrilError,
    SignatureError,
    UnsupportedError,
    UnusedKeyWarning,
)

pytestmark = pytest.mark.device


def linear():
    model = ml.Model()
    model |= ml.Linear(2)(input="input", weight="w", bias="b", output="output")
    return model


X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
PARAMS = {"w": np.ones((2, 3), np.float32), "b": np.array([0.0, 1.0], np.float32)}


def test_all_spellings():  # C1, K6
    for pm in (
        ml.compile(linear(), ml.NumpyBackend()),
        ml.compile(linear(), backend=ml.NumpyBackend()),
        ml.compile(model=linear(), backend=ml.NumpyBackend()),
        linear().compile(ml.NumpyBackend()),
        linear().compile(backend=ml.NumpyBackend()),
    ):
        np.testing.assert_allclose(
            pm.evaluate(PARAMS, {"input": X})["output"], X.sum(1)[:, None] + [0, 1]
        )


def test_keywords_are_the_documents():
    names = set(inspect.signature(ml.compile).parameters)
    assert names >= {
        *("model", "backend", "shapes", "data_keys", "constant_keys", "trainable_keys"),
        *("discard_keys", "inference", "mode", "jit", "autodiff", "optimizer", "file_path"),
    }


def test_the_module_can_be_called():
    module = importlib.import_module("mithril.compile")
    assert module(linear(), ml.NumpyBackend()).output_keys == ["output"]
    assert inspect.signature(module) == inspect.signature(module.compile)
    assert list(inspect.signature(module).parameters)[:2] == ["model", "backend"]


def test_constant_keys():
    pm = ml.compile(linear(), ml.NumpyBackend(), constant_keys={"w": PARAMS["w"]})
    assert pm.trainable_keys == ("b",)
    out = pm.evaluate({"b": PARAMS["b"]}, {"input": X})["output"]
    np.testing.assert_allclose(out, X.sum(1)[:, None] + [0, 1])


def test_trainable_keys():
    pm = ml.compile(linear(), ml.NumpyBackend(), trainable_keys={"input"}, shapes={"input": [2, 3]})
    assert set(pm.trainable_keys) == {"input", "w", "b"}


def test_unknown_data_keys_warn():  # K11, C4
    with pytest.warns(UnusedKeyWarning, match="'target'"):
        pm = ml.compile(linear(), ml.NumpyBackend(), data_keys={"input", "target"})
    pm.evaluate(PARAMS, {"input": X, "target": 3})
    with pytest.raises(KeyNotFound, match="target"):
        ml.compile(linear(), ml.NumpyBackend(), data_keys={"target"}, strict=True)


def test_an_empty_model():  # K62
    with pytest.warns(EmptyModelWarning):
        pm = ml.compile(ml.Model(), ml.NumpyBackend())
    assert pm.evaluate() == {}
    with pytest.warns(EmptyModelWarning):
        assert pm(X) == {}


def test_file_path(tmp_path):
    path = tmp_path / "emitted.py"
    ml.compile(linear(), ml.NumpyBackend(), file_path=str(path), shapes={"input": [2, 3]})
    assert "def evaluate(" in path.read_text()


def test_the_model_is_not_changed():
    model = linear()
    before = model._node.dump()
    ml.compile(model, ml.NumpyBackend(), shapes={"input": [4, 3]})
    assert model._node.dump() == before


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"data_keys": {"input"}, "trainable_keys": {"input"}}, ArgumentError),
        ({"mode": "test"}, ArgumentError),
        ({"autodiff": "magic"}, ArgumentError),
        ({"autodiff": "framework"}, UnsupportedError),
        ({"shapes": 3}, SignatureError),
        ({"shapes": {"nope": [1]}}, KeyNotFound),
        ({"shapes": {"input": [2, -3]}}, MithrilError),
        ({"shapes": {"input": [2, 2**63]}}, MithrilError),
        ({"shapes": {"w": [5, 5]}}, MithrilError),
        ({"data_keys": 3}, SignatureError),
        ({"data_keys": [3]}, SignatureError),
        ({"inference": 1}, SignatureError),
        ({"constant_keys": {"w": "text"}}, MithrilError),
        ({"trainable_keys": ["nope"]}, KeyNotFound),
        ({"discard_keys": ["nope"]}, KeyNotFound),
    ],
)
def test_what_is_refused(options, error):
    with pytest.raises(error):
        ml.compile(linear(), ml.NumpyBackend(), **options)


def test_what_is_no_model_or_backend():
    with pytest.raises(SignatureError, match="requires a model"):
        ml.compile(3, ml.NumpyBackend())
    with pytest.raises(SignatureError, match="NumpyBackend itself"):
        ml.compile(linear(), ml.NumpyBackend)
    child = ml.Linear(2)
    model = ml.Model()
    model |= child
    with pytest.raises(ArgumentError, match="outermost"):
        ml.compile(child, ml.NumpyBackend())

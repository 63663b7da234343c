"""Pickles and deep copies of models, compiled models, backends and literals; other processes."""

# Covers: mithril/logical/pickling.py mithril/physical/pickling.py

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import mithril as ml
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BACKENDS = [
    pytest.param("CpuBackend", marks=pytest.mark.device),
    pytest.param("NumpyBackend", marks=pytest.mark.device),
    pytest.param("TorchBackend", marks=pytest.mark.frameworks),
    pytest.param("JaxBackend", marks=pytest.mark.frameworks),
    pytest.param("MlxBackend", marks=pytest.mark.frameworks),
]
X = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]], "float32")


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


COPIES = [pickled, copy.deepcopy, copy.copy]


def network() -> ml.Model:
    model = ml.Model(name="net")
    model |= ml.Linear(4, name="body")(input="x", output="h")
    model |= ml.Relu()(input="h", output="y")
    model.expose_keys("y")
    return model


def by_hand(params, names=("weight", "bias")):
    weight, bias = (np.asarray(params[name], "float64") for name in names)
    return np.maximum(X.astype("float64") @ weight.T + bias, 0)


class Head(ml.Model):
    """A model with an attribute of its own."""

    def __init__(self, width: int):
        super().__init__("head")
        self.width = width
        self |= ml.Linear(width)(input="x", output="y")


class Offset(ml.NumpyBackend):
    """A backend whose constructor takes what it likes."""

    def __init__(self, offset, *, scale=1.0, **options):
        super().__init__(**options)
        self.offset, self.module, self.scale = offset, np, scale

    def relu(self, input):
        return np.maximum(input, 0) + self.offset


MODELS = [
    network,
    lambda: ml.Linear(3, name="q"),
    lambda: ml.Conv2d(3, 4, padding="same"),
    lambda: ml.CrossEntropy(reduction="mean", robust=True),
    lambda: ml.MLP([ml.Relu(), ml.Softmax()], [4, 3]),
    lambda: ml.LSTM(3, return_sequences=False),
    lambda: ml.Linear(2, weight=ml.Tensor([[1.0], [2.0]]), bias=ml.IOKey("b", shape=[2])),
    lambda: Head(5),
]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("copied", COPIES)
def test_a_model_is_made_of_its_json(make, copied):
    model = make()
    again = copied(model)
    assert type(again) is type(model) and again is not model
    assert again.to_json() == model.to_json()
    assert (again.name, again.is_frozen) == (model.name, model.is_frozen)
    assert again.factory_args.keys() == model.factory_args.keys()
    assert getattr(again, "width", None) == getattr(model, "width", None)


def test_a_submodel_is_pickled_without_its_surroundings():
    model = network()
    part = pickled(model.get_submodel("body"))
    assert part.parent is None and type(part) is ml.Linear
    other = ml.Model()
    other |= part(input="a", output="b")
    assert list(other.submodels) == ["body"]


def test_a_train_model_keeps_its_losses():
    train = ml.TrainModel(network())
    train.add_loss(ml.SquaredError(), [ml.Mean()], input="y", target="t")
    again = pickled(train)
    assert type(again) is ml.TrainModel and again.to_json() == train.to_json()
    again.add_loss(ml.AbsoluteError(), [ml.Sum()], input="y", target="t2")
    assert "t2" not in train.input_keys


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("copied", COPIES)
def test_a_backend_goes_on_where_it_was(name, copied):
    backend = getattr(ml, name)(dtype="float32")
    backend.set_seed(3)
    backend.randn(2)
    again = copied(backend)
    assert type(again) is type(backend) and repr(again) == repr(backend)
    numbers = [b.to_numpy(b.randn(3)) for b in (backend, again, backend)]
    np.testing.assert_array_equal(numbers[0], numbers[1])
    assert not np.array_equal(numbers[1], numbers[2])


@pytest.mark.device
def test_backends_of_users_are_made_with_their_arguments():
    ml.register_backend("offset", Offset)
    backend = ml.get_backend("offset", offset=2.0, dtype="float64")
    backend.scale = 3.0
    backend.register_function("twice", twice)
    for copied in COPIES:
        again = copied(backend)
        assert (again.offset, again.scale, again.module) == (2.0, 3.0, np)
        assert again.default_dtype == "float64"
        assert again.call_custom("twice", 4) == 8


def twice(value):
    return 2 * value


@pytest.mark.device
def test_threads_of_the_engine_are_made_again():
    backend = ml.CpuBackend(threads=2)
    assert pickled(backend).threads == 2


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("copied", COPIES)
def test_a_compiled_model_is_compiled_again(name, copied):
    backend = getattr(ml, name)()
    pm = ml.compile(network(), backend, data_keys={"x"}, shapes={"x": [None, 3]})
    params = pm.randomize_params(0)
    again = copied(pm)
    assert again.data_keys == pm.data_keys and again.trainable_keys == pm.trainable_keys
    data = {"x": again.backend.array(X)}
    out = again.backend.to_numpy(again.evaluate(params, data)["y"])
    host = {key: backend.to_numpy(value) for key, value in params.items()}
    np.testing.assert_allclose(out, by_hand(host), rtol=1e-5, atol=1e-6)


@pytest.mark.device
def test_what_compile_was_told_is_kept():
    model = network()
    model |= ml.Linear(1)(input="y", output="z")
    model.expose_keys("z")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), [ml.Mean()], input="z", target="t")
    pm = ml.compile(
        train,
        ml.CpuBackend(),
        optimizer=ml.optim.Adam(0.1),
        data_keys=[train["x"], "t"],
        shapes={train["x"]: [None, 3]},
        naming="path",
        frozen_keys=["body.*"],
    )
    again = pickled(pm)
    params = pm.randomize_params(1)
    opt_state = ml.optim.Adam(0.1).init({key: params[key] for key in pm.trainable_keys})
    data = {"x": X, "t": np.ones((2, 1), "float32")}
    first, second = (p.step(params, opt_state, data) for p in (pm, again))
    assert again.trainable_keys == pm.trainable_keys != pm.param_keys
    for key in params:
        np.testing.assert_array_equal(first.params[key], second.params[key])
    assert again.predict(params, {"x": X}).keys() == pm.predict(params, {"x": X}).keys()


@pytest.mark.device
def test_constants_are_kept():
    model = ml.Model.create(y=ml.IOKey("a") * ml.IOKey("b"))
    pm = ml.compile(
        model,
        ml.CpuBackend(),
        constant_keys={"b": np.array([2.0, 3.0])},
        data_keys={"a"},
        shapes={"a": [2]},
    )
    for copied in COPIES:
        out = copied(pm).evaluate({}, {"a": [1.0, -1.0]})["y"]
        np.testing.assert_array_equal(out, [2.0, -3.0])


@pytest.mark.parametrize(
    "value", [[1.0, 2.5], [[1, 2], [3, 4]], [True, False], np.ones(3, "float16"), 3.0]
)
@pytest.mark.parametrize("copied", COPIES)
def test_tensors_and_literals(value, copied):
    tensor = ml.Tensor(value)
    again = copied(tensor)
    assert again.shape == tensor.shape and again.type == tensor.type
    assert again.value.bytes == tensor.value.bytes and again.value.dtype == tensor.value.dtype
    model = ml.Model()
    model |= ml.Buffer()(input=tensor, output="a")
    model |= ml.Buffer()(input=copied(tensor), output="b")  # another one, which is not used


def test_constants_and_keys_that_no_model_has():
    constant = ml.models.Tensor(ml.Constant.EPSILON).value
    assert pickled(constant).constant == copy.deepcopy(constant).constant == "EPSILON"
    key = pickled(ml.IOKey("k", shape=[2, ("v", ...)], type=ml.Tensor[float], interval=None))
    model = ml.Model()
    model |= ml.Relu()(input=key, output="y")
    assert model.shapes["k"] == [2, "(v, ...)"]


def test_wires_are_refused():
    model = network()
    with pytest.raises(ml.errors.UnsupportedError, match="'h'> is a wire of a model"):
        pickle.dumps(model["h"])


FLOATS = {"shape": [("V", ...)], "type": ml.Tensor[float]}


def opaque():
    model = ml.Model()
    model |= ml.Lambda(
        lambda x: np.sin(x),
        opaque=True,
        input=ml.IOKey(**FLOATS),
        output=ml.IOKey(**FLOATS),
        name="wave",
    )(input="x", output="y")
    return model


@pytest.mark.device
def test_opaque_functions_are_named():
    model = opaque()
    with pytest.raises(ml.errors.UnsupportedError, match="OpaqueLambda .wave. calls a function"):
        pickle.dumps(model)
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [2]})
    with pytest.raises(ml.errors.UnsupportedError, match="OpaqueLambda .wave. calls a function"):
        pickle.dumps(pm)


SCRIPT = """
import multiprocessing
import mithril as ml
import numpy as np

def main():
    model = ml.Model()
    model |= ml.Linear(1, name="fc")(input="x", output="y")
    params = {"fc.weight": np.array([[2.0, 3.0]], "f4"), "fc.bias": np.array([1.0], "f4")}
    data = {"x": np.array([[1.0, 1.0], [0.0, -1.0]], "f4")}
    for backend in (ml.CpuBackend(), ml.NumpyBackend()):
        pm = ml.compile(model, backend, data_keys={"x"}, naming="path")
        pm.evaluate(params, data)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(pm.evaluate, (params, data))["y"].ravel().tolist())
            print(type(pool.apply(type(model).to_json, (model,))).__name__)
        from joblib import Parallel, delayed
        out = Parallel(n_jobs=2)(delayed(pm.evaluate)(params, {"x": x}) for x in (data["x"],) * 2)
        print([o["y"].ravel().tolist() for o in out])

if __name__ == "__main__":
    main()
"""


@pytest.mark.device
@pytest.mark.slow
def test_other_processes(tmp_path):
    pytest.importorskip("joblib")
    (tmp_path / "script.py").write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    run = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        capture_output=True,
        text=True,
        env=env,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    once = "[6.0, -2.0]\nstr\n[[6.0, -2.0], [6.0, -2.0]]\n"
    assert run.stdout == 2 * once


@pytest.mark.device
def test_clones_of_scikit_learn():
    base = pytest.importorskip("sklearn.base")

    class Regressor(base.BaseEstimator):
        def __init__(self, model=None, backend=None, compiled=None):
            self.model, self.backend, self.compiled = model, backend, compiled

    pm = ml.compile(network(), ml.CpuBackend(), data_keys={"x"})
    estimator = Regressor(network(), ml.NumpyBackend(), pm)
    again = base.clone(estimator)
    assert again.model is not estimator.model and again.model.to_json() == network().to_json()
    assert repr(again.backend) == repr(estimator.backend)
    params = {"weight": np.ones((4, 3), "f4"), "bias": np.zeros(4, "f4")}
    out = again.compiled.evaluate(params, {"x": X})["y"]
    np.testing.assert_allclose(out, by_hand(params))

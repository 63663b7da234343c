"""Calls of compiled models that do not fit: what the hints lead to."""

# Covers: mithril/physical/missing.py mithril/base/explanations.py

from typing import Any

import mithril as ml
import numpy as np
import pytest
from mithril.errors import DTypeError, KeyNotFound, MithrilError, ShapeError

OPTIMIZER = ml.optim.Adam(lr=0.1)
X = np.ones((5, 4), "f4")
CLASSES = np.array([0, 1, 2, 0, 1])
DATA = {"x": X, "y": CLASSES}


def trained(backend=ml.CpuBackend, norm=False, loss=None, **options):
    model = ml.Model()
    model |= ml.Linear(8, name="fc1")(input="x", output="h")
    model |= (ml.BatchNorm1D if norm else ml.Relu)(name="mid")(input="h", output="r")
    model |= ml.Linear(3, name="fc2")(input="r", output="logits")
    train = ml.TrainModel(model)
    train.add_loss(loss or ml.CrossEntropy(), input="logits", target="y")
    options = {"shapes": {"x": [None, 4]}, "data_keys": set(DATA), "naming": "path", **options}
    return ml.compile(train, backend(), optimizer=OPTIMIZER, **options)


def hint_of(error: type[Exception], call: Any) -> str:
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, MithrilError)
    return caught.value.hint


# --- names of another naming ----------------------------------------------------------------------


def test_names_of_the_other_naming_are_told():
    by_path, short = trained(), trained(naming=None)
    paths, shorts = by_path.randomize_params(seed=0), short.randomize_params(seed=0)
    without = "such as 'weight_0', 'bias_0', ... are those without naming=\"path\": compile without"
    with_it = "such as 'fc1.weight', 'fc1.bias', ... are those of naming=\"path\": compile with it"
    state = OPTIMIZER.init(paths)
    calls = {
        "step": lambda pm, params: pm.step(params, state, DATA),
        "evaluate": lambda pm, params: pm.evaluate(params, DATA),
        "predict": lambda pm, params: pm.predict(params, {"x": X}),
        "bind": lambda pm, params: pm.bind(params),
        "split_state": lambda pm, params: pm.split_state(params),
        "load_state_dict": ml.formats.load_state_dict,
        "train_model": lambda pm, params: ml.training.train_model(
            pm, pm.backend, [DATA], params=params
        ),
    }
    for name, call in calls.items():
        assert without in hint_of(KeyNotFound, lambda: call(by_path, shorts)), name  # noqa: B023
        assert with_it in hint_of(KeyNotFound, lambda: call(short, paths)), name  # noqa: B023


def test_slips_in_names_are_still_slips():
    pm = trained()
    params = pm.randomize_params(seed=0)
    slipped = {name.replace("fc2.bias", "fc2.biass"): value for name, value in params.items()}
    with pytest.raises(KeyNotFound, match="'fc2.bias', did you mean 'fc2.biass'"):
        pm.step(slipped, OPTIMIZER.init(params), DATA)
    assert hint_of(KeyNotFound, lambda: pm.evaluate(slipped, DATA)).startswith("'fc2.biass' is gi")


# --- arguments in the place of others -------------------------------------------------------------


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.NumpyBackend])
def test_arguments_of_a_step_that_are_swapped(backend, static):
    pm = trained(backend, static_shapes=static, shapes={"x": [5, 4], "y": [5]})
    params = pm.randomize_params(seed=0)
    state = OPTIMIZER.init(params)
    with pytest.raises(MithrilError, match="step: opt_state and data are swapped") as caught:
        pm.step(params, DATA, state)
    assert caught.value.hint == "write step(params, opt_state, data)"
    said = "params and opt_state are swapped: step(params, opt_state, data)"
    assert hint_of(KeyNotFound, lambda: pm.step(state, params, DATA)) == said
    assert pm.step(params, state, DATA).opt_state["step"] == 1


def test_a_state_among_parameters():
    pm = trained(norm=True)
    params, state = pm.randomize_params(seed=0), pm.initial_state()
    both = {**params, **state}
    calls = (
        lambda: pm.step(both, OPTIMIZER.init(params), DATA),
        lambda: pm.evaluate(both, DATA),
    )
    said = "the state is among params: params, state = pm.split_state(params)"
    assert [hint_of(KeyNotFound, call) for call in calls] == [said] * 2
    own, kept = pm.split_state(both)
    assert pm.step(own, OPTIMIZER.init(own), DATA, kept).opt_state["step"] == 1


def test_only_what_is_swapped_is_called_so():
    pm = trained()
    params = pm.randomize_params(seed=0)
    bias = params["fc2.bias"]
    rest = {name: value for name, value in params.items() if name != "fc2.bias"}
    assert hint_of(KeyNotFound, lambda: pm.evaluate(DATA, params)).startswith(
        "they are there, swapped: evaluate(params, data)"
    )
    assert hint_of(KeyNotFound, lambda: pm.evaluate(rest, {**DATA, "fc2.bias": bias})).startswith(
        "'fc2.bias' in data belongs in params: evaluate(params, data)"
    )
    assert hint_of(KeyNotFound, lambda: pm.evaluate({**params, **DATA})).startswith(
        "'x', 'y' in params belongs in data: evaluate(params, data)"
    )
    assert "swapped" not in hint_of(KeyNotFound, lambda: pm.evaluate(params, {"x": X}))


# --- targets --------------------------------------------------------------------------------------

ONE_HOT = (
    "'target' of CrossEntropy takes class numbers; one-hot targets are those of"
    " ml.CrossEntropy(categorical=False)"
)


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.NumpyBackend])
def test_one_hot_targets(backend):
    pm = trained(backend)
    params = pm.randomize_params(seed=0)
    state = OPTIMIZER.init(params)
    for dtype, error in (("f4", DTypeError), ("int64", ShapeError)):
        data = {"x": X, "y": np.eye(3, dtype=dtype)[CLASSES]}
        assert hint_of(error, lambda: pm.step(params, state, data)) == ONE_HOT  # noqa: B023
        assert hint_of(error, lambda: pm.evaluate(params, data)) == ONE_HOT  # noqa: B023
        other = trained(backend, loss=ml.CrossEntropy(categorical=False))
        taken = other.step(params, state, data).outputs["final_cost"]
        wanted = pm.step(params, state, DATA).outputs["final_cost"]
        np.testing.assert_allclose(taken, wanted, rtol=1e-5)


def test_other_targets_of_the_wrong_kind_or_shape():
    pm = trained()
    params = pm.randomize_params(seed=0)

    def hint(error, y):
        return hint_of(error, lambda: pm.evaluate(params, {"x": X, "y": y}))

    said = "'target' of CrossEntropy takes class numbers: cast the data, if they are"
    assert hint(DTypeError, CLASSES.astype("f4")) == said
    said = "an axis of size 1 is too much: [5] would fit"
    assert hint(ShapeError, CLASSES[:, None]) == said


def test_a_loss_says_which_keys_it_has():
    train = ml.TrainModel(ml.Model.create(logits=ml.Linear(3)(ml.IOKey("x"))))
    with pytest.raises(
        KeyNotFound, match=r"add_loss: CrossEntropy\(\) has no key 'pred'"
    ) as caught:
        train.add_loss(ml.CrossEntropy(), pred="logits", target="y")
    assert caught.value.hint == "its keys are 'input', 'target'"
    train.add_loss(ml.CrossEntropy(), input="logits", target="y")


# --- floats for integers --------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.NumpyBackend])
def test_the_layer_that_takes_row_numbers_is_named(backend):
    body = ml.Model(name="gpt")
    body |= ml.Embedding(10, 4, name="wte")(input="tokens", output="h")
    model = ml.Model()
    model |= body(tokens="tokens", h="y")
    pm = ml.compile(model, backend(), data_keys={"tokens"})
    data = {"tokens": np.ones((2, 3), "f4")}
    assert hint_of(DTypeError, lambda: pm.evaluate(pm.get_parameters(), data)) == (
        "'input' of Embedding 'gpt.wte' takes row numbers, such as ids of tokens: cast the data"
        " only if they are; measured values go into a layer such as Linear"
    )


def test_other_layers_of_integers_are_named():
    model = ml.Model()
    model |= ml.ShiftLeft(name="shift")(input="x", shift="n", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x", "n"}, shapes={"x": [2], "n": [2]})
    data = {"x": np.ones(2, int), "n": np.ones(2)}
    assert hint_of(DTypeError, lambda: pm.evaluate({}, data)) == (
        "cast the data for 'shift' of ShiftLeft 'shift', if that is what you mean"
    )


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((4, 28, 28), "axis 1 is missing: [4, 1, 28, 28] would fit"),
        ((28, 28), "the first axes are missing: [1, 1, 28, 28] would fit"),
        ((1, 28, 28), "a first axis is missing: [1, 1, 28, 28] would fit"),
        (
            (4, 28, 28, 1),
            "the axes are in another order: did you mean [4, 1, 28, 28]? transpose it by"
            " (0, 3, 1, 2)",
        ),
        ((4, 1, 1, 28, 28), "an axis of size 1 is too much: [4, 1, 28, 28] would fit"),
        ((4, 1, 27, 28), ""),
        ((4, 27, 28), ""),
    ],
)
def test_axes_of_images(shape, hint):
    model = ml.Model()
    model |= ml.Conv2D(3, 2)(input="img", output="f")
    pm = ml.compile(model, ml.CpuBackend(), shapes={"img": [None, 1, 28, 28]}, data_keys={"img"})
    params, image = pm.get_parameters(), np.ones(shape, "f4")
    assert hint_of(ShapeError, lambda: pm.evaluate(params, {"img": image})) == hint


def test_a_column_of_targets():
    train = ml.TrainModel(ml.Model.create(out=ml.Linear(1)(ml.IOKey("x"))))
    train.add_loss(ml.SquaredError(), input="out", target="y")
    pm = ml.compile(train, ml.CpuBackend(), shapes={"x": [None, 4]}, data_keys={"x", "y"})
    params, data = pm.randomize_params(seed=0), {"x": X, "y": np.ones(5, "f4")}
    said = "axis 1 is missing: [5, 1] would fit"
    assert hint_of(ShapeError, lambda: pm.evaluate(params, data)) == said

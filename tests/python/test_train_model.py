"""TrainModel (logical reference 5.3): every rule of its two tables, costs and gradients computed by
hand in NumPy, slopes by central differences of those formulas."""

# Covers: mithril/training/cost.py mithril/training/training_model.py

import copy
import json
import re

import mithril as ml
import numpy as np
import pytest
from mithril.errors import (
    ArgumentError,
    FrozenModelError,
    KeyNotFound,
    UnsupportedError,
    WireNameError,
)

rng = np.random.default_rng(1)
X = rng.normal(size=(6, 3))
T = rng.normal(size=(6, 2))
W = rng.normal(size=(2, 3))
B = rng.normal(size=2)
Y = X @ W.T + B


def wrapped():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    return ml.TrainModel(model)


def run_on(backend_name, train, **options):
    backend = ml.get_backend(backend_name, dtype="float64")
    pm = ml.compile(train, backend, data_keys={"x", "target"}, **options)
    params = {"w": W, "b": B}
    outputs, gradients = pm.evaluate(params, {"x": X, "target": T}, output_gradients=True)
    plain = {k: backend.to_numpy(v) for k, v in outputs.items()}
    return plain, {k: backend.to_numpy(v) for k, v in gradients.items()}


def slope(cost, w, at=(1, 2), step=1e-6):
    """Derivative of a formula in one element of the weight."""
    up, down = w.copy(), w.copy()
    up[at] += step
    down[at] -= step
    return (cost(up) - cost(down)) / (2 * step)


def penalty():
    """0.5 * sum of squares, as a model of its own."""
    model = ml.Model()
    model |= ml.Square()(input="input", output="square")
    model |= ml.Sum()(input="square", output="sum")
    model |= ml.Multiply()(left="sum", right=0.5, output="output")
    model.expose_keys("output")
    model.set_cin("input")
    return model


def run(train, **options):
    pm = ml.compile(train, ml.NumpyBackend(dtype="float64"), data_keys={"x", "target"}, **options)
    return pm.evaluate({"w": W, "b": B}, {"x": X, "target": T}, output_gradients=True)


@pytest.mark.device
def test_the_mean_of_a_loss():
    train = wrapped()
    train.add_loss(ml.SquaredError(), input="y", target="target")
    outputs, gradients = run(train)
    np.testing.assert_allclose(outputs["final_cost"], ((Y - T) ** 2).mean())
    np.testing.assert_allclose(outputs["y"], Y)
    np.testing.assert_allclose(gradients["w"], 2 * (Y - T).T @ X / Y.size)


@pytest.mark.device
def test_steps_coefficient_and_name():
    train = wrapped()
    train.add_loss(
        ml.SquaredError(), [ml.Sum(axis=1), ml.Mean()], "mse", 0.5, input="y", target="target"
    )
    train.add_loss(
        ml.AbsoluteError(), reduce_steps=[ml.Sum()], key_name="l1", input="y", target="target"
    )
    outputs, _ = run(train)
    mse = 0.5 * ((Y - T) ** 2).sum(1).mean()
    l1 = np.abs(Y - T).sum()
    np.testing.assert_allclose(outputs["mse"], mse)
    np.testing.assert_allclose(outputs["l1"], l1)
    np.testing.assert_allclose(outputs["final_cost"], mse + l1)


@pytest.mark.device
def test_metrics_do_not_count():
    train = wrapped()
    train.add_loss(ml.SquaredError(), input="y", target="target")
    train.add_metric(ml.AbsoluteError(), [ml.Max()], "worst", input="y", target="target")
    outputs, _ = run(train)
    np.testing.assert_allclose(outputs["worst"], np.abs(Y - T).max())
    np.testing.assert_allclose(outputs["final_cost"], ((Y - T) ** 2).mean())


def scorer():
    """Scores [b, t, 3] of places [b, t, 2]."""
    model = ml.Model()
    model |= ml.Linear(3, name="head")(input="x", output="scores")
    return model


def turned_in_front_of(loss):
    model = ml.Model()
    model |= ml.Transpose((0, 2, 1))(input="input", output="turned")
    model |= loss(input="turned", target="target", output="output")
    model.expose_keys("output")
    return model


def of_operators(train):
    turned = train.scores.transpose((0, 2, 1))
    train.add_loss(ml.CrossEntropy(), input=turned, target="target")


def of_a_call(train):
    turned = ml.Transpose((0, 2, 1))("scores")
    train.add_loss(ml.CrossEntropy(), input=turned, target="target")


def of_a_wire(train):
    train |= ml.Transpose((0, 2, 1))(input="scores", output="turned")
    train.add_loss(ml.CrossEntropy(), input="turned", target="target")


def of_a_model(train):
    loss = turned_in_front_of(ml.CrossEntropy())
    train.add_loss(loss, input="scores", target="target")


def of_rows(train):
    rows, classes = train.scores.reshape((-1, 3)), ml.Flatten(start_dim=0)("target")
    train.add_loss(ml.CrossEntropy(), input=rows, target=classes)


@pytest.mark.device
@pytest.mark.parametrize("add", [of_operators, of_a_call, of_a_wire, of_a_model, of_rows])
def test_a_loss_reads_what_is_computed_from_an_output(add):
    train = ml.TrainModel(scorer())
    add(train)
    pm = ml.compile(
        train,
        ml.NumpyBackend(dtype="float64"),
        data_keys={"x", "target"},
        shapes={"x": ["b", "t", 2], "target": ["b", "t"]},
        naming="path",
    )
    x, classes = rng.normal(size=(4, 3, 2)), rng.integers(0, 3, (4, 3))  # t is the classes' number
    weight, bias = rng.normal(size=(3, 2)), rng.normal(size=3)

    def cost(w):
        scores = x @ w.T + bias
        log_sums = np.log(np.exp(scores).sum(-1))
        return (log_sums - np.take_along_axis(scores, classes[..., None], -1)[..., 0]).mean()

    params, data = {"head.weight": weight, "head.bias": bias}, {"x": x, "target": classes}
    assert set(pm.param_keys) == set(params)
    outputs, gradients = pm.evaluate(params, data, output_gradients=True)
    np.testing.assert_allclose(outputs["final_cost"], cost(weight))
    np.testing.assert_allclose(gradients["head.weight"][1, 1], slope(cost, weight, (1, 1)))


def test_a_loss_that_no_output_is_in():
    train = wrapped()
    train |= ml.Tanh()(input="x", output="squashed")
    before, call = train.to_json(), ml.Sine()("x")
    for target in (call, [call, "squashed"], "squashed"):
        with pytest.raises(KeyNotFound, match="must be an output of the model \\('y'\\)"):
            train.add_loss(ml.SquaredError(), input=target, target="target")
        assert train.to_json() == before
    train |= call  # it is as free as before
    train = wrapped()  # what operators make is known when it is taken in
    train.add_loss(ml.SquaredError(), input=train.x * 2, target="target")
    before = train.to_json()
    with pytest.raises(KeyNotFound, match="no output of the model \\('y'\\) is in SquaredError"):
        ml.compile(train, ml.NumpyBackend(), data_keys={"x", "target"})
    assert train.to_json() == before


def test_what_is_refused():
    train = wrapped()
    with pytest.raises(KeyNotFound, match="'target' of"):
        train.add_loss(ml.SquaredError(), input="y")
    with pytest.raises(KeyNotFound, match="must be an output of the model \\('y'\\)"):
        train.add_loss(ml.SquaredError(), input="x", target="target")
    with pytest.raises(KeyNotFound, match="must not be wired"):
        train.add_loss(ml.SquaredError(), input="y", target="target", output="cost")
    with pytest.raises(ArgumentError, match="has no loss"):
        train.finalize()
    with pytest.raises(NotImplementedError):
        train += ml.Relu()
    train.add_loss(ml.SquaredError(), input="y", target="target")
    train.finalize()
    with pytest.raises(FrozenModelError):
        train.add_loss(ml.SquaredError(), input="y", target="t2")
    reserved = ml.Model()
    reserved |= ml.Relu()(input="loss")
    with pytest.raises(WireNameError, match="'loss' is reserved"):
        ml.TrainModel(reserved)


def test_losses_of_several_shapes_are_summed(backend_name):
    train = wrapped()
    train.add_loss(ml.SquaredError(), [ml.Sum(axis=1)], input="y", target="target")
    train.add_loss(ml.AbsoluteError(), [ml.Buffer()], coef=2, input="y", target="target")
    outputs, gradients = run_on(backend_name, train)

    def cost(w):
        e = X @ w.T + B - T
        return (e**2).sum() + 2 * np.abs(e).sum()

    np.testing.assert_allclose(outputs["final_cost"], cost(W))
    np.testing.assert_allclose(gradients["w"][1, 2], slope(cost, W), rtol=1e-5)


def test_one_unreduced_loss_is_the_cost_as_it_is(backend_name):
    train = wrapped()
    train.add_loss(ml.SquaredError(), [ml.Buffer()], input="y", target="target")
    outputs, gradients = run_on(backend_name, train)
    np.testing.assert_allclose(outputs["final_cost"], (Y - T) ** 2)
    np.testing.assert_allclose(gradients["w"], 2 * (Y - T).T @ X)  # cotangents are ones


def test_the_combiner_sees_all_elements_of_all_losses(backend_name):
    train = wrapped()
    train.add_loss(ml.SquaredError(), [ml.Sum(axis=1)], input="y", target="target")
    train.add_loss(ml.AbsoluteError(), input="y", target="target")
    train.set_loss_combiner(ml.Max())
    outputs, gradients = run_on(backend_name, train)

    def cost(w):
        e = X @ w.T + B - T
        return max(*(e**2).sum(1), np.abs(e).mean())

    np.testing.assert_allclose(outputs["final_cost"], cost(W))
    np.testing.assert_allclose(gradients["w"][1, 2], slope(cost, W), rtol=1e-5)


# Steps of the losses -> the number that a regularization term of w is divided by. Mean, Max and
# Min count the elements that they reduce, Sum and Prod count 1, several losses the geometric mean.
SCALES = {
    "mean": ([[ml.Mean]], 12),
    "default": ([None], 12),
    "max": ([[ml.Max]], 12),
    "min": ([[ml.Min]], 12),
    "sum": ([[ml.Sum]], 1),
    "prod": ([[ml.Prod]], 1),
    "raw": ([[ml.Buffer]], 1),
    "mean of an axis": ([[lambda: ml.Mean(axis=0), ml.Sum]], 6),
    "sum, then mean": ([[lambda: ml.Sum(axis=-1), ml.Mean]], 6),
    "mean, then mean": ([[lambda: ml.Mean(axis=0), ml.Mean]], 12),
    "axes in a tuple": ([[lambda: ml.Mean(axis=(0, 1))]], 12),
    "two": ([[ml.Mean], [lambda: ml.Mean(axis=0), ml.Sum]], (12 * 6) ** 0.5),
    "two, one summed": ([[ml.Mean], [ml.Sum]], 12**0.5),
    "three": ([[ml.Mean], [ml.Mean], [ml.Sum]], 12 ** (2 / 3)),
}
STEPS = {ml.Mean: np.mean, ml.Max: np.max, ml.Min: np.min, ml.Sum: np.sum, ml.Prod: np.prod}


@pytest.mark.parametrize("case", SCALES)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.device
def test_regularization_is_scaled_by_the_geometric_mean(case, known):
    losses, scale = SCALES[case]
    train = wrapped()
    for steps in losses:
        made = None if steps is None else [step() for step in steps]
        train.add_loss(ml.SquaredError(), made, coef=0.0, input="y", target="target")
    train.add_regularization(penalty(), coef=0.3, input="w", key_name="reg")
    shapes = {"x": [6, 3], "target": [6, 2]} if known else {}
    for name in ("numpy", "cpu"):
        outputs, gradients = run_on(name, train, shapes=shapes)
        np.testing.assert_allclose(outputs["reg"], 0.5 * (W**2).sum())
        np.testing.assert_allclose(outputs["final_cost"], 0.3 * 0.5 * (W**2).sum() / scale)
        np.testing.assert_allclose(gradients["w"], 0.3 * W / scale)
        np.testing.assert_allclose(gradients["b"], 0, atol=1e-12)


def test_losses_and_regularization_together(backend_name):
    """Two losses of two outputs, of which one depends on each parameter; two coefficients."""
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    model |= ml.Linear(4)(input="y", weight="v", bias="c", output="z")
    model.expose_keys("y", "z")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="target")
    train.add_loss(ml.AbsoluteError(), [ml.Mean(axis=0), ml.Sum()], input="z", target="z_target")
    train.add_regularization(penalty(), 0.1, input="w")  # both losses: (12 * 6) ** 0.5
    train.add_regularization(penalty(), 0.2, input="v")  # the second one: 6
    train.add_regularization(penalty(), 0.1, input="b")
    backend = ml.get_backend(backend_name, dtype="float64")
    pm = ml.compile(train, backend, data_keys={"x", "target", "z_target"})
    v, c, z_target = (np.random.default_rng(2).normal(size=s) for s in ((4, 2), 4, (6, 4)))
    params = {"w": W, "b": B, "v": v, "c": c}
    data = {"x": X, "target": T, "z_target": z_target}
    outputs, gradients = pm.evaluate(params, data, output_gradients=True)

    def cost(w, v):
        y = X @ w.T + B
        z = y @ v.T + c
        losses = ((y - T) ** 2).mean() + np.abs(z - z_target).mean(0).sum()
        first = 0.1 * 0.5 * ((w**2).sum() + (B**2).sum()) / (12 * 6) ** 0.5
        return losses + first + 0.2 * 0.5 * (v**2).sum() / 6

    np.testing.assert_allclose(backend.to_numpy(outputs["final_cost"]), cost(W, v))
    assert set(outputs) == {"y", "z", "final_cost"}
    w_slope, v_slope = slope(lambda w: cost(w, v), W), slope(lambda v: cost(W, v), v, (3, 1))
    np.testing.assert_allclose(backend.to_numpy(gradients["w"])[1, 2], w_slope, rtol=1e-5)
    np.testing.assert_allclose(backend.to_numpy(gradients["v"])[3, 1], v_slope, rtol=1e-5)


@pytest.mark.device
def test_a_coefficient_may_be_a_tensor():
    train = wrapped()
    train.add_loss(ml.SquaredError(), [ml.Sum()], coef=ml.Tensor(0.25), input="y", target="target")
    coef = ml.Tensor(0.5)
    train.add_regularization(penalty(), coef, input="w")
    train.add_regularization(penalty(), coef, input="b")
    outputs, _ = run(train)
    wanted = 0.25 * ((Y - T) ** 2).sum() + 0.25 * ((W**2).sum() + (B**2).sum())
    np.testing.assert_allclose(outputs["final_cost"], wanted)


def deep():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="layer_w0", bias="b0", output="h")
    model |= ml.Linear(2)(input="h", weight="layer_w1", bias="b1", output="y")
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), [ml.Sum()], coef=0.0, input="y", target="target")
    return train


DEEP = {
    "layer_w0": rng.normal(size=(2, 3)),
    "b0": rng.normal(size=2),
    "layer_w1": rng.normal(size=(2, 2)),
    "b1": rng.normal(size=2),
}


@pytest.mark.parametrize(
    ("pattern", "hits"),
    [
        (r"w\d", ["layer_w0", "layer_w1"]),
        ("w1$", ["layer_w1"]),
        ("layer|b0", ["layer_w0", "b0", "layer_w1"]),
    ],
)
@pytest.mark.parametrize("make", [penalty, ml.Square], ids=["model", "op"])
@pytest.mark.device
def test_a_pattern_adds_a_term_for_each_hit(pattern, hits, make):
    train = deep()
    if make is penalty and not hasattr(ml.Model, "clone") and len(hits) > 1:
        with pytest.raises(ml.errors.UnsupportedError, match="a model of one op"):
            train.add_regularization(make(), 0.1, input=re.compile(pattern))
        return
    train.add_regularization(make(), 0.1, key_name="reg", input=re.compile(pattern))
    assert len(train.regularization_keys) == len(hits)
    pm = ml.compile(train, ml.NumpyBackend(dtype="float64"), data_keys={"x", "target"})
    outputs = pm.evaluate(DEEP, {"x": X, "target": T})
    factor = 0.05 if make is penalty else 0.1
    wanted = sum(factor * (DEEP[name] ** 2).sum() for name in hits)
    np.testing.assert_allclose(outputs["final_cost"], wanted)
    names = ["reg"] if len(hits) == 1 else [f"reg_{i}" for i in range(len(hits))]
    assert train.regularization_keys == names
    assert names == [name for name in outputs if name.startswith("reg")]


def test_a_pattern_without_a_hit_warns():
    train = deep()
    train.shapes  # noqa: B018 - what was put off is inferred
    before = train._node.dump()
    with pytest.warns(ml.errors.UnusedKeyWarning, match="is found in no input"):
        train.add_regularization(penalty(), 0.1, input=re.compile("nothing"))
    assert train._node.dump() == before
    assert train.regularization_keys == []


@pytest.mark.device
def test_unnamed_inputs_have_names():
    model = ml.Model()
    model |= ml.Linear(2)(input="x")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), [ml.Sum()], input=train.output_keys[0], target="target")
    train.add_regularization(penalty(), 1.0, input="weight")
    pm = ml.compile(train, ml.NumpyBackend(dtype="float64"), data_keys={"x", "target"})
    outputs = pm.evaluate({"weight": W, "bias": B}, {"x": X, "target": T})
    wanted = ((Y - T) ** 2).sum() + 0.5 * (W**2).sum()
    np.testing.assert_allclose(outputs["final_cost"], wanted)


@pytest.mark.device
def test_metrics_stay_outputs_beside_regularization():
    train = wrapped()
    train.add_loss(ml.SquaredError(), key_name="mse", input="y", target="target")
    train.add_regularization(penalty(), 1.0, input="w")
    train.add_metric(ml.AbsoluteError(), [ml.Mean()], "mae", input="y", target="target")
    train.add_metric(ml.Subtract(), left="y", right="target")
    outputs, _ = run(train)
    assert set(outputs) == {"y", "mse", "mae", "metric_1", "final_cost"}
    np.testing.assert_allclose(outputs["mae"], np.abs(Y - T).mean())
    np.testing.assert_allclose(outputs["metric_1"], Y - T)
    assert (train.loss_keys, train.metric_keys) == (["mse"], ["mae", "metric_1"])


def test_summary_lists_the_terms(capsys):
    train = wrapped()
    train.add_loss(ml.SquaredError(), key_name="mse", input="y", target="target")
    train.add_regularization(ml.Square(), 0.5, key_name="l2", input="w")
    train.add_metric(ml.AbsoluteError(), input="y", target=train["target"])
    train.summary()
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "losses: SquaredError(input=y, target=target) -> mse",
        "regularization: 0.5 * Square(input=w) -> l2",
        "metrics: AbsoluteError(input=y, target=target) -> metric_0",
    ]


def two_inputs():
    model = ml.Model()
    model |= ml.Multiply()(left="left", right="right", output="output")
    model.expose_keys("output")
    return model


def two_outputs():
    model = ml.Model()
    model |= ml.Relu()(input="input", output="a")
    model |= ml.Square()(input="input", output="b")
    model.expose_keys("a", "b")
    return model


LOSS = {"input": "y", "target": "target"}
used = ml.Mean()
taken = ml.Model()
taken |= used(input="x")
same = ml.Mean()
REFUSED = {
    "loss is no model": (lambda t: t.add_loss("mse", **LOSS), TypeError, "requires a model"),
    "loss is a class": (lambda t: t.add_loss(ml.SquaredError, **LOSS), TypeError, "a model"),
    "loss of two outputs": (
        lambda t: t.add_loss(two_outputs(), input="y"),
        KeyError,
        "must have one output, it has 'a', 'b'",
    ),
    "unknown key": (
        lambda t: t.add_loss(ml.SquaredError(), **LOSS, inptu="y"),
        KeyError,
        "'inptu'",
    ),
    "steps are a model": (
        lambda t: t.add_loss(ml.SquaredError(), ml.Mean(), **LOSS),
        TypeError,
        "requires a list",
    ),
    "step is no model": (
        lambda t: t.add_loss(ml.SquaredError(), [ml.Mean], **LOSS),
        TypeError,
        "requires models",
    ),
    "step of two inputs": (
        lambda t: t.add_loss(ml.SquaredError(), [ml.Add()], **LOSS),
        KeyError,
        "one canonical input",
    ),
    "step of two outputs": (
        lambda t: t.add_loss(ml.SquaredError(), [two_outputs()], **LOSS),
        KeyError,
        "must have one output",
    ),
    "step used before": (
        lambda t: t.add_loss(ml.SquaredError(), [used], **LOSS),
        ml.errors.MithrilError,
        "used once only",
    ),
    "step twice": (
        lambda t: t.add_loss(ml.SquaredError(), [same, same], **LOSS),
        ValueError,
        "used once only",
    ),
    "loss is the model": (lambda t: t.add_loss(t, **LOSS), ml.errors.MithrilError, "twice"),
    "coef is text": (
        lambda t: t.add_loss(ml.SquaredError(), coef="1", **LOSS),
        TypeError,
        "coef requires a number",
    ),
    "coef is NaN": (
        lambda t: t.add_loss(ml.SquaredError(), coef=float("nan"), **LOSS),
        ValueError,
        "finite",
    ),
    "coef is a bool": (
        lambda t: t.add_loss(ml.SquaredError(), coef=True, **LOSS),
        TypeError,
        "coef",
    ),
    "name taken": (
        lambda t: t.add_loss(ml.SquaredError(), key_name="w", **LOSS),
        ValueError,
        "a wire named 'w'",
    ),
    "name reserved": (
        lambda t: t.add_loss(ml.SquaredError(), key_name="final_cost", **LOSS),
        ValueError,
        "reserved",
    ),
    "name generated": (
        lambda t: t.add_loss(ml.SquaredError(), key_name="$9", **LOSS),
        ml.errors.MithrilError,
        "'$9' cannot be the name",
    ),
    "name is a number": (
        lambda t: t.add_loss(ml.SquaredError(), key_name=3, **LOSS),
        TypeError,
        "key_name",
    ),
    "regularizer input open": (
        lambda t: t.add_regularization(two_inputs(), 0.1, reg_key="left", left="w"),
        KeyError,
        "'right' of",
    ),
    "regularizer key unknown": (
        lambda t: t.add_regularization(penalty(), 0.1, input="w", other="b"),
        KeyError,
        "no open input 'other'",
    ),
    "reg_key ambiguous": (
        lambda t: t.add_regularization(two_inputs(), 0.1, left="w", right="w"),
        KeyError,
        "2 canonical inputs",
    ),
    "reg_key unknown": (
        lambda t: t.add_regularization(penalty(), 0.1, reg_key="inputs", input="w"),
        KeyError,
        "did you mean 'input'",
    ),
    "reg_key is a number": (
        lambda t: t.add_regularization(penalty(), 0.1, reg_key=1, input="w"),
        TypeError,
        "reg_key",
    ),
    "target is not trained": (
        lambda t: t.add_regularization(penalty(), 0.1, input="x"),
        KeyError,
        "must be a differentiable input",
    ),
    "target is an output": (
        lambda t: t.add_regularization(penalty(), 0.1, input="y"),
        KeyError,
        "must be a differentiable input",
    ),
    "pattern hits data": (
        lambda t: t.add_regularization(ml.Square(), 0.1, input=re.compile(".")),
        KeyError,
        "'x' must be a differentiable input",
    ),
    "pattern for two inputs": (
        lambda t: t.add_regularization(
            two_inputs(), 0.1, "left", left=re.compile("w"), right=re.compile("w")
        ),
        ValueError,
        "one input",
    ),
    "pattern of bytes": (
        lambda t: t.add_regularization(penalty(), 0.1, input=re.compile(b"w")),
        TypeError,
        "of text",
    ),
    "regularization coef": (
        lambda t: t.add_regularization(penalty(), None, input="w"),
        TypeError,
        "coef",
    ),
    "metric is no model": (lambda t: t.add_metric(3, input="y"), TypeError, "requires a model"),
    "metric key unknown": (lambda t: t.add_metric(ml.Relu(), inp="y"), KeyError, "'inp'"),
    "combiner is no model": (lambda t: t.set_loss_combiner(sum), TypeError, "requires a model"),
    "combiner has other keys": (
        lambda t: t.set_loss_combiner(ml.Add()),
        KeyError,
        "with 'input' and 'output'",
    ),
    "combiner is open": (
        lambda t: t.set_loss_combiner(ml.Linear(1)),
        KeyError,
        "would stay open",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_changes_nothing(case):
    call, kind, text = REFUSED[case]
    train = wrapped()
    before = train._node.dump()
    with pytest.raises(kind, match=re.escape(text)) as raised:
        call(train)
    assert isinstance(raised.value, ml.errors.MithrilError)
    assert train._node.dump() == before
    assert (train.loss_keys, train.regularization_keys, train.metric_keys) == ([], [], [])


def test_a_refused_loss_can_be_used_afterwards():
    train, loss, step = wrapped(), ml.SquaredError(), ml.Mean()
    loss.set_shapes(target=[7, 2])
    train.set_shapes(x=[6, 3])
    with pytest.raises(ml.errors.ShapeError):
        train.add_loss(loss, [step], input="y", target="target")
    other = wrapped()
    other.add_loss(loss, [step], input="y", target="target")
    other.finalize()
    assert other.output_keys == ["y", "final_cost"]


# --- copies ---------------------------------------------------------------------------------------


def rich(coef=None):
    """Two losses, one weighted and named; two penalties that share a coefficient; a metric."""
    train = wrapped()
    train.add_loss(ml.SquaredError(), [ml.Mean(axis=1), ml.Sum()], input="y", target="target")
    train.add_loss(ml.AbsoluteError(), coef=2.0, key_name="l1", input="y", target="target")
    coef = ml.Tensor(0.25) if coef is None else coef
    train.add_regularization(penalty(), coef, input="w")
    train.add_regularization(penalty(), coef, key_name="of_bias", input="b")
    train.add_regularization(penalty(), 0.5, input=re.compile("^w$"))
    train.add_metric(ml.AbsoluteError(), [ml.Max()], "worst", input="y", target="target")
    largest = ml.Model()
    largest |= ml.Max()(input="input", output="output")
    largest.expose_keys("output")
    train.set_loss_combiner(largest)
    return train


def said(model):
    """The file of a model without what errors call its unnamed wires."""
    found = json.loads(model.to_json())
    stack = [found]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            item.pop("labels", None)
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return found


def rich_cost():
    """The cost of `rich` by hand. Means reduce 2 and 12 elements; w and b feed both losses."""
    squares = ((Y - T) ** 2).mean(1).sum()
    absolute = 2 * np.abs(Y - T).mean()
    scale = np.sqrt(2 * 12)
    of_w, of_b = 0.5 * (W**2).sum(), 0.5 * (B**2).sum()
    return max(squares, absolute) + 0.25 * (of_w + of_b) / scale + 0.5 * of_w / scale


@pytest.mark.device
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_copy_is_trained_equally(when):
    train = rich()
    if when == "after":
        train.finalize()
    twin = train.clone()
    assert type(twin) is ml.TrainModel and said(twin) == said(train)
    assert twin.loss_keys == train.loss_keys and twin.metric_keys == ["worst"]
    assert twin.regularization_keys == train.regularization_keys
    for model in (twin, train):
        outputs, gradients = run(model)
        np.testing.assert_allclose(outputs["final_cost"], rich_cost())
        np.testing.assert_allclose(outputs["worst"], np.abs(Y - T).max())
        np.testing.assert_allclose(outputs["of_bias"], 0.5 * (B**2).sum())
    first, second = (run(model)[1] for model in (train, twin))
    assert all((first[key] == second[key]).all() for key in ("w", "b"))


@pytest.mark.device
def test_a_copy_and_its_original_do_not_touch_each_other():
    train = rich()
    before = train.to_json()
    twin = train.clone()
    twin.add_loss(ml.SquaredError(), [ml.Sum()], key_name="more", input="y", target="target")
    twin.add_metric(ml.SquaredError(), key_name="again", input="y", target="target")
    twin.set_loss_combiner(ml.Sum())
    twin.add_regularization(penalty(), 3.0, key_name="heavy", input="w")
    twin.set_shapes(x=[6, 3])
    assert train.to_json() == before
    np.testing.assert_allclose(run(train)[0]["final_cost"], rich_cost())

    train = rich()
    twin = train.clone()
    copied = twin.to_json()
    train.add_loss(ml.SquaredError(), key_name="more", input="y", target="target")
    train.finalize()
    assert twin.to_json() == copied
    np.testing.assert_allclose(run(twin)[0]["final_cost"], rich_cost())
    assert train.metric_keys == twin.metric_keys == ["worst"]


@pytest.mark.device
@pytest.mark.parametrize("make", [lambda: ml.Tensor(0.25), lambda: ml.IOKey(value=ml.Tensor(0.25))])
def test_coefficients_of_a_copy_are_its_own(make):
    train = rich(make())
    twins = [train.clone(), train.clone()]
    deeper = twins[1].clone()
    for model in (*twins, train, deeper):
        np.testing.assert_allclose(run(model)[0]["final_cost"], rich_cost())


@pytest.mark.device
def test_a_coefficient_that_is_a_wire():
    train = wrapped()
    train |= ml.Multiply()(left=0.5, right=0.5, output="rate")
    train.add_loss(ml.SquaredError(), [ml.Sum()], input="y", target="target")
    train.add_regularization(penalty(), train["rate"], input="w")
    twin = train.clone()
    for model in (twin, train):
        cost = ((Y - T) ** 2).sum() + 0.25 * 0.5 * (W**2).sum()
        np.testing.assert_allclose(run(model)[0]["final_cost"], cost)


def test_copies_by_the_module_copy_and_with_names():
    train = rich()
    for twin in (copy.copy(train), copy.deepcopy(train), ml.Model.clone(train)):
        assert twin.to_json() == train.to_json() and type(twin) is ml.TrainModel
    assert train.clone("mine").name == "mine"
    with pytest.raises(ArgumentError, match="no submodel of other models"):
        train.clone(share=True)


def test_a_copy_of_a_final_model_is_final():
    train = rich()
    train.finalize()
    twin = train.clone()
    with pytest.raises(FrozenModelError):
        twin.add_loss(ml.SquaredError(), input="y", target="target")
    twin.finalize()  # nothing is left to do


def test_a_subclass_keeps_its_own():
    class Mine(ml.TrainModel):
        def __init__(self, model, note):
            super().__init__(model)
            self.note = note

    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    train = Mine(model, "mine")
    train.add_loss(ml.SquaredError(), input="y", target="target")
    twin = train.clone()
    assert type(twin) is Mine and twin.note == "mine" and len(twin.loss_keys) == 1


def test_terms_and_the_trained_model_are_not_taken_out_from_under_the_cost():
    train = wrapped()
    loss, term, metric = ml.SquaredError(), penalty(), ml.AbsoluteError()
    train.add_loss(loss, [ml.Mean(name="average")], input="y", target="target")
    train.add_regularization(term, 0.1, input="w")
    train.add_metric(metric, key_name="error", input="y", target="target")
    train |= ml.Tanh(name="apart")(input="y", output="squashed")
    before = train.to_json()
    name, trained = next(iter(train.submodels.items()))
    for part, kept in {
        loss: "SquaredError(",
        "average": "SquaredError(",
        term: "Model(",
        metric: "AbsoluteError(",
        trained: "the model that is trained",
    }.items():
        for edit in (train.remove, lambda part: train.replace(part, ml.Relu())):
            with pytest.raises(UnsupportedError, match=re.escape(kept)):
                edit(part)
    assert train.to_json() == before
    train.remove("apart")
    train.replace(f"{name}.{next(iter(trained.submodels))}", ml.Linear(2))
    outputs, _ = run(train)
    assert outputs["final_cost"] == pytest.approx(
        np.mean((Y - T) ** 2) + 0.1 * 0.5 * (W**2).sum() / T.size
    )


def test_what_a_term_of_a_copy_is_made_of_stays():
    train = wrapped()
    train.add_loss(ml.SquaredError(), input="y", target="target")
    steps = [ml.Absolute(), ml.Max()]
    train.add_metric(ml.AbsoluteError(name="error"), steps, input="y", target="target")
    train |= ml.Tanh(name="apart")(input="y", output="squashed")
    twin = train.clone()
    with pytest.raises(UnsupportedError, match="is a part of AbsoluteError"):
        twin.remove("error")
    twin.remove("apart")

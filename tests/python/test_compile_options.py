"""Keywords of `compile` (surface C6-C8, C11, C12; physical reference 1), `bind`, initialisers."""

# Covers: mithril/inspection/report.py mithril/execution/constant_lines.py
# Covers: mithril/physical/options.py mithril/physical/option_checks.py

import logging
import re
from types import SimpleNamespace

import mithril as ml
import numpy as np
import pytest
from mithril.execution.constant_lines import folded

X = np.linspace(-1, 1, 12).reshape(4, 3)


def linear():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    return model


def compiled(model=None, backend=None, **options):
    options.setdefault("data_keys", {"x"})
    return ml.compile(model or linear(), backend or ml.NumpyBackend(dtype="float64"), **options)


# --- keywords ---------------------------------------------------------------------------------


def test_safe_shapes_refuses_broadcasting_between_input_and_target():
    def loss():
        model = ml.Model()
        model |= ml.SquaredError()(input="x", target="t", output="y")
        return model

    shapes = {"x": [4, 3], "t": [3]}
    with pytest.raises(ml.errors.ShapeError):
        compiled(loss(), data_keys={"x", "t"}, shapes=shapes, inference=True)
    pm = compiled(loss(), data_keys={"x", "t"}, shapes=shapes, inference=True, safe_shapes=False)
    np.testing.assert_allclose(pm.evaluate({}, {"x": X, "t": X[0]})["y"], (X - X[0]) ** 2)


def mixed():
    model = ml.Model()
    keys = {"x": ml.Tensor[float], "n": ml.Tensor[int]}
    x, n = (ml.IOKey(name, type=kind, shape=[4]) for name, kind in keys.items())
    model |= ml.Multiply()(left=x, right=n, output="y")
    return model


def test_mixing_is_an_error_without_promotion():
    options = {"data_keys": {"x", "n"}, "inference": True}
    pm = compiled(mixed(), **options, auto_scalar_promotion=True)
    data = {"x": X[:, 0], "n": np.arange(4)}
    np.testing.assert_allclose(pm.evaluate({}, data)["y"], X[:, 0] * np.arange(4))
    with pytest.raises(ml.errors.DTypeError, match="multiply mixes f64 and i64"):
        compiled(mixed(), **options, auto_scalar_promotion=False)


@pytest.mark.parametrize("factor", [2.5, 2])
def test_a_float_beside_integers_is_mixing_and_an_integer_beside_floats_is_not(factor):
    for kind, fails in ((int, isinstance(factor, float)), (float, False)):
        model = ml.Model()
        model |= ml.Multiply()(
            left=ml.IOKey("x", type=ml.Tensor[kind], shape=[4]), right=factor, output="y"
        )
        if fails:
            with pytest.raises(ml.errors.DTypeError, match="mixes float and i64"):
                compiled(model, inference=True, auto_scalar_promotion=False)
        else:
            compiled(model, inference=True, auto_scalar_promotion=False)


@pytest.mark.parametrize("backend", [ml.NumpyBackend, ml.CpuBackend])
@pytest.mark.device
def test_static_shapes_are_those_of_the_first_call(backend):
    pm = compiled(backend=backend(dtype="float64"), static_shapes=True)
    params = pm.init({"x": X})
    pm.evaluate(params, {"x": X})
    pm.evaluate(params, {"x": X + 1})
    with pytest.raises(ml.errors.ShapeError) as raised:
        pm.evaluate(params, {"x": X[:2]})
    text = str(raised.value)
    assert "'x' has shape [2, 3]" in text
    assert "fixed [4, 3] at the first call" in text
    assert re.search(r"test_compile_options\.py:\d+", text)
    pm.evaluate(params, {"x": X})


def test_static_shapes_hold_for_steps():
    model = linear()
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="t")
    optimizer = ml.optim.SGD()
    pm = compiled(train, data_keys={"x", "t"}, optimizer=optimizer, static_shapes=True)
    params = pm.init({"x": X, "t": X[:, :2]})
    pm.step(params, optimizer.init(params), {"x": X, "t": X[:, :2]})
    with pytest.raises(ml.errors.ShapeError, match="static_shapes=True"):
        pm.step(params, optimizer.init(params), {"x": X[:2], "t": X[:2, :2]})


CONSTANT_LINES = """\
def evaluate(v0):
    v1 = C[0]  # a
    v2 = C[1]; v3 = 2
    v4, v5 = ops.both(v1, v1); del v1  # both
    v6 = ops.add(v4, v5); del v4, v5  # sum
    v7 = ops.add(v0, v6); del v0  # x
    v9 = C[0]
    if v3:
        v9 = ops.add(v7, v6)
    v8 = ops.add(v9, v6); del v6  # last
    return (v7, v8,)
"""


def test_lines_of_constants_are_taken_out():
    """Those of several statements and in branches stay; what later lines read is a constant."""
    ops = SimpleNamespace(add=lambda a, b: a + b, both=lambda a, b: (a, 2 * b))
    scope = {"ops": ops, "C": (np.float32(5), np.float32(7))}
    text, values = folded(ml.NumpyBackend(), CONSTANT_LINES, dict(scope))
    assert values == [15.0]  # 5 + 2 * 5
    assert (
        text
        == """\
def evaluate(v0):
    v2 = C[1]; v3 = 2
    v6 = C[2]  # sum
    v7 = ops.add(v0, v6); del v0  # x
    v9 = C[0]
    if v3:
        v9 = ops.add(v7, v6)
    v8 = ops.add(v9, v6); del v6  # last
    return (v7, v8,)
"""
    )
    exec(text, scope | {"C": (*scope["C"], *values)}, found := {})
    assert found["evaluate"].__code__.co_argcount == 1


def test_static_inference_keeps_what_the_source_computes():
    """Sizes of constants, gradients and steps: equal with and without."""
    model = ml.Model()
    model |= ml.Sine()(input=ml.Tensor([[0.0, 1.0, 2.0]]), output="s")
    model |= ml.Add()(left="x", right="s", output="t")
    model |= ml.Linear(2)(input="t", weight="w", bias="b", output="y")
    model.expose_keys("y", "s")
    slopes = {"y": np.ones((4, 2)), "s": np.ones((1, 3))}
    w, b = np.arange(6.0).reshape(2, 3), np.array([0.5, -0.25])
    options = {"data_keys": {"x"}, "shapes": {"x": [None, 3]}}
    found = []
    for folds in (True, False):
        backend = ml.NumpyBackend(dtype="float64")
        pm = ml.compile(model, backend, static_inference=folds, **options)
        found.append(pm.evaluate({"w": w, "b": b}, {"x": X}, output_gradients=slopes))
    want = (X + np.sin([[0.0, 1.0, 2.0]])) @ w.T + b
    np.testing.assert_allclose(found[0].outputs["y"], want)
    np.testing.assert_allclose(found[0].outputs["s"], np.sin([[0.0, 1.0, 2.0]]))
    for key, gradient in found[1].gradients.items():
        np.testing.assert_array_equal(found[0].gradients[key], gradient)


KEYWORDS = ("verbose", "safe_shapes", "auto_scalar_promotion", "static_shapes", "safe_names")
KEYWORDS += (
    "static_inference",
    "exact_conv",
    "gradient_checkpointing",
    "stream_gradients",
    "use_short_namings",
    "inference",
)


@pytest.mark.parametrize("keyword", KEYWORDS)
@pytest.mark.parametrize("value", [None, 1, "yes", [], np.True_])
def test_switches_take_only_bools(keyword, value):
    with pytest.raises(ml.errors.SignatureError, match=f"{keyword}: requires True or False"):
        compiled(**{keyword: value})


def test_verbose_prints_keys_and_passes(capsys):
    compiled(shapes={"x": [None, 3]}, verbose=True)
    out = capsys.readouterr().out
    assert re.search(r"^w +trainable +float64 +\[2, 3\]$", out, re.M)
    assert re.search(r"^y +output +float64 +\[None, 2\]$", out, re.M)
    assert re.search(r"^remove_dead +[\d.]+ ms", out, re.M)
    compiled()
    assert capsys.readouterr().out == ""


def test_verbose_logs_where_somebody_listens(caplog, capsys):
    with caplog.at_level(logging.INFO, "mithril"):
        compiled(shapes={"x": [None, 3]}, verbose=True)
    assert "remove_dead" in caplog.text
    assert capsys.readouterr().out == ""


def test_passes_are_switched_off():
    def twice():
        model = ml.Model()
        model |= ml.Tanh()(input="x", output="a")
        model |= ml.Tanh()(input="x", output="b")
        model |= ml.Add()(left="a", right="b", output="y")
        return model

    options = {"inference": True, "shapes": {"x": [4, 3]}}
    merged = str(compiled(twice(), **options)._compilation.compiled.forward)
    apart = str(
        compiled(twice(), **options, passes=["-merge_common"])._compilation.compiled.forward
    )
    assert (merged.count("tanh("), apart.count("tanh(")) == (1, 2)
    with pytest.raises(ml.errors.ArgumentError, match="did you mean '-merge_common'"):
        compiled(passes=["-merge_comon"])
    for bad in ("-fuse", 3, [3], None):
        with pytest.raises(ml.errors.SignatureError, match="passes: requires"):
            compiled(passes=bad)
    for bad in (["fuse"], ["-decompose"]):
        with pytest.raises(ml.errors.ArgumentError, match="cannot switch"):
            compiled(passes=bad)


# --- bind -------------------------------------------------------------------------------------


def test_bound_parameters_are_constants(backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= ml.Linear(2)(input="x", output="h")
    model |= ml.Linear(2)(input="h", bias="b", output="y")
    pm = compiled(model, backend, shapes={"x": [None, 3]})
    params = pm.randomize_params(1)
    want = backend.to_numpy(pm.evaluate(params, {"x": X})["y"])
    bound = pm.bind(params)
    assert (bound.param_keys, pm.param_keys) == ((), tuple(params))
    np.testing.assert_allclose(backend.to_numpy(bound.evaluate({}, {"x": X})["y"]), want, rtol=1e-6)
    rest = {"b": params.pop("b")}
    partly = pm.bind(params)
    assert partly.trainable_keys == ("b",)
    result = partly.evaluate(rest, {"x": X}, output_gradients={"y": np.ones((4, 2))})
    np.testing.assert_allclose(backend.to_numpy(result.outputs["y"]), want, rtol=1e-6)
    np.testing.assert_allclose(backend.to_numpy(result.gradients["b"]), [4.0, 4.0])


@pytest.mark.parametrize(
    "options, names",
    [
        ({}, ["weight_0", "bias_0", "weight_1"]),
        ({"naming": "path"}, ["linear_0.weight", "linear_0.bias", "linear_1.weight"]),
        ({"use_short_namings": False}, ["linear_0_weight", "linear_0_bias", "linear_1_weight"]),
    ],
)
def test_bound_keys_are_called_as_the_parameters_were(options, names):
    model = ml.Model()
    model |= ml.Linear(2)(input="x", output="h")
    model |= ml.Linear(2)(input="h", bias="b", output="y")
    pm = compiled(model, shapes={"x": [None, 3]}, trainable_keys=names, **options)
    params = pm.randomize_params(1)
    assert set(params) == {*names, "b"}
    for count in (1, 2, 3):
        bound = pm.bind({name: params[name] for name in names[:count]})
        assert bound.input_keys == pm.input_keys == {"x", "b", *names}
        assert bound.external_key_mapping == pm.external_key_mapping
        assert set(bound.param_keys) == {"b", *names[count:]} == set(bound.trainable_keys)
        assert bound.shapes == pm.shapes and bound.discarded_keys == set()


def crossed():
    """y = b - a; the model, and its part whose keys are called the other way round."""
    model, part = ml.Model(), ml.Model()
    part |= ml.Subtract()("a", "b", output="y")
    model |= part(a="b", b="a", y="y")
    model.expose_keys("y")
    return model, part


def test_a_connection_means_its_key_in_the_compiled_model(backend_name):
    backend = ml.get_backend(backend_name)
    model, part = crossed()
    pm = compiled(model, backend, data_keys=(), trainable_keys=[part.a, part.b])
    ones = backend.ones(2)
    bound = pm.bind({"a": ones})
    assert bound.trainable_keys == ("b",)
    assert bound.bind({"b": 2 * ones}).param_keys == ()
    result = bound.evaluate({"b": 2 * ones}, output_gradients={"y": 3 * ones})
    np.testing.assert_array_equal(backend.to_numpy(result.outputs["y"]), [1, 1])
    np.testing.assert_array_equal(backend.to_numpy(result.gradients["b"]), [3, 3])


@pytest.mark.parametrize("of_type, of_constant", [("a", "b"), ("b", "a"), ("a", "a"), ("b", "b")])
def test_a_constant_has_the_type_that_its_wire_is_given(of_type, of_constant):
    model, part = crossed()  # part.a is the model's b
    other = {"a": "b", "b": "a"}
    for key in (of_type, getattr(part, other[of_type])):
        for constant in (of_constant, getattr(part, other[of_constant])):
            pm = compiled(
                model,
                ml.NumpyBackend(dtype="float32"),
                data_keys={other[of_constant]},
                types={key: ml.float64},
                constant_keys={constant: np.array([1 / 3])},
            )
            out = pm.evaluate({}, {other[of_constant]: np.zeros(1)})["y"]
            exact = 1 / 3 if of_type == of_constant else float(np.float32(1 / 3))
            assert abs(out[0]) == exact


def test_bind_refuses_what_is_no_parameter():
    pm = compiled(shapes={"x": [None, 3]})
    with pytest.raises(ml.errors.KeyNotFound, match="bind: no parameter named 'x'"):
        pm.bind({"x": X})
    with pytest.raises(ml.errors.ShapeError):
        pm.bind({"w": np.ones((5, 5))})
    with pytest.raises(ml.errors.SignatureError, match="params: requires a dictionary"):
        pm.bind([1])
    with pytest.raises(ml.errors.ShapeNotKnown):
        compiled().bind(compiled().get_parameters())


def test_what_was_trained_and_has_first_values_can_be_bound():
    model = linear()
    model.set_values({"w": ml.Tensor(np.ones((2, 3)).tolist())}, initial=True)
    pm = compiled(model, trainable_keys={"b"}, shapes={"x": [None, 3]})
    bound = pm.bind({"w": np.full((2, 3), 2.0), "b": np.zeros(2)})
    np.testing.assert_allclose(bound.evaluate({}, {"x": X})["y"], X @ np.full((3, 2), 2.0))


def test_a_first_value_stays_one_where_its_key_meets_a_wire_of_more_keys():
    inner = ml.Model()
    inner |= ml.Multiply()(left="x", right="w", output="y")
    inner.set_values(w=ml.Tensor([2.0, 3.0]), initial=True)
    outer = ml.Model()
    for name in ("a", "b", "c"):
        outer |= ml.Relu()(input="w", output=name)
    outer |= inner(x="x", w="w", y="y")
    pm = ml.compile(outer, ml.NumpyBackend(), trainable_keys={"w"}, data_keys={"x"})
    np.testing.assert_array_equal(pm.randomize_params(0)["w"], [2.0, 3.0])


def test_outputs_of_discarded_inputs_go_too():
    model = ml.Model()
    model |= ml.Relu()(input="a", output="p")
    model |= ml.Tanh()(input="b", output="q")
    model.expose_keys("p", "q")
    pm = ml.compile(model, ml.NumpyBackend(), discard_keys={"a"})
    assert (list(pm.output_keys), set(pm.input_keys)) == (["q"], {"b"})


def test_layers_that_share_statistics_move_them_one_after_the_other():
    model, statistics = ml.Model(), {"running_mean": "mean", "running_var": "variance"}
    for x, y in (("x", "y"), ("x2", "y2")):
        model |= ml.BatchNorm1D()(input=x, output=y, **statistics)
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x", "x2"}, mode="train",
                    shapes={"x": [4, 2], "x2": [4, 2]})  # fmt: skip
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    result = pm.evaluate(pm.randomize_params(0), {"x": x, "x2": 10 * x}, state=pm.initial_state())
    expected = 0.9 * (0.1 * x.mean(0)) + 0.1 * 10 * x.mean(0)
    np.testing.assert_allclose(result.state["mean"], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("constant", "first"),
    [(ml.Constant.ONES, 1.0), (ml.Constant.ZEROS, 0.0), (3.0, 3.0)],
)
@pytest.mark.parametrize("shapes", [None, {"x": [2]}])
def test_a_state_of_one_number_needs_no_shape(backend_name, constant, first, shapes):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= ml.Add()(left="x", right="sum", output="next")
    model |= ml.Buffer()(input="next", output="y")
    model.bind_state_keys("sum", "next", constant)
    pm = ml.compile(model, backend, shapes=shapes)
    x = np.arange(2, dtype=np.float32)
    for state in (pm.initial_state(), pm.initial_state(sample={"x": x})):
        for step in (1, 2, 3):
            result = pm.evaluate({}, {"x": x}, state=state)
            state = result.state
            got = backend.to_numpy(result.outputs["y"])
            np.testing.assert_array_equal(got, first + step * x)


def test_a_first_value_of_what_is_not_trained_is_refused():
    model = ml.Model()
    model |= ml.Multiply()(left="x", right="w", output="y")
    model.set_values(w=ml.Tensor([2.0, 3.0]), initial=True)
    with pytest.raises(ml.errors.ArgumentError, match="'w' has an initial value, and is not train"):
        ml.compile(model, ml.NumpyBackend())
    pm = ml.compile(model, ml.NumpyBackend(), trainable_keys={"w"})
    np.testing.assert_array_equal(pm.get_parameters()["w"], [2.0, 3.0])
    assert "w" in ml.compile(model, ml.NumpyBackend(), data_keys={"w"}).data_keys


def test_the_state_of_a_submodel_is_bound_to_its_own_output():
    total = ml.Model()
    total |= ml.Add()(left="sum", right="x", output="next")
    total.bind_state_keys("sum", "next", 0.0)
    total.set_shapes(sum=[2])
    total.expose_keys("next")
    model = ml.Model()
    model |= ml.Relu()(input="x", output="h")
    model |= total(x="h", next="y")
    model.expose_keys("y")
    pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": [2]})
    state = pm.initial_state()
    for step in (1, 2, 3):
        result = pm.evaluate({}, {"x": np.ones(2, np.float32)}, state=state)
        state = result.state
        np.testing.assert_array_equal(result.outputs["y"], [step, step])


# --- initialisers -----------------------------------------------------------------------------


def test_initialisers_by_name_and_pattern():
    pm = compiled(shapes={"x": [None, 3]})
    usual = pm.randomize_params(3)
    made = pm.randomize_params(3, init={"b": 0.5})
    np.testing.assert_array_equal(made["b"], [0.5, 0.5])
    np.testing.assert_array_equal(made["w"], usual["w"])
    made = pm.randomize_params(3, init={"w*": "zeros", re.compile("."): "ones"})
    np.testing.assert_array_equal(made["w"], np.zeros((2, 3)))
    np.testing.assert_array_equal(made["b"], np.ones(2))
    made = pm.randomize_params(3, init={"w": lambda shape: np.arange(6).reshape(shape)})
    np.testing.assert_array_equal(made["w"], np.arange(6).reshape(2, 3))
    assert made["w"].dtype == np.float64
    made = pm.randomize_params(3, init={"w": "normal"})["w"]
    np.testing.assert_array_equal(made, pm.randomize_params(3, init={"w": "normal"})["w"])
    assert not np.array_equal(made, usual["w"])
    assert list(pm.randomize_params(3, excluded_keys={"b"})) == ["w"]


def test_initialisers_wait_for_the_shape():
    pm = compiled()
    params = pm.randomize_params(3, init={"w": lambda shape: np.full(shape, 2.0), "b": 1})
    np.testing.assert_array_equal(params["b"], [1.0, 1.0])
    outputs = pm.evaluate(params, {"x": X})
    np.testing.assert_allclose(outputs["y"], X @ np.full((3, 2), 2.0) + 1)
    np.testing.assert_array_equal(params["w"], np.full((2, 3), 2.0))


@pytest.mark.parametrize(
    ("init", "kind", "text"),
    [
        ({"v": 1}, KeyError, "no parameter is named 'v'"),
        ({"w": "zeroes"}, ValueError, "did you mean 'zeros'"),
        ({"w": None}, TypeError, "requires a name, a number"),
        ({"w": True}, TypeError, "requires a name, a number"),
        ({3: 1}, TypeError, "requires names or patterns"),
        ({re.compile(b"w"): 1}, TypeError, "requires names or patterns"),
        ({"w": np.ones(5)}, ValueError, "requires shape [2, 3], got [5]"),
        ({"w": lambda shape: np.ones(7)}, ValueError, "requires shape [2, 3], got [7]"),
        ({"w": lambda shape: ["a"]}, ml.errors.MithrilError, ""),
        ("zeros", TypeError, "requires a dictionary"),
    ],
)
def test_initialisers_that_are_refused(init, kind, text):
    pm = compiled(shapes={"x": [None, 3]})
    with pytest.raises(kind) as raised:
        pm.randomize_params(0, init=init)
    assert isinstance(raised.value, ml.errors.MithrilError)
    assert text in str(raised.value)
    with pytest.raises(ml.errors.KeyNotFound, match="excluded_keys"):
        pm.randomize_params(0, excluded_keys=["v"])
    with pytest.raises(ml.errors.SignatureError, match="excluded_keys"):
        pm.randomize_params(0, excluded_keys="w")


# --- names ------------------------------------------------------------------------------------

# What the engine calls, or called, its own inputs and results.
NAMES = ["opt.t", "opt.lr", "opt.m.b", "new.b", "new.opt.t", "grad.b", "cotangent.y", "state.b"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["parameter", "output"])
@pytest.mark.device
def test_names_like_the_engines_own_do_not_collide(name, place):
    steps = []
    for backend in (ml.CpuBackend(dtype="float64"), ml.NumpyBackend(dtype="float64")):
        weight, output = (name, "y") if place == "parameter" else ("w", name)
        model = ml.Model()
        model |= ml.Linear(2)(input="x", weight=weight, bias="b", output=output)
        model.expose_keys(output)
        train = ml.TrainModel(model)
        train.add_loss(ml.SquaredError(), input=output, target="t")
        optimizer = ml.optim.Adam()
        shapes = {"x": [4, 3], "t": [4, 2]}
        pm = compiled(train, backend, data_keys={"x", "t"}, shapes=shapes, optimizer=optimizer)
        params = pm.randomize_params(0)
        state = optimizer.init(params)
        for _ in range(3):  # the second one on goes the quick way
            params, state, _, outputs = pm.step(params, state, {"x": X, "t": X[:, :2]})
        given = {output: np.ones((4, 2))}
        result = pm.evaluate(params, {"x": X, "t": X[:, :2]}, output_gradients=given)
        np.testing.assert_allclose(result.gradients[weight], np.ones((2, 4)) @ X)
        steps.append({**params, **outputs})
    for key, value in steps[0].items():
        np.testing.assert_allclose(value, steps[1][key], rtol=1e-9, err_msg=key)


def test_exact_conv_sums_whole_numbers_exactly():
    """Convolutions by tiles round on the way; sums of products of small whole numbers do not."""
    model = ml.Model()
    model |= ml.Conv2d(filters=32, kernel_size=3, padding=1, use_bias=False)(input="x", output="y")
    rng = np.random.default_rng(5)
    x = rng.integers(-8, 9, size=(2, 32, 24, 24)).astype(np.float32)
    w = rng.integers(-8, 9, size=(32, 32, 3, 3)).astype(np.float32)
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64))

    def run(**options):
        pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, **options)
        (name,) = pm.param_keys
        bound = pm.bind({name: w})
        y = pm.evaluate({name: w}, {"x": x})["y"]
        np.testing.assert_array_equal(y, bound.evaluate({}, {"x": x})["y"])
        return y

    np.testing.assert_array_equal(run(exact_conv=True), expected)
    by_tiles = run()
    magnitude = np.einsum("nchwij,ocij->nohw", np.abs(windows), np.abs(w.astype(np.int64)))
    np.testing.assert_allclose(by_tiles, expected, rtol=0, atol=2.0**-20 * magnitude.max())
    if ml.CpuBackend().isa != "generic":
        assert (by_tiles != expected).any()


def test_exact_conv_sums_gradients_of_filters_exactly():
    model = ml.Model()
    model |= ml.Conv2d(filters=32, kernel_size=3, padding=1, use_bias=False)(input="x", output="y")
    rng = np.random.default_rng(6)
    x = rng.integers(-8, 9, size=(2, 32, 24, 24)).astype(np.float32)
    g = rng.integers(-8, 9, size=(2, 32, 24, 24)).astype(np.float32)
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    expected = np.einsum("nchwij,nohw->ocij", windows, g.astype(np.int64))

    def run(**options):
        pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, **options)
        (name,) = pm.param_keys
        w = np.zeros((32, 32, 3, 3), np.float32)
        _, gradients = pm.evaluate({name: w}, {"x": x}, output_gradients={"y": g})
        return gradients[name]

    np.testing.assert_array_equal(run(exact_conv=True), expected)
    by_tiles = run()
    magnitude = np.einsum("nchwij,nohw->ocij", np.abs(windows), np.abs(g.astype(np.int64)))
    np.testing.assert_allclose(by_tiles, expected, rtol=0, atol=2.0**-20 * magnitude.max())
    if ml.CpuBackend().isa != "generic":
        assert (by_tiles != expected).any()


@pytest.mark.parametrize("batch", [(), (3,)])
def test_bound_matrices_give_the_same_bits(batch):
    """Weights that are constants are packed once; sizes end inside of panels and blocks."""
    rng = np.random.default_rng(9)
    for rows, inner, columns in [(8, 300, 70), (33, 513, 45), (8, 64, 64)]:
        model = ml.Model()
        model |= ml.MatrixMultiply()(left="x", right="w", output="y")
        x = rng.normal(size=(*batch, rows, inner)).astype(np.float32)
        w = rng.normal(size=(*batch, inner, columns)).astype(np.float32)
        pm = ml.compile(
            model,
            ml.CpuBackend(),
            data_keys={"x"},
            trainable_keys={"w"},
            shapes={"x": x.shape, "w": w.shape},
        )
        y = pm.evaluate({"w": w}, {"x": x})["y"]
        np.testing.assert_array_equal(pm.bind({"w": w}).evaluate({}, {"x": x})["y"], y)
        turned = np.ascontiguousarray(np.swapaxes(w, -1, -2))
        model = ml.Model()
        model |= ml.SwapAxes(-1, -2)(input="w", output="t")
        model |= ml.MatrixMultiply()(left="x", right="t", output="y")
        pm = ml.compile(
            model,
            ml.CpuBackend(),
            data_keys={"x"},
            trainable_keys={"w"},
            shapes={"x": x.shape, "w": turned.shape},
        )
        np.testing.assert_array_equal(pm.bind({"w": turned}).evaluate({}, {"x": x})["y"], y)
        exact = x.astype(np.float64) @ w.astype(np.float64)
        np.testing.assert_allclose(y, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "how", [{"stride": (2, 1)}, {"stride": (1, 2)}, {"dilation": (2, 1)}, {"dilation": (1, 2)}]
)
def test_tiles_take_neither_strides_nor_dilations(how):
    """Sizes in which tiles are preferred otherwise."""
    model = ml.Model()
    conv = ml.Conv2d(filters=32, kernel_size=3, padding=1, use_bias=False, **how)
    model |= conv(input="x", output="y")
    rng = np.random.default_rng(6)
    x = rng.integers(-8, 9, size=(2, 32, 24, 24)).astype(np.float32)
    w = rng.integers(-8, 9, size=(32, 32, 3, 3)).astype(np.float32)
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"})
    (name,) = pm.param_keys
    y = pm.evaluate({name: w}, {"x": x})["y"]
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    (sh, sw), (dh, dw) = how.get("stride", (1, 1)), how.get("dilation", (1, 1))
    reach = (2 * dh + 1, 2 * dw + 1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3))
    windows = windows[:, :, ::sh, ::sw, ::dh, ::dw]
    np.testing.assert_array_equal(y, np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64)))


class ChipBackend(ml.CpuBackend):
    """A backend that a user makes of ours."""


@pytest.mark.device
def test_errors_name_the_backend_that_the_user_made():
    for options in ({"threads": 0}, {"threads": "many"}, {"dtype": "int32"}):
        with pytest.raises((ValueError, TypeError), match="^ChipBackend: ") as caught:
            ChipBackend(**options)
        assert "CpuBackend" not in str(caught.value)
    with pytest.raises(ml.errors.UnsupportedError, match="ChipBackend"):
        ml.compile(ml.Relu(), ChipBackend(), jit_options={"a": 1})


@pytest.mark.frameworks
@pytest.mark.parametrize("base", ["TorchBackend", "JaxBackend", "MlxBackend"])
def test_errors_name_the_framework_backend_that_the_user_made(base):
    mine = type("ChipBackend", (getattr(ml, base),), {})
    for options in ({"device": "chip"}, {"dtype": "int32"}, {"device_mesh": (64,)}):
        with pytest.raises(ml.errors.MithrilError) as caught:
            mine(**options)
        assert base not in str(caught.value)

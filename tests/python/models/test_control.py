"""Loops against PyTorch's and JAX's own, against NumPy, and against what their steps say."""

import json

import mithril as ml
import numpy as np
import pytest
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    MithrilError,
    OptionError,
    ShapeError,
    SignatureError,
    UnsupportedError,
)
from models.composite_cases import BACKENDS, check, far, numbers, on_native, run

T, N, D, H = 5, 3, 2, 4


def rnn_step():
    """h' = tanh(x Wᵀ + h Uᵀ + b), kept of each step, too."""
    step = ml.Model()
    step |= ml.Linear(use_bias=False)(input="h", weight="u", output="of_state")
    step |= ml.Linear()(input="x", weight="w", bias="b", output="of_input")
    step |= ml.Add()(left="of_state", right="of_input", output="sum")
    step |= ml.Tanh()(input="sum", output="h_next")
    step |= ml.Buffer()(input="h_next", output="state")
    step.expose_keys("h_next", "state")
    return step


def rnn(**options):
    model = ml.Model()
    loop = ml.Scan(rnn_step(), carry={"h": "h_next"}, xs=["x"], **options)
    names = {key: key for key in ("h", "x", "u", "w", "b", "h_next", "state")}
    model |= loop(**names)
    model.expose_keys("h_next", "state")
    return model


def rnn_by_hand(h, x, u, w, b, reverse=False, axis=0):
    x = np.moveaxis(x, axis, 0)
    states = []
    for row in x[::-1] if reverse else x:
        h = np.tanh(h @ u.T + row @ w.T + b)
        states.append(h)
    rows = np.array(states[::-1] if reverse else states).reshape(len(x), *h.shape)
    return {"h_next": h, "state": np.moveaxis(rows, 0, axis)}


def rnn_inputs(length=T, axis=0):
    given = numbers(1, h=(N, H), x=(length, N, D), u=(H, H), w=(H, D), b=(H,))
    given["x"] = np.ascontiguousarray(np.moveaxis(given["x"], 0, axis))
    return given


@on_native
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, T])
def test_a_recurrent_network(native, length, reverse):
    by_hand = lambda **given: rnn_by_hand(**given, reverse=reverse)  # noqa: E731
    check(rnn(reverse=reverse), by_hand, rnn_inputs(length), native)


@on_native
@pytest.mark.parametrize("axis", [1, 2])
def test_places_on_another_axis(native, axis):
    by_hand = lambda **given: rnn_by_hand(**given, axis=axis)  # noqa: E731
    check(rnn(axis=axis), by_hand, rnn_inputs(axis=axis), native)


def compiled(model, backend, inputs, **options):
    shapes = {key: value.shape for key, value in inputs.items()}
    return ml.compile(model, backend, shapes=shapes, data_keys=set(inputs), jit=False, **options)


def values_and_gradients(model, name, inputs, cotangents, **options):
    backend = getattr(ml, BACKENDS[name])(dtype="float64" if name != "mlx" else "float32")
    pm = compiled(model, backend, inputs, **options)
    found = pm.evaluate({}, inputs, output_gradients=cotangents, wrt=list(inputs))
    return tuple({k: backend.to_numpy(v) for k, v in part.items()} for part in found)


@pytest.mark.frameworks
@pytest.mark.parametrize("autodiff", ["engine", "framework"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", BACKENDS)
def test_torch_rnn(name, reverse, autodiff):
    torch = pytest.importorskip("torch")
    if name in ("cpu", "numpy", "c") and autodiff == "framework":
        pytest.skip("the engine is the only one to differentiate there")
    inputs = rnn_inputs()
    layer = torch.nn.RNN(D, H, bias=True).double()
    given = {key: torch.tensor(value, requires_grad=True) for key, value in inputs.items()}
    x = given["x"].flip(0) if reverse else given["x"]
    weights = {
        "weight_ih_l0": given["w"],
        "weight_hh_l0": given["u"],
        "bias_ih_l0": given["b"],
        "bias_hh_l0": torch.zeros(H, dtype=torch.float64),
    }
    states, last = torch.func.functional_call(layer, weights, (x, given["h"][None]))
    states = states.flip(0) if reverse else states
    rng = np.random.default_rng(3)
    cotangents = {"h_next": rng.standard_normal((N, H)), "state": rng.standard_normal((T, N, H))}
    loss = (last[0] * torch.tensor(cotangents["h_next"])).sum()
    (loss + (states * torch.tensor(cotangents["state"])).sum()).backward()
    outputs, gradients = values_and_gradients(
        rnn(reverse=reverse), name, inputs, cotangents, autodiff=autodiff
    )
    bound = 1e-4 if name == "mlx" else 1e-12
    assert far(outputs["h_next"], last[0].detach().numpy(), bound) is None
    assert far(outputs["state"], states.detach().numpy(), bound) is None
    for key, value in given.items():
        assert far(gradients[key], value.grad.numpy(), bound) is None, key


@pytest.mark.frameworks
@pytest.mark.parametrize("name", BACKENDS)
def test_lax_scan(name):
    jax = pytest.importorskip("jax")
    inputs = {"start": np.array([0.5, 2.0]), "x": numbers(5, x=(4, 2))["x"], "w": np.array(1.5)}

    def step(carry, x):
        total, steps = carry
        total = total * x + inputs["w"]
        return (total, steps + 1), (total, total - x)

    body = ml.Model()
    body |= ml.Multiply()(left="total", right="x", output="product")
    body |= ml.Add()(left="product", right="w", output="sum")
    body |= ml.Subtract()(left="sum", right="x", output="rest")
    body |= ml.Add()(left="steps", right=1, output="more")
    body |= ml.Buffer()(input="sum", output="kept")
    body.expose_keys("sum", "rest", "more", "kept")
    body.set_types(steps=ml.Tensor[int])
    model = ml.Model()
    model |= ml.Scan(body, carry={"total": "sum", "steps": "more"}, xs=["x"], ys=["kept", "rest"])(
        total="start", steps="steps", x="x", w="w",
        sum="sum", more="more", kept="kept", rest="rest",
    )  # fmt: skip
    model.expose_keys("sum", "more", "kept", "rest")
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        (total, steps), (kept, rest) = jax.lax.scan(step, (inputs["start"], 0), inputs["x"])
        wanted = {"sum": total, "more": steps, "kept": kept, "rest": rest}
        wanted = {key: np.asarray(value) for key, value in wanted.items()}
    given = {**inputs, "steps": np.array(0)}
    if name == "mlx":
        given = {k: v.astype("f4") if v.dtype.kind == "f" else v for k, v in given.items()}
    backend = getattr(ml, BACKENDS[name])(dtype="float32" if name == "mlx" else "float64")
    pm = compiled(model, backend, given, inference=True)
    found = {k: backend.to_numpy(v) for k, v in pm.evaluate({}, given).items()}
    for key, value in wanted.items():
        assert far(found[key], value, 1e-5 if name == "mlx" else 1e-14) is None, key
    assert found["more"].dtype.kind == "i"


def products():
    """Cumulative products, the state being the kept output."""
    body = ml.Model()
    body |= ml.Multiply()(left="before", right="x", output="product")
    body.expose_keys("product")
    model = ml.Model()
    scan = ml.Scan(body, carry={"before": "product"}, xs=["x"], ys={"product": "products"})
    model |= scan(before="one", x="x", product="last", products="y")
    model.expose_keys("y", "last")
    return model


def test_products(backend_name):
    x = numbers(2, x=(6, 2))["x"]
    backend = ml.get_backend(backend_name)
    one = backend.ones(2)
    pm = ml.compile(products(), backend, data_keys={"x", "one"}, inference=True)
    for rows in (6, 1, 4):  # one program, many lengths
        out = pm.evaluate({}, {"x": backend.array(x[:rows]), "one": one})
        wanted = np.cumprod(x[:rows], 0)
        np.testing.assert_allclose(backend.to_numpy(out["y"]), wanted, 2e-6)
        np.testing.assert_allclose(backend.to_numpy(out["last"]), wanted[-1], 2e-6)


@on_native
def test_without_sequences(native):
    body = ml.Model()
    body |= ml.Multiply()(left="y", right="factor", output="next")
    body.expose_keys("next")
    model = ml.Model()
    scan = ml.Scan(body, carry={"y": "next"}, length=7)
    model |= scan(y="start", factor="factor", next="end")
    model.expose_keys("end")
    by_hand = lambda start, factor: {"end": start * factor**7}  # noqa: E731
    check(model, by_hand, numbers(3, start=(2,), factor=(2,)), native)


@on_native
def test_without_state(native):
    body = ml.Model()
    body |= ml.Multiply()(left="x", right="w", output="y")
    body.expose_keys("y")
    model = ml.Model()
    model |= ml.Scan(body, xs=["x"])(x="x", w="w", y="y")
    model.expose_keys("y")
    by_hand = lambda x, w: {"y": x * w}  # noqa: E731
    check(model, by_hand, numbers(3, x=(4, 2), w=(2,)), native)


def table():
    """Sums of products, row by row: a loop in a loop. The inner one's constants are the outer
    one's state, sequence and constant."""
    inner = ml.Model()
    inner |= ml.Multiply()(left="cell", right="factor", output="scaled")
    inner |= ml.Multiply()(left="scaled", right="row_state", output="part")
    inner |= ml.Add()(left="sum", right="part", output="next")
    inner.expose_keys("next")
    outer = ml.Model()
    outer |= ml.Scan(inner, carry={"sum": "next"}, xs=["cell"])(
        sum="state", cell="row", factor="factor", row_state="state", next="row_sum"
    )
    outer |= ml.Tanh()(input="row_sum", output="new_state")
    outer.expose_keys("new_state")
    model = ml.Model()
    model |= ml.Scan(outer, carry={"state": "new_state"}, xs=["row"])(
        state="start", row="table", factor="factor", new_state="end"
    )
    model.expose_keys("end")
    return model


def table_by_hand(start, table, factor):
    for row in table:
        total = start
        for cell in row:
            total = total + cell * factor * start
        start = np.tanh(total)
    return {"end": start}


@on_native
def test_a_loop_in_a_loop(native):
    check(table(), table_by_hand, numbers(4, start=(), table=(3, 4), factor=()), native)


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["torch", "jax", "mlx"])
def test_a_loop_in_a_loop_on_frameworks(name):
    inputs = numbers(4, start=(), table=(3, 4), factor=())
    wanted = values_and_gradients(table(), "cpu", inputs, {"end": np.array(1.0)})
    for autodiff in ("engine", "framework"):
        found = values_and_gradients(
            table(), name, inputs, {"end": np.array(1.0)}, autodiff=autodiff
        )
        for part, expected in zip(found, wanted, strict=True):
            for key, value in expected.items():
                assert far(part[key], value, 1e-5 if name == "mlx" else 1e-12) is None, key


def last_of_products():
    """tanh of w x, multiplied up."""
    body = ml.Model()
    body |= ml.Multiply()(left="w", right="x", output="scaled")
    body |= ml.Tanh()(input="scaled", output="bent")
    body |= ml.Multiply()(left="before", right="bent", output="product")
    body |= ml.Add()(left="product", right="w", output="next")
    body.expose_keys("next")
    model = ml.Model()
    model |= ml.Scan(body, carry={"before": "next"}, xs=["x"])(
        before="start", x="x", w="w", next="end"
    )
    model.expose_keys("end")
    return model


@pytest.mark.frameworks
@pytest.mark.parametrize("name", BACKENDS)
def test_second_derivatives(name):
    jax = pytest.importorskip("jax")
    inputs = {"start": np.array(0.7), "x": np.array([0.5, -1.2, 0.9, 2.0]), "w": np.array(0.8)}

    def last(start, x, w):
        step = lambda before, at: (before * jax.numpy.tanh(w * at) + w, None)  # noqa: E731
        return jax.lax.scan(step, start, x)[0]

    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        third = jax.grad(jax.grad(jax.grad(last, 2), 2), 2)(*inputs.values())
        mixed = jax.jacrev(jax.grad(last, 2), 1)(*inputs.values())
        by_x = jax.hessian(last, 1)(*inputs.values()).sum(0)
    first = ml.grad(last_of_products(), "w", output="end")
    cases = [
        (ml.grad(first, "x"), "grad_x", mixed),
        (ml.grad(ml.grad(first, "w"), "w"), "grad_w", third),
        (ml.grad(ml.grad(last_of_products(), "x", output="end"), "x"), "grad_x", by_x),
    ]
    backend = ml.get_backend(name, dtype="float32" if name == "mlx" else "float64")
    for model, key, wanted in cases:
        pm = compiled(model, backend, inputs)
        out = pm.evaluate({}, {k: backend.array(v) for k, v in inputs.items()})
        bound = 1e-3 if name == "mlx" else 1e-12
        assert far(backend.to_numpy(out[key]), np.asarray(wanted), bound) is None, key


# --- inference ------------------------------------------------------------------------------------


def test_sizes_go_in_and_out():
    model = rnn()
    model.set_shapes(x=["T", "N", 2], w=[4, None], h=["N", 4])
    shapes = model.shapes
    assert shapes["h_next"] == ["N", 4] and shapes["state"] == ["T", "N", 4]
    assert shapes["u"][1] == 4 and shapes["w"] == [4, 2] and shapes["b"] == [4]


def test_results_say_what_goes_in():
    model = rnn()
    model.set_shapes(state=[7, 3, 4], x=[None, 3, None], w=[None, 2])
    assert model.shapes["x"] == [7, 3, 2] and model.shapes["h"] == [3, 4]


def test_a_state_that_grows_is_refused():
    body = ml.Model()
    body |= ml.Concat(axis=0)(input=[ml.IOKey("h"), ml.IOKey("x")], output="longer")
    body.expose_keys("longer")
    body.set_shapes(h=[2], x=[3])
    with pytest.raises(ShapeError):
        ml.Scan(body, carry={"h": "longer"}, xs=["x"])


def test_sequences_of_different_lengths_are_refused():
    body = ml.Model()
    body |= ml.Add()(left="a", right="b", output="y")
    body.expose_keys("y")
    scan = ml.Scan(body, xs=["a", "b"])
    model = ml.Model()
    model |= scan(a="a", b="b", y="y")
    with pytest.raises(ShapeError):
        model.set_shapes(a=[3, 2], b=[4, 2])


def test_a_length_that_is_not_the_sequences():
    body = ml.Model()
    body |= ml.Exponential()(input="x", output="y")
    body.expose_keys("y")
    model = ml.Model()
    model |= ml.Scan(body, xs=["x"], length=3)(x="x", y="y")
    assert model.shapes["y"][0] == 3
    with pytest.raises(ShapeError):
        model.set_shapes(x=[4, 2])


# --- what is refused ------------------------------------------------------------------------------


def step():
    body = ml.Model()
    body |= ml.Add()(left="h", right="x", output="sum")
    body.expose_keys("sum")
    return body


REFUSED = {
    "no model": (lambda: ml.Scan("step"), SignatureError, "Scan: body: requires a model"),
    "unknown input": (
        lambda: ml.Scan(step(), carry={"g": "sum"}, length=1), KeyNotFound, "has no input 'g'",
    ),
    "unknown output": (
        lambda: ml.Scan(step(), carry={"h": "total"}, length=1), KeyNotFound,
        "has no output 'total'",
    ),
    "unknown sequence": (lambda: ml.Scan(step(), xs=["y"]), KeyNotFound, "has no input 'y'"),
    "unknown kept": (
        lambda: ml.Scan(step(), xs=["x"], ys=["y"]), KeyNotFound, "has no output 'y'",
    ),
    "no length": (
        lambda: ml.Scan(step(), carry={"h": "sum"}), SignatureError, "requires length",
    ),
    "one name twice": (
        lambda: ml.Scan(step(), carry={"h": "sum"}, xs=["x"], ys=["sum"]), OptionError,
        "two keys of the loop are called 'sum'",
    ),
    "state and sequence": (
        lambda: ml.Scan(step(), carry={"x": "sum"}, xs=["x"]), OptionError,
        "two keys of the loop are called 'x'",
    ),
    "carry that is no dict": (
        lambda: ml.Scan(step(), carry=["h"], length=1), SignatureError,
        "carry: requires a dictionary",
    ),
    "xs that are a string": (
        lambda: ml.Scan(step(), xs="x"), SignatureError, "xs: requires a list of keys",
    ),
    "negative axis": (lambda: ml.Scan(step(), xs=["x"], axis=-1), ArgumentError, "axis"),
    "huge axis": (lambda: ml.Scan(step(), xs=["x"], axis=2**20), ArgumentError, "axis"),
    "negative length": (lambda: ml.Scan(step(), length=-1), ArgumentError, "length"),
    "reverse": (lambda: ml.Scan(step(), xs=["x"], reverse="no"), SignatureError, "reverse"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, error, text = REFUSED[case]
    with pytest.raises(error) as raised:
        make()
    assert text in str(raised.value)


def test_random_numbers_in_a_step_are_refused():
    body = ml.Model()
    body |= ml.Dropout(0.5)(input="x", output="y")
    body.expose_keys("y")
    model = ml.Model()
    model |= ml.Scan(body, xs=["x"])(x="x", y="y")
    model.expose_keys("y")
    with pytest.raises(UnsupportedError, match="random numbers and state in a loop"):
        ml.compile(model, ml.NumpyBackend(), mode="train", shapes={"x": [3, 2]})
    ml.compile(model, ml.NumpyBackend(), mode="eval", shapes={"x": [3, 2]})


def test_derivatives_in_a_step_are_refused():
    body = ml.grad(ml.Model.create(y=ml.IOKey("x") ** 2), "x")
    model = ml.Model()
    model |= ml.Scan(body, xs=["x"])(x="x", grad_x="slopes")
    model.expose_keys("slopes")
    with pytest.raises(UnsupportedError, match="derivatives inside of a loop"):
        ml.compile(model, ml.NumpyBackend(), shapes={"x": [3, 2]})


# --- files ----------------------------------------------------------------------------------------


def test_files_hold_loops():
    model = rnn(reverse=True)
    text = model.to_json()
    again = ml.Model.from_json(text)
    assert again.to_json() == text
    inputs = rnn_inputs()
    wanted, _ = run(model, inputs, "numpy")
    found, _ = run(again, inputs, "numpy")
    for key, value in wanted.items():
        assert far(found[key], value, 0.0) is None, key


def test_the_body_stays_free():
    body = step()
    ml.Scan(body, carry={"h": "sum"}, xs=["x"])
    body |= ml.Exponential()(input="sum", output="more")


def test_training():
    """A step of gradient descent on the loop's weights goes down."""
    model = rnn()
    model |= ml.Mean()(input="h_next", output="cost")
    model.expose_keys("cost")
    inputs = rnn_inputs()
    params = {key: inputs.pop(key) for key in ("u", "w", "b")}
    backend = ml.CpuBackend(dtype="float64")
    pm = ml.compile(model, backend, data_keys=set(inputs),
                    shapes={k: v.shape for k, v in {**inputs, **params}.items()})  # fmt: skip
    first, gradients = pm.evaluate(params, inputs, output_gradients={"cost": np.array(1.0)})
    moved = {key: params[key] - 0.1 * np.asarray(gradients[key]) for key in params}
    second = pm.evaluate(moved, inputs)
    assert second["cost"] < first["cost"]


@pytest.mark.parametrize("end", ["scan_exit", "scan_stack"])
def test_files_in_which_a_loop_hands_on_another_value(end):
    """The next value of its carry is what it reads of the sequence."""
    body = ml.Model()
    body |= ml.Add()(left="h", right="t", output="h1")
    body.expose_keys("h1")
    model = ml.Model()
    model |= ml.Scan(body, carry={"h": "h1"}, xs=["t"])(t="xs", h="x", h1="y")
    text = json.dumps(json.loads(model.to_json()))
    assert text.count('"carries1": "$4"') == 1 and text.count('"op": "scan_exit"') == 1
    text = text.replace('"carries1": "$4"', '"carries1": "$3"')
    if end == "scan_stack":
        text = text.replace('"op": "scan_exit"', '"op": "scan_stack"')
        text = text.replace('"input": "$4", "start": "h"', '"input": "$4"')
    shapes = {"xs": [3, 4], "x": [3, 4]}
    with pytest.raises(MithrilError, match="the next value of a carry has another shape"):
        ml.compile(ml.Model.from_json(text), ml.CpuBackend(), shapes=shapes)

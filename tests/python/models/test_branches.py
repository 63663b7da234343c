"""Branches and loops that data choose, against NumPy, torch.func, `lax.cond` and
`lax.while_loop`."""

import _thread
import signal
import threading

import mithril as ml
import numpy as np
import pytest
from mithril.errors import KeyNotFound, OptionError, ShapeError, SignatureError, UnsupportedError
from models.composite_cases import BACKENDS, check, far, numbers, on_native, run

YES, NO = np.array(True), np.array(False)


@on_native
def test_sizes_that_only_data_tell_must_agree(native):
    inputs = {**choice_inputs(NO), "w": np.ones((1, 3))}
    check(choice(), choice_by_hand, inputs, native)
    inputs = {**choice_inputs(NO), "x": np.ones((1, 3))}  # x·w is [2, 3], x² is not
    with pytest.raises(ShapeError, match="'product' must have size 1 in axis 0, got 2"):
        run(choice(), inputs, native)


def part(output, **wires):
    """A model of one product: output = left · right."""
    model = ml.Model()
    model |= ml.Multiply()(**wires, output=output)
    model.expose_keys(output)
    return model


def choice():
    """y = tanh(x·w) where p holds, else x²; z = x·b, else x."""
    taken = ml.Model()
    taken |= ml.Multiply()(left="x", right="w", output="product")
    taken |= ml.Tanh()(input="product", output="y")
    taken |= ml.Multiply()(left="x", right="b", output="z")
    taken.expose_keys("y", "z")
    other = ml.Model()
    other |= ml.Square()(input="x", output="y")
    other |= ml.Buffer()(input="x", output="z")
    other.expose_keys("y", "z")
    model = ml.Model()
    keys = {key: key for key in ("x", "w", "b", "y", "z")}
    model |= ml.Cond(taken, other)(predicate="p", **keys)
    model.expose_keys("y", "z")
    return model


def choice_by_hand(p, x, w, b):
    return {"y": np.tanh(x * w), "z": x * b} if p else {"y": x * x, "z": x}


def choice_inputs(p):
    return {"p": p, **numbers(4, x=(2, 3), w=(2, 3), b=(3,))}


# --- cond ---------------------------------------------------------------------------------------


@on_native
@pytest.mark.parametrize("p", [YES, NO])
def test_one_branch_counts(native, p):
    check(choice(), choice_by_hand, choice_inputs(p), native)


def cast_or_tanh(dtype):
    casting, other = ml.Model(), ml.Model()
    casting |= ml.Cast(dtype=dtype)(input="x", output="y")
    other |= ml.Tanh()(input="x", output="y")
    model = ml.Model()
    model |= ml.Cond(casting, other)(predicate="p", x="x", y="y")
    model.expose_keys("y")
    return model


@on_native
@pytest.mark.parametrize("p", [YES, NO])
def test_results_have_the_dtype_that_both_promote_to(native, p):
    backend = getattr(ml, BACKENDS[native])()
    x = np.array([1.5, -2.0], "f4")
    for dtype, wide in [("float64", np.float64), ("float16", np.float32)]:
        pm = ml.compile(cast_or_tanh(dtype), backend, data_keys={"p", "x"}, inference=True)
        found = backend.to_numpy(pm.evaluate({}, {"p": p, "x": x})["y"])
        assert found.dtype == wide
        np.testing.assert_allclose(found, x if p else np.tanh(x), rtol=1e-6)


def everything(model, name, inputs, cotangents, **options):
    backend = getattr(ml, BACKENDS[name])(dtype="float32" if name == "mlx" else "float64")
    shapes = {key: value.shape for key, value in inputs.items()}
    pm = ml.compile(model, backend, shapes=shapes, data_keys=set(inputs), **options)
    wrt = [key for key, value in inputs.items() if value.dtype.kind == "f"]
    results = []
    for p in (YES, NO, YES):  # one compiled model, whatever the data choose
        found = pm.evaluate({}, {**inputs, "p": p}, output_gradients=cotangents, wrt=wrt)
        results.append([{k: backend.to_numpy(v) for k, v in part.items()} for part in found])
    return results


@pytest.mark.frameworks
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("autodiff", ["engine", "framework"])
@pytest.mark.parametrize("name", ["torch", "jax", "mlx"])
def test_frameworks_choose(name, autodiff, jit):
    torch = pytest.importorskip("torch")
    inputs = choice_inputs(YES)
    cotangents = numbers(5, y=(2, 3), z=(2, 3))
    found = everything(choice(), name, inputs, cotangents, autodiff=autodiff, jit=jit)
    bound = 1e-5 if name == "mlx" else 1e-12
    for p, (outputs, gradients) in zip((YES, NO, YES), found, strict=True):
        given = {k: torch.tensor(v, requires_grad=True) for k, v in inputs.items() if k != "p"}
        x, w, b = given["x"], given["w"], given["b"]
        y, z = (torch.tanh(x * w), x * b) if p else (x * x, x + 0)
        (y * torch.tensor(cotangents["y"]) + z * torch.tensor(cotangents["z"])).sum().backward()
        assert far(outputs["y"], y.detach().numpy(), bound) is None
        assert far(outputs["z"], z.detach().numpy(), bound) is None
        for key, tensor in given.items():
            wanted = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad.numpy()
            assert far(gradients[key], wanted, bound) is None, key


@pytest.mark.frameworks
def test_as_a_function_under_jit_grad_and_vmap():
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    shapes = {"p": [], "x": [3], "w": [3], "b": [3]}
    pm = ml.compile(choice(), ml.JaxBackend(), shapes=shapes, data_keys=set(shapes))
    function = pm.as_function()
    x, w, b = (jnp.array(v, "float32") for v in numbers(6, x=(3,), w=(3,), b=(3,)).values())

    def cost(p, x):
        return function({}, {"p": p, "x": x, "w": w, "b": b})["y"].sum()

    def by_hand(p, x):
        return jax.lax.cond(p, lambda x: jnp.tanh(x * w).sum(), lambda x: (x * x).sum(), x)

    for p in (True, False):
        p = jnp.array(p)
        found, wanted = jax.jit(jax.grad(cost, 1))(p, x), jax.grad(by_hand, 1)(p, x)
        assert far(np.asarray(found), np.asarray(wanted), 1e-6) is None
    both = jnp.array([True, False])
    found = jax.vmap(cost, (0, None))(both, x)
    assert far(np.asarray(found), np.asarray(jax.vmap(by_hand, (0, None))(both, x)), 1e-6) is None


@on_native
def test_what_is_not_taken_is_not_run(native):
    """A Cholesky factor of what is not positive definite is an error, where it is asked for."""
    taken = ml.Model()
    taken |= ml.Cholesky()(input="x", output="y")
    taken.expose_keys("y")
    other = ml.Model()
    other |= ml.Buffer()(input="x", output="y")
    other.expose_keys("y")
    model = ml.Model()
    model |= ml.Cond(taken, other)(predicate="p", x="x", y="y")
    model.expose_keys("y")
    outputs, _ = run(model, {"p": NO, "x": -np.eye(2)}, native)
    assert far(outputs["y"], -np.eye(2), 0.0) is None
    with pytest.raises(ml.errors.MithrilError, match="positive definite"):
        run(model, {"p": YES, "x": -np.eye(2)}, native)


def cubes():
    """y = Σ x³ where p holds, else Σ x²."""
    made = []
    for power in (3, 2):
        model = ml.Model()
        model |= ml.Power()(base="x", exponent=float(power), output="powers")
        model |= ml.Sum()(input="powers", output="y")
        model.expose_keys("y")
        made.append(model)
    model = ml.Model()
    model |= ml.Cond(*made)(predicate="p", x="x", y="y")
    model.expose_keys("y")
    return model


@on_native
@pytest.mark.parametrize("p", [YES, NO])
def test_third_derivatives(native, p):
    x = numbers(7, x=(3,))["x"] + 2.0
    model, wanted = cubes(), [3 * x**2, 6 * x, 6 + 0 * x] if p else [2 * x, 2 + 0 * x, 0 * x]
    for order, slope in enumerate(wanted, 1):
        model = ml.grad(model, "x")
        keys = [key for key in model.output_keys if key.startswith("grad")]
        outputs, _ = run(model, {"p": p, "x": x}, native, fixed=True)
        assert far(outputs[keys[-1]], slope, 1e-12) is None, order
        total = ml.Model()
        total |= model.connect(**{k: k for k in ("p", "x")}, **{keys[-1]: "slopes"})
        total |= ml.Sum()(input="slopes", output=f"y{order}")
        total.expose_keys(f"y{order}")
        model = total


@on_native
def test_branches_in_a_loop_and_a_loop_in_a_branch(native):
    """Collatz: a step halves even numbers and takes the others three times; six of them or none."""
    halved, tripled = ml.Model(), ml.Model()
    halved |= ml.Multiply()(left="n", right=0.5, output="m")
    tripled |= ml.Multiply()(left="n", right=3.0, output="three")
    tripled |= ml.Add()(left="three", right=1.0, output="m")
    for branch in (halved, tripled):
        branch.expose_keys("m")
    step = ml.Model()
    step |= ml.Remainder()(numerator="n", denominator=2.0, output="rest")
    step |= ml.Equal()(left="rest", right=0.0, output="even")
    step |= ml.Cond(halved, tripled)(predicate="even", n="n", m="m")
    step |= ml.Buffer()(input="m", output="kept")
    step.expose_keys("m", "kept")
    step.set_shapes(n=[])
    steps = ml.Model()
    steps |= ml.Scan(step, carry={"n": "m"}, length=6)(n="n", m="last", kept="all")
    steps.expose_keys("last", "all")
    none = ml.Model()
    none |= ml.Buffer()(input="n", output="last")
    none |= ml.Zeros()(shape=(6,), output="all")
    none.expose_keys("last", "all")
    model = ml.Model()
    model |= ml.Cond(steps, none)(predicate="p", n="n", last="last", all="all")
    model.expose_keys("last", "all")
    cotangents = {"last": np.array(1.0)}
    outputs, gradients = run(model, {"p": YES, "n": np.array(6.0)}, native, cotangents, ["n"])
    assert outputs["all"].tolist() == [3.0, 10.0, 5.0, 16.0, 8.0, 4.0]
    assert gradients["n"] == 0.5 * 3 * 0.5 * 3 * 0.5 * 0.5
    outputs, gradients = run(model, {"p": NO, "n": np.array(6.0)}, native, cotangents, ["n"])
    assert outputs["last"] == 6.0 and not outputs["all"].any() and gradients["n"] == 1.0


def test_parameters_of_both_branches_stay_two_unless_they_are_shared():
    def model(**options):
        made = ml.Model()
        cond = ml.Cond(ml.Linear(2, use_bias=False), ml.Linear(2, use_bias=False), **options)
        made |= cond(predicate="p", input="x", output="y")
        made.expose_keys("y")
        made.set_shapes(x=[1, 3])
        return ml.compile(made, ml.NumpyBackend(), data_keys={"p", "x"})

    assert len(model().param_keys) == 2
    assert len(model(shared=["weight"]).param_keys) == 1


def test_sizes_go_from_one_branch_to_the_other():
    taken = part("y", left="x", right="w")
    other = ml.Model()
    other |= ml.Buffer()(input="x", output="y")
    other.expose_keys("y")
    model = ml.Model()
    model |= ml.Cond(taken, other)(predicate="p", x="x", w="w", y="y")
    model.expose_keys("y")
    model.set_shapes(w=[4], y=[3, 4])
    assert model.shapes["x"] == [3, 4] and model.shapes["p"] == []


# --- while --------------------------------------------------------------------------------------


def euclid():
    """(a, b) -> (b, a mod b) as long as b is not zero: a is the greatest common divisor."""
    step = ml.Model()
    step |= ml.Buffer()(input="b", output="next_a")
    step |= ml.Remainder()(numerator="a", denominator="b", output="next_b")
    step.expose_keys("next_a", "next_b")
    goes_on = ml.Model()
    goes_on |= ml.NotEqual()(left="b", right="end", output="go")
    goes_on.expose_keys("go")
    goes_on.set_types(end=ml.Tensor[int])
    step.set_types(a=ml.Tensor[int], b=ml.Tensor[int])
    model = ml.Model()
    model |= ml.While(goes_on, step, carry={"a": "next_a", "b": "next_b"})(
        a="a", b="b", end="end", next_a="gcd", next_b="zero"
    )
    model.expose_keys("gcd", "zero")
    model.set_shapes(a=[], b=[], end=[])
    return model


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", [
    *(pytest.param(name, marks=pytest.mark.device) for name in ("numpy", "cpu")),
    *(pytest.param(name, marks=pytest.mark.frameworks) for name in ("torch", "jax", "mlx")),
])  # fmt: skip
def test_greatest_common_divisors(name, jit):
    backend = getattr(ml, BACKENDS[name])()
    pm = ml.compile(euclid(), backend, jit=jit, inference=True)
    for a, b in [(48, 18), (17, 5), (21, 7), (5, 0), (1071, 462)]:
        data = {"a": np.array(a), "b": np.array(b), "end": np.array(0)}
        found = {k: backend.to_numpy(v) for k, v in pm.evaluate({}, data).items()}
        assert found["gcd"] == np.gcd(a, b) and found["zero"] == 0
        assert found["gcd"].dtype.kind == "i"


def powers(limit="limit"):
    """x ← A x as long as its largest element is below a limit."""
    step, goes_on = ml.Model(), ml.Model()
    step |= ml.MatMul()(left="matrix", right="x", output="next_x")
    step.expose_keys("next_x")
    goes_on |= ml.Max(axis=None)(input="x", output="most")
    goes_on |= ml.Less()(left="most", right=limit, output="go")
    goes_on.expose_keys("go")
    model = ml.Model()
    keys = {"x": "x", "matrix": "matrix", "next_x": "y", limit: limit}
    model |= ml.While(goes_on, step, carry={"x": "next_x"})(**keys)
    model.expose_keys("y")
    return model


@on_native
@pytest.mark.parametrize("start", [0.5, 5.0, 500.0])
def test_a_matrix_until_a_limit(native, start):
    matrix = np.array([[1.0, 2.0], [0.5, 1.0]])
    x = np.array([start, 1.0])
    outputs, _ = run(powers(), {"x": x, "matrix": matrix, "limit": np.array(100.0)}, native)
    while x.max() < 100.0:
        x = matrix @ x
    assert far(outputs["y"], x, 1e-14) is None


def test_gradients_through_a_while_are_refused_and_others_are_not():
    model = ml.Model()
    model |= powers()(x="x", matrix="matrix", limit="limit", y="y")
    model |= ml.Multiply()(left="y", right="factor", output="z")
    model.expose_keys("z")
    inputs = {"x": np.ones(2), "matrix": 2 * np.eye(2), "limit": np.array(9.0),
              "factor": np.ones(2)}  # fmt: skip
    ones = {"z": np.ones(2)}
    outputs, gradients = run(model, inputs, "numpy", ones, ["factor"])
    assert outputs["z"].tolist() == [16.0, 16.0] == gradients["factor"].tolist()
    with pytest.raises(UnsupportedError, match="while_loop has no gradient") as raised:
        run(model, inputs, "numpy", ones, ["matrix"])
    assert "ml.Scan" in str(raised.value)


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["torch", "jax", "mlx"])
def test_frameworks_refuse_the_same_gradients(name):
    backend = getattr(ml, BACKENDS[name])()
    inputs = {"x": np.ones(2, "f4"), "matrix": 2 * np.eye(2, dtype="f4"), "limit": np.float32(9.0)}
    pm = ml.compile(powers(), backend, data_keys=set(inputs), autodiff="framework",
                    shapes={k: np.shape(v) for k, v in inputs.items()})  # fmt: skip
    with pytest.raises(UnsupportedError, match="while_loop has no gradient"):
        pm.evaluate({}, inputs, output_gradients={"y": np.ones(2, "f4")}, wrt=["matrix"])


@pytest.fixture
def interrupts():
    """Processes in the background may ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.device
def test_endless_loops_can_be_interrupted(interrupts):
    model = powers()
    pm = ml.compile(model, ml.CpuBackend(), inference=True, shapes={"x": [2], "matrix": [2, 2]})
    data = {"x": np.ones(2, "f4"), "matrix": np.eye(2, dtype="f4"), "limit": np.float32(9.0)}
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        pm.evaluate({}, data)
    timer.join()


# --- what is refused ----------------------------------------------------------------------------

REFUSED = {
    "no model": (lambda: ml.Cond(ml.Relu, ml.Tanh()), SignatureError, "make one: Relu()"),
    "other outputs": (
        lambda: ml.Cond(ml.Relu(), part("y", left="input", right="w")),
        OptionError,
        "the branches have other outputs: 'output' and 'y'",
    ),
    "an input called predicate": (
        lambda: ml.Cond(*(part("y", left="predicate", right="w") for _ in "ab")),
        OptionError,
        "two keys of the branches are called 'predicate'",
    ),
    "what is not shared": (
        lambda: ml.Cond(ml.Linear(), ml.Relu(), shared=["weight"]),
        KeyNotFound,
        "'weight' is not an input of both branches",
    ),
    "shapes of a result": (
        lambda: ml.Cond(*(shaped([n]) for n in (2, 3))),
        ShapeError,
        "shapes must be equal",
    ),
    "no state": (
        lambda: ml.While(ml.Relu(), ml.Relu(), carry={}),
        OptionError,
        "While: requires a state",
    ),
    "no such state": (
        lambda: ml.While(ml.Relu(), ml.Relu(), carry={"input": "y"}),
        KeyNotFound,
        "While: the body has no output 'y'",
    ),
    "a condition of two outputs": (
        lambda: ml.While(choice(), ml.Relu(), carry={"input": "output"}),
        OptionError,
        "the condition has 2 outputs: 'y', 'z'",
    ),
    "a condition of many": (lambda: many_conditions(), ShapeError, "input"),
}


def shaped(shape):
    model = ml.Model()
    model |= ml.Buffer()(input="x" + str(shape[0]), output="y")
    model.expose_keys("y")
    model.set_shapes(y=shape)
    return model


def many_conditions():
    goes_on = ml.Model()
    goes_on |= ml.Less()(left="input", right="limit", output="go")
    goes_on.expose_keys("go")
    goes_on.set_shapes(input=[3], limit=[3])
    return ml.While(goes_on, ml.Relu(), carry={"input": "output"})


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, error, text = REFUSED[case]
    with pytest.raises(error) as raised:
        make()
    assert text in str(raised.value)


def test_random_numbers_in_a_branch_are_refused():
    model = ml.Model()
    model |= ml.Cond(ml.Dropout(0.5), ml.Relu())(predicate="p", input="x", output="y")
    model.expose_keys("y")
    with pytest.raises(UnsupportedError, match="random numbers and state in a loop or branch"):
        ml.compile(model, ml.NumpyBackend(), mode="train", shapes={"x": [3, 2]})
    ml.compile(model, ml.NumpyBackend(), mode="eval", shapes={"x": [3, 2]})


@on_native
def test_a_value_of_a_branch_can_be_fetched(native):
    """It is computed whatever is taken."""
    backend = getattr(ml, BACKENDS[native])(dtype="float64")
    inputs = choice_inputs(NO)
    pm = ml.compile(choice(), backend, data_keys=set(inputs), inference=True,
                    shapes={k: v.shape for k, v in inputs.items()})  # fmt: skip
    found = pm.evaluate({}, inputs, fetch=["y", "cond.model_0.product"])
    assert far(backend.to_numpy(found["y"]), inputs["x"] ** 2, 1e-14) is None
    product = backend.to_numpy(found["cond.model_0.product"])
    assert far(product, inputs["x"] * inputs["w"], 1e-14) is None


@pytest.mark.parametrize("make", [choice, euclid])
def test_files_hold_them(make):
    text = make().to_json()
    again = ml.Model.from_json(text)
    assert again.to_json() == text
    if make is choice:
        check(again, choice_by_hand, choice_inputs(YES), "numpy")

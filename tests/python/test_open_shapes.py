"""Models whose shapes are open and that are right for the data given: sizes that composing unites,
heads that only a product shows, loops and branches over `x[1:]`.
"""

import itertools

import mithril as ml
import numpy as np
import pytest
from mithril.errors import MithrilError, ShapeError


def plain(backend, values):
    return {name: np.asarray(backend.to_numpy(x)) for name, x in values.items()}


def evaluated(model, backend, **data):
    pm = ml.compile(model, backend, data_keys=set(data), inference=True)
    return plain(backend, pm.evaluate({}, {n: backend.array(x) for n, x in data.items()}))


# --- sizes that are united -----------------------------------------------------------------------


def least_and_join():
    """`v` has the sizes of `s` but for the first: the join says so, its own operands do not."""
    model = ml.Model()
    model |= ml.Minimum()(left="p", right="s", output="v")
    model |= ml.Concat(axis=0)(input=[ml.IOKey("s"), ml.IOKey("v")], output="y")
    model.set_shapes(s=["B", "T", 2])
    model.expose_keys("y")
    return model


@pytest.mark.parametrize("shape", [(1, 2), (2,), (), (3, 5, 2), (5, 2), (1, 5, 1)], ids=str)
def test_broadcast_that_is_united_with_a_size(shape, backend_name):
    backend = ml.get_backend(backend_name)
    random = np.random.default_rng(0)
    s = random.standard_normal((3, 5, 2)).astype(np.float32)
    p = random.standard_normal(shape).astype(np.float32)
    got = evaluated(least_and_join(), backend, s=s, p=p)["y"]
    np.testing.assert_array_equal(got, np.concatenate([s, np.minimum(p, s)]))


@pytest.mark.parametrize("shape", [(4, 2), (7, 5, 3), (3, 4, 2)], ids=str)
def test_data_that_break_it_are_refused(shape, backend_name):
    backend = ml.get_backend(backend_name)
    with pytest.raises(ShapeError):
        evaluated(
            least_and_join(),
            backend,
            s=np.ones((3, 5, 2), np.float32),
            p=np.ones(shape, np.float32),
        )


def test_a_size_of_one_grows_only_where_it_may(backend_name):
    """`T` is 1 and `v` would have 5 of it: the join cannot take that."""
    backend = ml.get_backend(backend_name)
    with pytest.raises(MithrilError, match="'v' must have size 1 in axis 1, got 5|broadcast"):
        evaluated(
            least_and_join(),
            backend,
            s=np.ones((3, 1, 2), np.float32),
            p=np.ones((5, 2), np.float32),
        )


# --- heads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [(4, 2), (1, 1), (6, 1), (3, 3)], ids=str)
def test_grouped_queries_with_open_heads(heads, backend_name):
    backend = ml.get_backend(backend_name)
    queries, keys = heads
    random = np.random.default_rng(1)
    q = random.standard_normal((2, queries, 3, 8)).astype(np.float32)
    k, v = (random.standard_normal((2, keys, 5, 8)).astype(np.float32) for _ in range(2))
    model = ml.Model()
    model |= ml.Attention(enable_gqa=True)(query="q", key="k", value="v", output="y")
    got = evaluated(model, backend, q=q, k=k, v=v)["y"]
    wide = [np.repeat(x.astype(np.float64), queries // keys, axis=1) for x in (k, v)]
    scores = q.astype(np.float64) @ wide[0].swapaxes(-1, -2) / np.sqrt(8)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ wide[1]
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_heads_that_do_not_divide(backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= ml.Attention(enable_gqa=True)(query="q", key="k", value="v", output="y")
    for queries, keys in ((4, 3), (2, 4)):
        q = np.ones((1, queries, 3, 8), np.float32)
        k = np.ones((1, keys, 3, 8), np.float32)
        with pytest.raises(ShapeError):
            evaluated(model, backend, q=q, k=k, v=k)


# --- loops and branches --------------------------------------------------------------------------


def rest_of(model):
    model |= ml.Buffer()(input="s", output="b")
    model |= ml.Buffer()(input=model.b[1:], output="rest")


def looped(outputs):
    step = ml.Model()
    step |= ml.Add()(left="h", right="xt", output="h1")
    step |= ml.Tanh()(input="h", output="y")
    step.expose_keys("h1", "y")
    model = ml.Model()
    rest_of(model)
    model |= ml.Scan(step, carry={"h": "h1"}, xs=["xt"], ys=["y"])(
        h="rest", xt="xs", h1="last", y="kept"
    )
    model.expose_keys(*outputs)
    model.set_shapes(s=["N"], xs=["T", None])
    return model


def branched(outputs):
    model = ml.Model()
    rest_of(model)
    taken, other = ml.Model.create(y=ml.IOKey("x").exp()), ml.Model.create(y=-ml.IOKey("x"))
    model |= ml.Cond(taken, other)(predicate="p", x="rest", y="kept")
    model |= ml.Sum()(input="kept", output="last")
    model.expose_keys(*outputs)
    model.set_shapes(s=["N"])
    return model


every_choice = pytest.mark.parametrize("outputs", [["last"], ["kept"], ["last", "kept"]], ids=str)


@every_choice
def test_loops(outputs, backend_name):
    backend = ml.get_backend(backend_name)
    random = np.random.default_rng(2)
    s, xs = random.standard_normal(5), random.standard_normal((3, 4))
    starts = s[1:] + np.concatenate([np.zeros((1, 4)), np.cumsum(xs, 0)])
    want = {"last": starts[-1], "kept": np.tanh(starts[:-1])}
    slope = np.zeros(5)
    slope[1:] += 1.0 if "last" in outputs else 0.0
    slope[1:] += (1 - want["kept"] ** 2).sum(0) if "kept" in outputs else 0.0
    data = {"s": s.astype(np.float32)}
    data["xs"] = xs.astype(np.float32)
    check(looped(outputs), backend, data, {name: want[name] for name in outputs}, slope)


@every_choice
@pytest.mark.parametrize("taken", [True, False])
def test_branches(taken, outputs, backend_name):
    backend = ml.get_backend(backend_name)
    s = np.random.default_rng(3).standard_normal(5)
    kept = np.exp(s[1:]) if taken else -s[1:]
    times = len(outputs)
    slope = np.concatenate([[0.0], times * (np.exp(s[1:]) if taken else -np.ones(4))])
    want = {"last": kept.sum(), "kept": kept}
    data = {"s": s.astype(np.float32), "p": np.array(taken)}
    check(branched(outputs), backend, data, {name: want[name] for name in outputs}, slope)


def check(model, backend, data, want, slope):
    pm = ml.compile(model, backend, data_keys=set(data))
    arrays = {name: backend.array(x) for name, x in data.items()}
    ones = {name: backend.array(np.ones_like(x, np.float32)) for name, x in want.items()}
    found = pm.evaluate({}, arrays, output_gradients=ones, wrt=["s"])
    for name, value in plain(backend, found.outputs).items():
        np.testing.assert_allclose(value, want[name], atol=1e-5)
    got = plain(backend, found.gradients)["s"]
    np.testing.assert_allclose(got, slope, atol=1e-5)


# --- sizes of which ops are made -----------------------------------------------------------------


def monomials(x, degree):
    return np.stack(
        [
            np.prod(x[:, list(chosen)], axis=1)
            for k in range(1, degree + 1)
            for chosen in itertools.combinations_with_replacement(range(x.shape[1]), k)
        ],
        axis=1,
    )


def test_an_op_that_is_made_of_a_size_waits_for_it(backend_name):
    backend = ml.get_backend(backend_name)
    pm = ml.compile(ml.models.PolynomialFeatures(3), backend, data_keys={"input"}, inference=True)
    for rows, columns in ((2, 2), (4, 2), (3, 3), (2, 1), (2, 2)):
        x = np.random.default_rng(columns).standard_normal((rows, columns)).astype(np.float32)
        found = plain(backend, pm.evaluate({}, {"input": backend.array(x)}))["output"]
        np.testing.assert_allclose(found, monomials(x, 3), rtol=1e-5, atol=1e-6)


def test_parameters_follow_from_the_size(backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.models.PolynomialRegression(degree=2, dimension=3)
    pm = ml.compile(model, backend, data_keys={"input"})
    x = np.random.default_rng(0).standard_normal((4, 2)).astype(np.float32)
    params = pm.init({"input": x})
    assert tuple(params["weight"].shape) == (3, 5)
    found = plain(backend, pm.evaluate(params, {"input": backend.array(x)}))["output"]
    values = plain(backend, params)
    by_hand = monomials(x, 2) @ values["weight"].T + values["bias"]
    np.testing.assert_allclose(found, by_hand, rtol=1e-4, atol=1e-5)


def test_shapes_of_which_one_size_is_awaited():
    shapes = {"input": ["n", None, "h", "w"]}
    pm = ml.compile(ml.GroupNorm(2), ml.NumpyBackend(), data_keys={"input"}, shapes=shapes)
    for shape in ((2, 4, 3, 3), (2, 6, 3, 3), (1, 4, 5, 2)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        parts = x.reshape(shape[0], 2, -1).astype(np.float64)
        wanted = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(
            parts.var(-1, keepdims=True) + 1e-5
        )
        found = pm.evaluate(pm.init({"input": x}), {"input": x})["output"]
        np.testing.assert_allclose(found, wanted.reshape(shape), atol=1e-5)


def test_it_is_told_which_sizes_are_missing():
    pm = ml.compile(ml.models.PolynomialFeatures(2), ml.NumpyBackend(), trainable_keys={"input"})
    with pytest.raises(MithrilError, match="the sizes of 'input' are not known|needs a shape"):
        pm.evaluate()


def outputs_of(layer, backend_name, data, **options):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= layer(input="x", output="y")
    pm = ml.compile(model, backend, **options)
    return [backend.to_numpy(pm.evaluate({}, {"x": x})["y"]) for x in data]


@pytest.mark.parametrize("shapes", [None, {"x": [None, None, 3]}, {"x": ["N", 1, None]}])
def test_sizes_tell_which_axes_are_squeezed(shapes, backend_name):
    shown = [(4, 1, 3), (1, 1, 3), (4, 1, 3)] + ([] if shapes else [(1, 1, 1), (2,), ()])
    data = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in shown]
    got = outputs_of(ml.Squeeze(), backend_name, data, shapes=shapes)
    for y, x in zip(got, data, strict=True):
        np.testing.assert_array_equal(y, np.squeeze(x))


def test_what_is_squeezed_goes_on(backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= ml.Squeeze()(input="x", output="flat")
    model |= ml.Linear(2)(input="flat", weight="w", output="h")
    model |= ml.Squeeze()(input="h", output="y")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [None, None, 3]}, jit=False)
    params = pm.init({"x": np.ones((4, 1, 3), np.float32)})
    w, b = (np.asarray(backend.to_numpy(params[key])) for key in ("w", "bias"))
    for shape in [(4, 1, 3), (1, 5, 3), (1, 1, 3)]:
        x = np.linspace(-1, 1, np.prod(shape), dtype=np.float32).reshape(shape)
        want = np.squeeze(np.squeeze(x) @ w.T + b)
        got = backend.to_numpy(pm.evaluate(params, {"x": x})["y"])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layer", [ml.Max, ml.Min, ml.ArgMax, ml.ArgMin])
@pytest.mark.parametrize("shapes", [None, {"x": [3, None]}])
def test_of_no_integers_none_is_the_largest(layer, shapes, backend_name):
    nothing = np.zeros((3, 0), int)
    with pytest.raises(ShapeError, match="requires an element along the axes, got size 0"):
        outputs_of(layer(axis=1), backend_name, [nothing], shapes=shapes)
    assert outputs_of(layer(axis=0), backend_name, [nothing], shapes=shapes)[0].shape == (0,)


def test_of_no_floats_the_largest_is_infinite(backend_name):
    nothing = np.zeros((3, 0), np.float32)
    for layer, want in ((ml.Max, -np.inf), (ml.Min, np.inf)):
        got = outputs_of(layer(axis=1), backend_name, [nothing])[0]
        np.testing.assert_array_equal(got, [want] * 3)

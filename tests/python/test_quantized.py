"""Weights in few bits on every backend: `compile(quantize=)`, `bind(weights=)`, what they cost."""

# Covers: mithril/physical/weights.py

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, UnsupportedError

from tests.python.rows.common import backend_of
from tests.python.test_low_precision import rounded

pytestmark = pytest.mark.device

FORMATS = ("bfloat16", "int4", "int8", "int16")
BACKENDS = ("numpy", "cpu", "c", "torch", "jax", "mlx")
RNG = np.random.default_rng(4)


def drawn(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def products(turned):
    """h = x @ w (or its transpose), y = h @ v.T + b."""
    model = ml.Model()
    if turned:
        model |= ml.Linear(48, use_bias=False)(input="x", weight="w", output="h")
    else:
        model |= ml.MatrixMultiply()(left="x", right="w", output="h")
    model |= ml.Linear(40)(input="h", weight="v", bias="b", output="y")
    model.expose_keys("y")
    return model


def case(inner, turned):
    w = drawn(inner, 48)
    params = {"w": np.ascontiguousarray(w.T) if turned else w, "v": drawn(40, 48), "b": drawn(40)}
    return w, params, drawn(5, inner)


def compiled(backend, turned, w, x, **options):
    shapes = {"x": list(x.shape), "w": list(w.shape)}
    return ml.compile(products(turned), backend, data_keys={"x"}, trainable_keys={"w"},
                      shapes=shapes, **options)  # fmt: skip


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("name", BACKENDS)
def test_values_are_those_of_the_rounded_weights(name, weights):
    for inner, turned in ((64, True), (77, False), (40, True)):
        backend = backend_of(name)
        w, params, x = case(inner, turned)
        pm = compiled(backend, turned, params["w"], x, quantize=weights)
        own = {key: backend.array(value) for key, value in params.items()}
        hidden = x.astype(np.float64) @ rounded(w, weights)
        want = hidden @ rounded(np.ascontiguousarray(params["v"].T), weights) + params["b"]
        bound = pm.bind(own)
        # Eight rows and more may be rounded to bfloat16, too, on processors that multiply so.
        for one, given in ((pm, own), (bound, {}), (bound, {})):
            got = backend.to_numpy(one.evaluate(given, {"x": backend.array(x)})["y"])
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("name", ["numpy", "torch", "jax", "mlx"])
@pytest.mark.parametrize(("weights", "bits"), [("int8", 8.5), ("int4", 4.5), ("int16", 16.5)])
def test_programs_keep_them_in_few_bits(name, weights, bits):
    backend = backend_of(name)
    w, params, x = case(64, True)
    pm = compiled(backend, True, params["w"], x, quantize=weights)
    bound = pm.bind({key: backend.array(params[key]) for key in ("w", "v")})
    constants = tuple(bound._compilation.program.forward.function.__globals__["C"])
    taken = sum(constant.nbytes for constant in constants)
    # The 16 last rows of v in int4 take a byte each.
    assert taken <= (64 * 48 + 48 * 40) * bits / 8 + (16 * 40 / 2 if weights == "int4" else 0) + 80


@pytest.mark.parametrize(("weights", "bits"), [("int8", 8), ("int4", 4), ("int16", 16)])
def test_plans_of_c_keep_them_in_few_bits(weights, bits):
    w, params, x = case(256, True)
    pm = compiled(ml.CBackend(), True, params["w"], x)
    whole = pm.bind(params).memory_plan()["evaluate"].constants
    few = pm.bind(params, weights=weights).memory_plan()["evaluate"].constants
    assert few < whole * (bits + 4) / 32


def test_xla_does_not_widen_them_in_advance():
    jax = pytest.importorskip("jax")
    backend = backend_of("jax")
    w, params, x = case(64, True)
    bound = compiled(backend, True, params["w"], x, quantize="int8").bind(params)
    text = (
        jax.jit(bound._compilation.program.forward.function)
        .lower(backend.array(x))
        .compile()
        .as_text()
    )
    assert "s8[2,32,48]" in text
    constants = [line for line in text.splitlines() if "constant(" in line]
    assert not [line for line in constants if "f32[64,48]" in line or "f32[2,32,48]" in line]


def test_compilers_take_them():
    torch = pytest.importorskip("torch")
    backend = ml.TorchBackend()
    w, params, x = case(64, True)
    options = {"jit": True, "jit_options": {"backend": "eager"}}
    for more in (options, {}):
        pm = compiled(backend, True, params["w"], x, quantize="int8", **more)
        got = pm.bind(params).evaluate({}, {"x": torch.tensor(x)})["y"]
        exact = (x @ rounded(w, "int8")) @ rounded(np.ascontiguousarray(params["v"].T), "int8")
        np.testing.assert_allclose(got.numpy(), exact + params["b"], rtol=1e-4, atol=1e-3)


def test_models_without_products():
    model = ml.Model()
    model |= ml.Sine()(input="x", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [2]}, quantize="int8")
    assert pm.evaluate({}, {"x": np.zeros(2)})["y"].tolist() == [0.0, 0.0]
    assert str(pm.quantization_report({}, {"x": np.zeros(2)})) == "no weight is quantized"


@pytest.mark.parametrize("name", ["cpu", "numpy", "jax"])
def test_what_is_not_bound_is_rounded_still(name):
    backend = backend_of(name)
    w, params, x = case(64, True)
    pm = compiled(backend, True, params["w"], x, quantize="int8")
    own = {key: backend.array(value) for key, value in params.items()}
    want = backend.to_numpy(pm.evaluate(own, {"x": x})["y"])
    for some in ({"b"}, {"w"}, {"v", "b"}):
        rest = {key: value for key, value in own.items() if key not in some}
        part = pm.bind({key: own[key] for key in some})
        got = backend.to_numpy(part.evaluate(rest, {"x": x})["y"])
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-3)


def rounded_products(w, v, b, x, weights):
    """The results of `products` in float64, for weights as few bits stand for them."""
    return (x.astype(np.float64) @ rounded(w, weights)) @ rounded(
        np.ascontiguousarray(v.T), weights
    ) + b


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("name", (*BACKENDS, "opencl"))
def test_constants_count_as_weights(name, weights):
    backend = backend_of(name)
    for turned in (True, False):
        w, params, x = case(64, turned)
        want = rounded_products(w, params["v"], params["b"], x, weights)
        shapes = {"x": list(x.shape)}
        for constants in ({"w"}, {"v"}, {"w", "v"}, {"w", "v", "b"}):
            given = {key: backend.array(params[key]) for key in constants}
            rest = {key: backend.array(params[key]) for key in params.keys() - constants}
            pm = ml.compile(products(turned), backend, data_keys={"x"}, shapes=shapes,
                            trainable_keys={"w"} - constants, constant_keys=given,
                            quantize=weights)  # fmt: skip
            for one, own in ((pm, rest), (pm.bind(rest), {})):
                got = backend.to_numpy(one.evaluate(own, {"x": backend.array(x)})["y"])
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * np.abs(want).max())


@pytest.mark.parametrize("name", ["numpy", "cpu", "torch", "mlx"])
def test_numbers_of_the_model_count_as_weights(name):
    """A matrix that the model itself brings, and one by a connection whose key has no name."""
    backend = backend_of(name)
    w, v, b, x = drawn(64, 48), drawn(40, 48), drawn(40), drawn(5, 64)
    model, last = ml.Model(), ml.Linear(40, use_bias=False)
    model |= ml.MatrixMultiply()(left="x", right=ml.Tensor(w), output="h")
    model |= last(input="h", output="z")
    model |= ml.Add()(left="z", right="b", output="y")
    model.expose_keys("y")
    pm = ml.compile(model, backend, data_keys={"x"}, trainable_keys={"b"}, quantize="int8",
                    shapes={"x": [5, 64], "b": [40]}, constant_keys={last.weight: v})  # fmt: skip
    want = rounded_products(w, v, b, x, "int8")
    for one, own in ((pm, {"b": b}), (pm.bind({"b": b}), {})):
        got = backend.to_numpy(one.evaluate(own, {"x": x})["y"])
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5 * np.abs(want).max())
    report = pm.quantization_report({"b": b}, {"x": x})
    assert [row.shape for row in report.weights] == [(40, 48)]
    off = np.abs(want - ((x.astype(float) @ w) @ v.T + b)).max()
    assert report.outputs[0].largest == pytest.approx(off, rel=1e-3)


def test_weights_that_change_are_rounded_again():
    w, params, x = case(64, True)
    pm = compiled(ml.CpuBackend(), True, params["w"], x, quantize="int8")
    first = pm.evaluate(params, {"x": x})["y"] - params["b"]
    params["v"] *= 2  # the same array; a power of two changes the scales alone
    second = pm.evaluate(params, {"x": x})["y"] - params["b"]
    np.testing.assert_allclose(second, 2 * first, rtol=1e-4, atol=1e-4)


def test_other_readers_get_what_was_given():
    """Tied embeddings: a table that is looked up, and what results are multiplied by."""
    model = ml.Model()
    model |= ml.Embedding(num_embeddings=64, dim=32)(input="i", weight="w", output="e")
    model |= ml.Linear(64, use_bias=False)(input="e", weight="w", output="y")
    model.expose_keys("e", "y")
    table, places = drawn(64, 32), np.arange(5)
    for backend in (ml.CpuBackend(), ml.NumpyBackend()):
        pm = ml.compile(model, backend, data_keys={"i"}, shapes={"i": [5]}, quantize="int8")
        for out in (pm.evaluate({"w": table}, {"i": places}),
                    pm.bind({"w": table}).evaluate({}, {"i": places})):  # fmt: skip
            np.testing.assert_array_equal(out["e"], table[:5])
            want = table[:5].astype(np.float64) @ rounded(np.ascontiguousarray(table.T), "int8")
            np.testing.assert_allclose(out["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", BACKENDS)
def test_the_report_says_what_it_costs(name):
    backend = backend_of(name)
    w, params, x = case(64, True)
    pm = compiled(backend, True, params["w"], x, quantize="int4")
    report = pm.quantization_report(params, {"x": x})
    small = {"w": rounded(w, "int4").T, "v": rounded(params["v"].T, "int4").T}
    assert [row.name for row in report.weights] == ["w", "v"]
    for row in report.weights:
        off = small[row.name] - params[row.name]
        assert (row.shape, row.kind, row.bits) == (off.shape, "int4", 4.5)
        assert row.largest == pytest.approx(np.abs(off).max(), rel=1e-5)
        rms = np.sqrt(np.mean(off**2) / np.mean(np.square(params[row.name], dtype=float)))
        assert row.relative == pytest.approx(rms, rel=1e-5)
    (row,) = report.outputs
    off = (x @ small["w"].T) @ small["v"].T - (x.astype(float) @ w) @ params["v"].T
    assert row.name == "y" and row.largest == pytest.approx(np.abs(off).max(), rel=1e-3)
    assert "w [48, 64] int4 (4.5 bits): relative error" in str(report)


@pytest.mark.parametrize("name", ["numpy", "cpu", "torch"])
def test_the_report_has_constants_beside_parameters(name):
    backend = backend_of(name)
    w, params, x = case(64, True)
    want = compiled(backend, True, params["w"], x, quantize="int4").quantization_report(
        params, {"x": x}
    )
    shapes = {"x": list(x.shape)}
    for constants in ({"w"}, {"v", "b"}, {"w", "v", "b"}):
        rest = {key: params[key] for key in params.keys() - constants}
        given = {key: params[key] for key in constants}
        for known in (shapes, {}):
            pm = ml.compile(products(True), backend, data_keys={"x"}, shapes=known,
                            constant_keys=given, quantize="int4")  # fmt: skip
            got = pm.quantization_report(rest, {"x": x})
            assert got.weights == want.weights
            assert got.outputs[0].relative == pytest.approx(want.outputs[0].relative, rel=1e-5)
    # What bind packs is not known any more; the rest is.
    part = compiled(backend, True, params["w"], x, quantize="int4").bind({"w": params["w"]})
    rest = {key: params[key] for key in ("v", "b")}
    assert part.quantization_report(rest, {"x": x}).weights == want.weights[1:]


def test_plans_tell_of_themselves():
    w, params, x = case(64, True)
    pm = compiled(ml.CpuBackend(), True, params["w"], x, quantize="int8")
    assert pm.memory_plan()["evaluate"].peak > 0
    assert "matmul" in str(pm.explain())
    assert "int8_weights" in str(pm.bind(params).explain())


def test_ggml_takes_the_option_as_its_own():
    pytest.importorskip("ggml")
    w, params, x = case(64, True)
    one, other = (
        compiled(ml.GGMLBackend(), True, params["w"], x, quantize="int8"),
        compiled(ml.GGMLBackend(quantize="int8"), True, params["w"], x),
    )
    got, want = (pm.evaluate(params, {"x": x})["y"] for pm in (one, other))
    np.testing.assert_array_equal(got, want)
    with pytest.raises(ArgumentError, match="but the backend has quantize='q4_0'"):
        compiled(ml.GGMLBackend(quantize="int4"), True, params["w"], x, quantize="int8")
    with pytest.raises(ArgumentError, match="no type named 'int16'"):
        compiled(ml.GGMLBackend(), True, params["w"], x, quantize="int16")


def test_what_is_refused():
    w, params, x = case(64, True)

    def refused(backend, **options):
        return compiled(backend, True, params["w"], x, **options)

    with pytest.raises(ArgumentError, match="quantize requires one of .*, got 'int9'"):
        refused(ml.NumpyBackend(), quantize="int9")
    with pytest.raises(ArgumentError, match="no gradients that optimizer= could take"):
        refused(ml.NumpyBackend(), quantize="int8", optimizer=ml.optim.SGD(0.1))
    with pytest.raises(UnsupportedError, match="weights as int8 require float32, got float64"):
        refused(ml.NumpyBackend(dtype="float64"), quantize="int8")
    pm = refused(ml.NumpyBackend(), quantize="int8")
    with pytest.raises(UnsupportedError, match="no gradients, the weights are kept as int8"):
        pm.evaluate(params, {"x": x}, output_gradients={"y": np.ones((5, 40), np.float32)})
    plain = refused(ml.NumpyBackend())
    with pytest.raises(UnsupportedError, match="keeps weights as they are"):
        plain.quantization_report(params, {"x": x})
    for bound in (pm.bind(params), plain.bind(params, weights="int8")):
        with pytest.raises(UnsupportedError, match="the weights are bound as int8, and what they"):
            bound.quantization_report({}, {"x": x})


@pytest.mark.parametrize("name", ["numpy", "cpu", "ggml"])
def test_reports_of_models_with_state(name):
    model = ml.Model()
    model |= ml.Linear(32, use_bias=False)(input="x", weight="w", output="h")
    model |= ml.BatchNorm1D()(input="h", output="y")
    model.expose_keys("y")
    options = {"quantize": "int8"} if name != "ggml" else {}
    backend = backend_of(name, **({"quantize": "int8"} if name == "ggml" else {}))
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [4, 64]}, mode="train",
                    inference=True, **options)  # fmt: skip
    state = pm.initial_state()
    assert state
    report = pm.quantization_report(pm.get_parameters(), {"x": drawn(4, 64)}, state=state)
    assert [row.name for row in report.weights] == ["w"]


@pytest.mark.parametrize("name", ["numpy", "ggml"])
def test_reports_of_models_whose_ranks_a_call_gives(name):
    backend = backend_of(name, **({"quantize": "int8"} if name == "ggml" else {}))
    options = {"quantize": "int8"} if name != "ggml" else {}
    model = ml.Linear(32, use_bias=False)
    pm = ml.compile(model, backend, data_keys={"input"}, inference=True, **options)
    params, data = {"weight": drawn(32, 64)}, {"input": drawn(4, 64)}
    assert [row.name for row in pm.quantization_report(params, data).weights] == ["weight"]
    if name == "ggml":
        assert sum(backend.coverage(pm)["native"].values()) > 0

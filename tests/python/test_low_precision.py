"""`bind(weights=)`: products with weights in bfloat16 and in blocks of int8 and int4."""

import os
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.errors import ArgumentError, SignatureError, UnsupportedError

pytestmark = pytest.mark.device

FORMATS = ("bfloat16", "int8", "int4", "int16")
# How far a weight may lie from the given one, as a part of the largest of its 32 neighbours.
BOUNDS = {"bfloat16": 2.0**-8, "int8": 1.01 / 254, "int4": 1.01 / 8, "int16": 1.01 / 65534}


def bfloat16(x):
    """To nearest even, as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)


def bfloat16_above(x):
    """The least bfloat16 that is not below a magnitude."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0xFFFF) & 0xFFFF0000).view(np.float32)


def rounded(w, weights):
    """What stands for a right operand w[k, n], by the rules of docs/low_precision.md."""
    if weights == "bfloat16":
        return bfloat16(w).astype(np.float64)
    out = np.empty(w.shape)
    for start in range(0, len(w), 32):
        block = w[start : start + 32].astype(np.float32)
        extreme = np.take_along_axis(block, np.abs(block).argmax(0)[None], 0)[0]
        if weights in ("int8", "int16"):
            most = 127 if weights == "int8" else 32767
            scale, least = bfloat16_above(np.abs(extreme) / np.float32(most)), -most
        else:
            scale = -np.sign(extreme) * bfloat16_above(np.abs(extreme) / np.float32(8))
            least, most = -8, 7
        ratio = block / np.where(scale == 0, np.float32(1), scale)
        out[start : start + 32] = np.clip(np.rint(ratio), least, most) * scale.astype(np.float64)
    return out


def bound_product(w, weights, turned, shape, threads=None):
    """x @ w with w bound, given as it is or turned, as layers have it."""
    model = ml.Model()
    if turned:
        model |= ml.Linear(w.shape[1], use_bias=False)(input="x", weight="w", output="y")
    else:
        model |= ml.MatrixMultiply()(left="x", right="w", output="y")
    given = np.ascontiguousarray(w.T) if turned else w
    backend = ml.CpuBackend(threads=threads)
    shapes = {"x": list(shape), "w": list(given.shape)}
    pm = ml.compile(model, backend, data_keys={"x"}, trainable_keys={"w"}, shapes=shapes)
    return pm.bind({"w": given}, weights=weights)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("shape", [(1,), (7,), (2, 3), (5, 3)])
def test_products_are_near_those_with_rounded_weights(weights, turned, shape):
    rng = np.random.default_rng(3)
    for inner, columns in [(64, 64), (77, 50), (300, 130)]:
        x = rng.normal(size=(*shape, inner)).astype(np.float32)
        w = rng.normal(size=(inner, columns)).astype(np.float32)
        bound = bound_product(w, weights, turned, x.shape)
        y = bound.evaluate({}, {"x": x})["y"]
        # Products of many rows with bfloat16 may round these rows, too.
        many = weights == "bfloat16" and np.prod(shape) >= 8
        exact = (bfloat16(x) if many else x).astype(np.float64) @ rounded(w, weights)
        magnitudes = np.abs(x.astype(np.float64)) @ np.abs(rounded(w, weights))
        bound = 2.0**-8 if many else (inner / 32 + 268) * 2.0**-24
        assert (np.abs(y - exact) <= bound * magnitudes).all()
        given = x.astype(np.float64) @ w
        lies_off = np.abs(x.astype(np.float64)).sum(-1, keepdims=True) * np.abs(w).max()
        assert (np.abs(y - given) <= (BOUNDS[weights] + 2.0**-8) * lies_off).all()


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("rows", [1, 40])
def test_what_follows_a_product_gets_its_rounded_result(weights, rows):
    rng = np.random.default_rng(6)
    x = rng.normal(size=(rows, 200)).astype(np.float32)
    w = rng.normal(size=(200, 130)).astype(np.float32)
    b = rng.normal(size=130).astype(np.float32)
    product = bound_product(w, weights, False, x.shape).evaluate({}, {"x": x})["y"]
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="x", right="w", output="h")
    model |= ml.Add()(left="h", right="b", output="s")
    model |= ml.Relu()(input="s", output="y")
    model.expose_keys("y")
    pm = ml.compile(
        model,
        ml.CpuBackend(),
        data_keys={"x"},
        trainable_keys={"w", "b"},
        shapes={"x": x.shape, "w": w.shape, "b": b.shape},
    )
    y = pm.bind({"w": w, "b": b}, weights=weights).evaluate({}, {"x": x})["y"]
    np.testing.assert_array_equal(y, np.maximum(product + b, 0))


@pytest.mark.parametrize("weights", FORMATS)
@pytest.mark.parametrize("rows", [1, 40])
def test_threads_do_not_change_a_bit(weights, rows):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(rows, 200)).astype(np.float32)
    w = rng.normal(size=(200, 3000)).astype(np.float32)
    results = [
        bound_product(w, weights, True, x.shape, threads).evaluate({}, {"x": x})["y"]
        for threads in (1, 2, 3)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_every_instruction_set_gives_the_same_bits(isa):
    script = """
import mithril as ml, numpy as np, sys
rng = np.random.default_rng(5)
out = []
for weights in ("bfloat16", "int8", "int4", "int16"):
    for rows in (1, 9):
        model = ml.Model()
        model |= ml.Linear(40)(input="x", output="y")
        pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [rows, 70]})
        params = {k: rng.normal(size=s).astype("f4") for k, s in pm.shapes.items()
                  if k in pm.param_keys}
        bound = pm.bind(params, weights=weights)
        out.append(bound.evaluate({}, {"x": rng.normal(size=(rows, 70)).astype("f4")})["y"])
sys.stdout.buffer.write(b"".join(y.tobytes() for y in out))
"""

    def run(name):
        environment = {**os.environ, "MITHRIL_CPU_ISA": name}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return np.frombuffer(done.stdout, np.float32)

    np.testing.assert_array_equal(run(isa), run("generic"))


# --- models -----------------------------------------------------------------------------------


def language_model(vocabulary=90, width=64, places=16):
    """One block of a transformer over tied embeddings."""
    model = ml.Model()
    model |= ml.Embedding(vocabulary, width)(input="tokens", weight="wte", output="vectors")
    model |= ml.Linear(3 * width, name="c_attn")(input="vectors", output="qkv")
    model |= ml.Split(3, axis=-1)(input="qkv", output="parts")
    model |= ml.ScaledDotProduct(is_causal=True)(
        query=model.parts[0], key=model.parts[1], value=model.parts[2], output="mixed"
    )
    model |= ml.Linear(4 * width, name="c_fc")(input="mixed", output="wide")
    model |= ml.Gelu()(input="wide", output="act")
    model |= ml.Linear(width, name="c_proj")(input="act", output="narrow")
    model |= ml.Linear(vocabulary, use_bias=False)(input="narrow", weight="wte", output="logits")
    model.expose_keys("vectors", "logits")
    shapes = {"tokens": [1, places]}
    return ml.compile(model, ml.CpuBackend(), data_keys={"tokens"}, shapes=shapes)


@pytest.mark.parametrize(("weights", "bound"), [("bfloat16", 0.02), ("int8", 0.03), ("int4", 0.4)])
def test_a_language_model_stays_near_itself(weights, bound):
    pm = language_model()
    params = pm.randomize_params(seed=2)
    tokens = np.random.default_rng(6).integers(0, 90, (1, 16))
    want = pm.evaluate(params, {"tokens": tokens})
    small = pm.bind(params, weights=weights)
    got = small.evaluate({}, {"tokens": tokens})
    # Rows of the embedding are no products: they are the given ones.
    np.testing.assert_array_equal(got["vectors"], want["vectors"])
    off = np.abs(got["logits"] - want["logits"]).max() / np.abs(want["logits"]).max()
    assert 0 < off < bound
    kernels = [step.kernel for step in small.explain().steps]
    assert kernels.count(f"matmul.{weights}_weights") == 4
    assert "gemm" not in kernels


def test_models_of_open_rank_are_packed_when_data_come():
    model = ml.Model()
    model |= ml.Linear(64)(input="x", output="y")
    shapes = {"x": [2, 64]}
    params = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes=shapes).get_parameters()
    x = np.random.default_rng(7).normal(size=(2, 64)).astype(np.float32)
    results = []
    for options in ({}, {"shapes": shapes}):
        pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, **options)
        bound = pm.bind(params, weights="int8")
        assert bound.explain(shapes=shapes).steps[0].kernel == "matmul.int8_weights"
        results.append(bound.evaluate({}, {"x": x})["y"])
    np.testing.assert_array_equal(*results)


def test_each_size_of_data_runs_on_the_same_weights():
    rng = np.random.default_rng(8)
    w = rng.normal(size=(96, 64)).astype(np.float32)
    bound = bound_product(w, "int8", True, (None, 96))
    x = rng.normal(size=(12, 96)).astype(np.float32)
    every = bound.evaluate({}, {"x": x})["y"]
    some = bound.evaluate({}, {"x": x[:3]})["y"]
    np.testing.assert_allclose(every[:3], some, rtol=1e-4, atol=1e-5)
    again = bound.bind({}, weights="int8").evaluate({}, {"x": x})["y"]
    np.testing.assert_array_equal(again, every)


def test_weights_take_the_memory_of_their_format():
    pm = language_model()
    params = pm.get_parameters()

    def constants(bound):
        return bound.memory_plan()["evaluate"].constants

    plain = constants(pm.bind(params))
    sizes = {weights: constants(pm.bind(params, weights=weights)) for weights in FORMATS}
    products = sum(v.nbytes for v in params.values() if v.ndim == 2 and v.shape != (90, 64))
    tied = params["wte"].nbytes
    # The tied matrix is needed in float32 as well; 90 columns are filled up to 96.
    padded = tied * 96 // 90
    for weights, part in [("bfloat16", 1 / 2), ("int8", 17 / 64), ("int4", 9 / 64)]:
        saved = products * (1 - part) - padded * part
        assert plain - sizes[weights] == pytest.approx(saved, rel=1e-3)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
def test_float32_weights_are_not_kept_beside_smaller_ones():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    w = np.random.default_rng(9).normal(size=(4096, 4096)).astype(np.float32)
    before = resident()
    bound = bound_product(w, "int4", False, (1, 4096))
    bound.evaluate({}, {"x": np.ones((1, 4096), np.float32)})
    assert resident() - before < w.nbytes / 2


def test_small_matrices_stay_float32():
    rng = np.random.default_rng(10)
    x = rng.normal(size=(4, 30)).astype(np.float32)
    w = rng.normal(size=(30, 2)).astype(np.float32)
    bound = bound_product(w, "int8", False, x.shape)
    assert bound.explain().steps[0].kernel == "gemm"
    plain = bound_product(w, None, False, x.shape)
    y = bound.evaluate({}, {"x": x})["y"]
    np.testing.assert_array_equal(y, plain.evaluate({}, {"x": x})["y"])


def test_no_rows_and_no_columns_of_x():
    w = np.ones((64, 64), np.float32)
    bound = bound_product(w, "int4", True, (None, 64))
    assert bound.evaluate({}, {"x": np.ones((0, 64), np.float32)})["y"].shape == (0, 64)


def test_the_model_and_its_files_know_nothing_of_it(tmp_path):
    pm = language_model()
    params = pm.get_parameters()
    text = _core.model_to_json(pm._compilation.node, False, "")
    small = pm.bind(params, weights="int4")
    assert _core.model_to_json(small._compilation.node, False, "") == text
    again = pm.bind(params)
    tokens = np.zeros((1, 16), np.int64)
    np.testing.assert_array_equal(
        again.evaluate({}, {"tokens": tokens})["logits"],
        pm.evaluate(params, {"tokens": tokens})["logits"],
    )


# --- what is refused --------------------------------------------------------------------------


def test_what_is_refused():
    model = ml.Model()
    model |= ml.Linear(64)(input="x", output="y")
    shapes = {"x": [2, 64]}

    def bind(backend, weights):
        pm = ml.compile(model, backend, data_keys={"x"}, shapes=shapes)
        return pm.bind(pm.get_parameters(), weights=weights)

    with pytest.raises(ArgumentError, match="bind: weights requires one of .*, got 'int9'"):
        bind(ml.CpuBackend(), "int9")
    with pytest.raises(SignatureError, match="bind: weights: requires a string"):
        bind(ml.CpuBackend(), 8)
    with pytest.raises(UnsupportedError, match="weights as int4 require float32, got float64"):
        bind(ml.CpuBackend(dtype="float64"), "int4")
    bound = bind(ml.CpuBackend(), "int8")
    x = {"x": np.ones((2, 64), np.float32)}
    with pytest.raises(UnsupportedError, match="no gradients, the weights are kept as int8"):
        bound.evaluate({}, x, output_gradients={"y": np.ones((2, 64), np.float32)}, wrt=["x"])

"""Attention on the CPU, which streams blocks of keys past queries: values against the formula in
float64, when the kernel is taken, and what of the rest of the engine it must not change."""

import os
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest

pytestmark = pytest.mark.device


def softmax(x):
    with np.errstate(invalid="ignore"):
        x = np.exp(x - x.max(-1, keepdims=True))
        return x / x.sum(-1, keepdims=True)


def by_hand(query, key, value, attn_mask=None, bias=None, is_causal=False, offset=0, scale=None):
    """Of float64 arrays; key heads are repeated for the query heads that share them."""
    if query.ndim > 2 and key.shape[-3] != query.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = (np.repeat(x, times, axis=-3) for x in (key, value))
    scores = query @ key.swapaxes(-1, -2)
    scores = scores * (1 / np.sqrt(query.shape[-1]) if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if is_causal:
        seen = np.arange(query.shape[-2])[:, None] + offset >= np.arange(key.shape[-2])
        scores = np.where(seen, scores, -np.inf)
    if attn_mask is not None:
        if attn_mask.dtype == bool:
            scores = np.where(attn_mask, scores, -np.inf)
        else:
            scores = scores + attn_mask
    return softmax(scores) @ value


def evaluate(model, arrays, dtype="float32", **options):
    backend = ml.CpuBackend(dtype=dtype, **options)
    shapes = {name: list(x.shape) for name, x in arrays.items()}
    pm = ml.compile(model, backend, shapes=shapes, data_keys=set(arrays), inference=True)
    given = {name: x.astype(dtype) if x.dtype.kind == "f" else x for name, x in arrays.items()}
    return pm.evaluate({}, given)["output"]


def drawn(seed, queries, keys, heads=(2, 3), key_heads=None, depth=16, width=8):
    rng = np.random.default_rng(seed)
    shared = heads if key_heads is None else (*heads[:-1], key_heads)
    return {
        "query": rng.standard_normal((*heads, queries, depth)),
        "key": rng.standard_normal((*shared, keys, depth)),
        "value": rng.standard_normal((*shared, keys, width)),
    }


def mask_of(seed, *shape):
    out = np.random.default_rng(seed).random(shape) < 0.8
    out[..., 0] = True
    return out


def numbers_of(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


CASES = {
    "plain": (drawn(0, 70, 150), {}),
    "causal": (drawn(1, 150, 150), {"is_causal": True}),
    "fewer queries than keys, causal": (drawn(2, 30, 200), {"is_causal": True}),
    "more queries than keys, causal": (drawn(3, 200, 30), {"is_causal": True, "scale": -0.4}),
    "from a place on": (drawn(4, 20, 300), {"is_causal": True, "offset": 250}),
    "one query": (drawn(5, 1, 600), {}),
    "one query, from a place on": (drawn(6, 1, 600), {"is_causal": True, "offset": 99}),
    "few queries": (drawn(7, 5, 600), {"is_causal": True, "offset": 595}),
    "shared heads": (drawn(8, 70, 90, (2, 6), 2), {"enable_gqa": True, "is_causal": True}),
    "one query, shared heads": (drawn(9, 1, 300, (1, 8), 2), {"enable_gqa": True}),
    "one head of keys": (drawn(10, 9, 140, (1, 8), 1), {"enable_gqa": True}),
    "no heads": (drawn(11, 33, 77, ()), {}),
    "many axes": (drawn(12, 33, 77, (2, 1, 2)), {}),
    "bools": ({**drawn(13, 70, 150), "attn_mask": mask_of(0, 70, 150)}, {}),
    "bools by key": ({**drawn(14, 70, 150), "attn_mask": mask_of(0, 2, 1, 1, 150)}, {}),
    "bools of few queries": ({**drawn(15, 3, 150), "attn_mask": mask_of(0, 2, 1, 3, 150)}, {}),
    "numbers": ({**drawn(16, 70, 150), "attn_mask": numbers_of(0, 3, 70, 150)}, {}),
    "bias": ({**drawn(17, 70, 150), "bias": numbers_of(0, 3, 70, 150)}, {"is_causal": True}),
    "bias by head": ({**drawn(18, 4, 150), "bias": numbers_of(0, 3, 1, 1)}, {}),
    "all": (
        {
            **drawn(19, 40, 150, (2, 4), 2),
            "bias": numbers_of(0, 4, 1, 150),
            "attn_mask": mask_of(1, 40, 150),
        },
        {"enable_gqa": True, "is_causal": True, "offset": 60, "scale": 0.3},
    ),
}


def model_of(arrays, options):
    flags = {"use_attn_mask": "attn_mask" in arrays, "use_bias": "bias" in arrays}
    model = ml.Attention(**flags, **options)
    if "attn_mask" in arrays and arrays["attn_mask"].dtype == bool:
        model.set_types(attn_mask=ml.Tensor[bool])
    return model


def wanted_of(arrays, options):
    return by_hand(**arrays, **{key: x for key, x in options.items() if key != "enable_gqa"})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_values(case, dtype):
    arrays, options = CASES[case]
    bound = {"rtol": 0, "atol": 2e-5 if dtype == "float32" else 1e-13}
    wanted = wanted_of(arrays, options)
    np.testing.assert_allclose(evaluate(model_of(arrays, options), arrays, dtype), wanted, **bound)
    if "offset" not in options:
        return
    model = model_of(arrays, {**options, "offset": ml.TBD})  # a tensor of each call
    arrays = {**arrays, "offset": np.array(options["offset"])}
    np.testing.assert_allclose(evaluate(model, arrays, dtype), wanted, **bound)


@pytest.mark.parametrize("case", CASES)
def test_bits_do_not_depend_on_threads(case):
    arrays, options = CASES[case]
    model = model_of(arrays, options)
    found = [evaluate(model, arrays, threads=threads).tobytes() for threads in (1, 2, 3, 4)]
    assert found == found[:1] * 4


# --- what is not finite ------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [1, 4, 80])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_reach_what_the_formula_says(bad, queries):
    for name, place in (("query", 0), ("key", 131), ("value", 131)):
        arrays = drawn(0, queries, 200, (2,), depth=4)
        arrays[name][1, place, 2] = bad
        with np.errstate(invalid="ignore", over="ignore"):
            wanted = wanted_of(arrays, {})
        found = evaluate(ml.Attention(), arrays)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("queries", [1, 4, 80])
def test_keys_that_nobody_sees_may_be_anything(queries):
    arrays = drawn(0, queries, 200, (2,))
    arrays["key"][:, 150:] = np.nan
    options = {"is_causal": True, "offset": 149 - queries + 1}
    wanted = wanted_of(arrays, options)
    assert np.isfinite(wanted).all()
    found = evaluate(model_of(arrays, options), arrays)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("queries", [1, 4, 80])
@pytest.mark.parametrize("kind", ["bools", "numbers"])
def test_a_row_without_any_place_is_nan(kind, queries):
    arrays = drawn(0, queries, 200, (2,))
    mask = np.ones((2, queries, 200), bool)
    mask[1, -1] = False
    mask[0, :, :150] = False  # the first block alone has no place
    arrays["attn_mask"] = mask if kind == "bools" else np.where(mask, 0.0, -np.inf)
    found = evaluate(model_of(arrays, {}), arrays)
    assert np.isnan(found[1, -1]).all() and np.isfinite(found[0]).all()
    np.testing.assert_allclose(found, wanted_of(arrays, {}), rtol=0, atol=2e-5)


def test_scores_far_apart():
    """Weights far below one another: those below the least normal number count as 0."""
    arrays = drawn(0, 70, 300, (2,))
    arrays["query"] *= 60
    np.testing.assert_allclose(
        evaluate(ml.Attention(), arrays), wanted_of(arrays, {}), rtol=0, atol=5e-4
    )
    arrays["key"] += 1000 * np.arange(300)[:, None]  # the largest score moves in every block
    assert np.isfinite(evaluate(ml.Attention(), arrays)).all()


# --- which kernels run ---------------------------------------------------------------------------


def kernels(program, **environment):
    """Label of each kernel that a program ran, and how often."""
    script = "import numpy as np, mithril as ml\n" + program
    environment = {**os.environ, "MITHRIL_PROFILE": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    rows = (line.split() for line in done.stderr.splitlines()[1:-1])
    return {row[0]: int(row[1]) for row in rows}


ATTEND = """
def run(shape, value_shape=None, gradients=False, model=None):
    keys = ["query", "key", "value"]
    shapes = dict(zip(keys, (shape, value_shape or shape, value_shape or shape)))
    pm = ml.compile(model or ml.ScaledDotProduct(is_causal=False), ml.CpuBackend(), shapes=shapes,
                    trainable_keys=set(keys) if gradients else set(),
                    data_keys=set() if gradients else set(keys), inference=not gradients)
    data = {key: np.ones(s, np.float32) for key, s in shapes.items()}
    params, data = (data, {}) if gradients else ({}, data)
    cotangent = {"output": np.ones(shape, np.float32)} if gradients else None
    pm.evaluate(params, data, output_gradients=cotangent)
"""


def test_it_is_taken_where_it_is_worth_it():
    assert kernels(ATTEND + "run([4, 32, 8])") == {"attention": 1}
    assert kernels(ATTEND + "run([4, 1, 8], [4, 100, 8])") == {"attention": 1}
    assert "attention" not in kernels(ATTEND + "run([4, 9, 8])")
    assert "attention" not in kernels(ATTEND + "run([4, 32, 8])", MITHRIL_CPU_ISA="generic")


def test_gradients_keep_no_weights():
    """The forward pass and its gradients are one kernel each, and attention is not done twice."""
    found = kernels(ATTEND + "run([2, 40, 8], gradients=True)")
    assert found["attention"] == found["attention_grad"] == 1
    assert "gemm" not in found


def test_gradients_of_few_queries_share_the_weights_of_the_decomposition():
    """Two products for the value, four for the three gradients, and one softmax."""
    found = kernels(ATTEND + "run([2, 8, 8], [2, 40, 8], gradients=True)")
    assert not {"attention", "attention_grad"} & set(found)
    assert sum(count for label, count in found.items() if label.startswith("gemm")) == 6
    assert sum(count for label, count in found.items() if "exp" in label or "softmax" in label) == 1


def test_turned_heads_are_read_where_they_lie():
    program = """
model = ml.Model()
for key in ("query", "key", "value"):
    model |= ml.SplitHeads(num_heads=2)(input=key, output=key + "_heads")
heads = {key: key + "_heads" for key in ("query", "key", "value")}
model |= ml.ScaledDotProduct()(**heads, output="output")
run([3, 40, 16], model=model)
"""
    assert kernels(ATTEND + program) == {"attention": 1}


LAYER = """
pm = ml.compile(ml.MultiHeadAttention(2, 16, is_causal=True, {options}), ml.CpuBackend(),
                data_keys={{"query"}}, shapes={{"query": [1, 20, 16]}}, mode="eval")
pm.evaluate(pm.randomize_params(), {{"query": np.ones((1, 20, 16), np.float32)}},
            state=pm.initial_state() or None)
"""


@pytest.mark.parametrize("options", ["", "dropout=0.5", "cache_size=30", "alibi=True"])
def test_layers_that_are_not_trained_take_it(options):
    assert kernels(LAYER.format(options=options))["attention"] == 1


def test_values_of_a_call_with_gradients_are_those_without():
    arrays = {key: x.astype(np.float32) for key, x in drawn(0, 70, 150).items()}
    pm = ml.compile(
        ml.Attention(), ml.CpuBackend(), shapes={key: list(x.shape) for key, x in arrays.items()},
        trainable_keys=set(arrays),
    )  # fmt: skip
    alone = pm.evaluate(arrays)["output"]
    cotangents = {"output": np.ones_like(alone)}
    found = pm.evaluate(arrays, output_gradients=cotangents)
    np.testing.assert_allclose(found.outputs["output"], alone, rtol=0, atol=2e-6)


# --- gradients -----------------------------------------------------------------------------------


def slopes_by_hand(arrays, options, cotangent):
    """Of float64 arrays: those of all that has some, by the formula with weights."""
    query, key, value = (arrays[name] for name in ("query", "key", "value"))
    group = query.shape[-3] // key.shape[-3] if options.get("enable_gqa") else 1
    all_keys, all_values = (np.repeat(x, group, axis=-3) if group > 1 else x for x in (key, value))
    eye = np.broadcast_to(np.eye(key.shape[-2]), (*all_keys.shape[:-2], *[key.shape[-2]] * 2))
    table = wanted_of({**arrays, "key": all_keys, "value": eye}, options)
    slopes = cotangent @ all_values.swapaxes(-1, -2)
    slopes = table * (slopes - (table * slopes).sum(-1, keepdims=True))
    scale = options.get("scale", 1 / np.sqrt(query.shape[-1]))

    def shared(x):
        return x.reshape(*x.shape[:-3], -1, group, *x.shape[-2:]).sum(-3) if group > 1 else x

    out = {
        "query": scale * slopes @ all_keys,
        "key": shared(scale * slopes.swapaxes(-1, -2) @ query),
        "value": shared(table.swapaxes(-1, -2) @ cotangent),
    }
    for name in ("attn_mask", "bias"):
        if name in arrays and arrays[name].dtype.kind == "f":
            out[name] = summed_to(slopes, arrays[name].shape)
    return out


def summed_to(x, shape):
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return x.sum(tuple(i for i, size in enumerate(shape) if size == 1), keepdims=True)


def gradients(arrays, options, dtype, cotangent, **backend):
    floats = {name for name, x in arrays.items() if x.dtype.kind == "f"}
    pm = ml.compile(
        model_of(arrays, options),
        ml.CpuBackend(dtype=dtype, **backend),
        shapes={name: list(x.shape) for name, x in arrays.items()},
        trainable_keys=floats,
        data_keys=set(arrays) - floats,
    )
    params = {name: arrays[name].astype(dtype) for name in floats}
    data = {name: arrays[name] for name in set(arrays) - floats}
    weights = {"output": cotangent.astype(dtype)}
    return pm.evaluate(params, data, output_gradients=weights).gradients


def cotangent_of(arrays):
    shape = (*arrays["query"].shape[:-1], arrays["value"].shape[-1])
    return np.random.default_rng(99).standard_normal(shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES)
def test_gradients(case, dtype):
    arrays, options = CASES[case]
    cotangent = cotangent_of(arrays)
    wanted = slopes_by_hand(arrays, options, cotangent)
    found = gradients(arrays, options, dtype, cotangent)
    assert set(found) == set(wanted)
    for name, slope in wanted.items():
        most = max(1.0, np.abs(slope).max())
        bound = most * (3e-5 if dtype == "float32" else 1e-12)
        np.testing.assert_allclose(found[name], slope, rtol=0, atol=bound, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_bits_of_gradients_do_not_depend_on_threads(case):
    arrays, options = CASES[case]
    found = []
    for threads in (1, 2, 3, 4):
        slopes = gradients(arrays, options, "float32", cotangent_of(arrays), threads=threads)
        found.append({name: x.tobytes() for name, x in slopes.items()})
    assert found == found[:1] * 4


def test_gradients_are_slopes():
    arrays, options = CASES["shared heads"]
    cotangent, step = cotangent_of(arrays), 1e-5
    found = gradients(arrays, options, "float64", cotangent)
    rng = np.random.default_rng(5)
    for name in arrays:
        direction = rng.standard_normal(arrays[name].shape)
        ends = [
            (evaluate(model_of(arrays, options), moved, "float64") * cotangent).sum()
            for moved in (
                {**arrays, name: arrays[name] + sign * step * direction} for sign in (1, -1)
            )
        ]
        slope = (ends[0] - ends[1]) / (2 * step)
        assert (found[name] * direction).sum() == pytest.approx(slope, rel=1e-6)


def test_a_row_without_any_place_has_no_gradient():
    arrays = drawn(0, 80, 200, (2,))
    mask = np.ones((2, 80, 200), bool)
    mask[1, 3] = False
    arrays["attn_mask"] = mask
    found = gradients(arrays, {}, "float32", cotangent_of(arrays))
    assert np.isnan(found["query"][1, 3]).all()
    assert np.isfinite(np.delete(found["query"][1], 3, axis=0)).all()
    assert np.isnan(found["key"][1]).all() and np.isnan(found["value"][1]).all()
    assert all(np.isfinite(found[name][0]).all() for name in ("query", "key", "value"))


def test_gradients_of_gradients():
    """Through the formula with weights: the slope of a squared gradient."""
    arrays, options = drawn(3, 20, 30, (2,), depth=4, width=3), {"is_causal": True}
    attend = ml.Model()
    wires = {name: ml.IOKey(name, shape=list(x.shape)) for name, x in arrays.items()}
    attend |= ml.Attention(**options)(**wires, output="y")
    attend |= ml.Sum()(input=attend.y * attend.y, output="cost")
    attend.expose_keys("cost")
    model = ml.grad(attend, "query")
    name = next(key for key in model.output_keys if key != "cost")
    pm = ml.compile(model, ml.CpuBackend(dtype="float64"), trainable_keys=set(arrays))
    direction = np.random.default_rng(1).standard_normal(arrays["query"].shape)
    found = pm.evaluate(arrays, output_gradients={name: direction}).gradients
    for key, step in (("query", 1e-5), ("key", 1e-5), ("value", 1e-5)):
        move = np.random.default_rng(2).standard_normal(arrays[key].shape)
        ends = [
            (pm.evaluate({**arrays, key: arrays[key] + s * step * move})[name] * direction).sum()
            for s in (1, -1)
        ]
        slope = (ends[0] - ends[1]) / (2 * step)
        assert (found[key] * move).sum() == pytest.approx(slope, rel=1e-6)


# --- a text, place by place ----------------------------------------------------------------------


def test_a_long_cache_part_by_part():
    places, width = 300, 24
    backend = ml.CpuBackend(dtype="float64")
    options = {"num_heads": 6, "num_kv_heads": 2, "embed_dim": width, "is_causal": True}
    pm, whole = (
        ml.compile(
            ml.MultiHeadAttention(**options, **cache),
            backend,
            data_keys={"query"},
            shapes={"query": [2, None, width]},
        )
        for cache in ({"cache_size": places}, {})
    )
    rng = np.random.default_rng(0)
    params = {key: rng.standard_normal(pm.shapes[key]) for key in sorted(pm.param_keys)}
    x = rng.standard_normal((2, places, width))
    wanted = whole.evaluate(params, {"query": x})["output"]
    state, at = pm.initial_state(), 0
    for part in (1, 130, 1, 1, 7, 60, 100):
        result = pm.evaluate(params, {"query": x[:, at : at + part]}, state=state)
        np.testing.assert_allclose(
            result.outputs["output"], wanted[:, at : at + part], rtol=0, atol=1e-11
        )
        state, at = result.state, at + part
    assert at == places
    beyond = pm.evaluate(params, {"query": x[:, :1]}, state=state)
    assert np.isnan(beyond.outputs["output"]).all()

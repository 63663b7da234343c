# Covers: backends/cuda/attention.cc backends/cuda/attention_text.cc backends/cuda/tile_text.cc
"""Attention of halves on tensor cores: values and gradients against NumPy's float64 of the same
halves, and PyTorch's errors in them beside ours.

Without a GPU tiles are multiplied by the emulator (emulated_cuda.py), a test double which has the
fragments of NVIDIA's PTX ISA.
"""

import mithril as ml
import ml_dtypes
import numpy as np
import pytest
from emulated_cuda import NO_CUDA, is_used
from formats.c_cases import drawn

pytestmark = [pytest.mark.device, pytest.mark.skipif(bool(NO_CUDA), reason=NO_CUDA)]
HALVES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
every_half = pytest.mark.parametrize("dtype", HALVES)
# Half a step of a half beside 1, and how far off two halves in place of a weight are, at most.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
OF_WEIGHTS = {"float16": 2.0**-20, "bfloat16": 2.0**-16}

# Shapes of query, key and value; options; shapes beside the scores, "bool" for a mask of bools.
CASES = {
    "one tile": ([64, 64], [64, 64], [64, 64], {}, {}),
    "rests of tiles": ([3, 70, 24], [3, 131, 24], [3, 131, 40], {}, {}),
    "one query": ([2, 1, 64], [2, 130, 64], [2, 130, 64], {}, {}),
    "one key": ([130, 16], [1, 16], [1, 16], {}, {}),
    "long keys": ([5, 32], [1500, 32], [1500, 32], {}, {}),
    "causal": ([2, 2, 150, 16], [2, 2, 150, 16], [2, 2, 150, 16], {"is_causal": True}, {}),
    "more queries than keys, causal": ([100, 16], [70, 16], [70, 16], {"is_causal": True}, {}),
    "from a place on": ([20, 16], [190, 16], [190, 16], {"is_causal": True, "offset": 170}, {}),
    "an offset of data": ([20, 16], [190, 16], [190, 16], {"is_causal": True, "offset": ml.TBD},
                          {}),
    "shared heads": ([2, 6, 30, 16], [2, 2, 41, 16], [2, 2, 41, 32],
                     {"enable_gqa": True, "is_causal": True, "offset": 11}, {}),
    "many axes": ([2, 1, 3, 20, 16], [2, 1, 3, 20, 16], [2, 1, 3, 20, 16], {"scale": -0.4}, {}),
    "a mask of bools": ([2, 12, 16], [2, 70, 16], [2, 70, 16], {}, {"attn_mask": "bool"}),
    "a mask of numbers and a bias": ([2, 3, 12, 16], [2, 3, 70, 16], [2, 3, 70, 16],
                                     {"scale": 0.3, "is_causal": True, "offset": 50},
                                     {"attn_mask": [12, 70], "bias": [3, 1, 70]}),
    "scores near 60": ([70, 16], [70, 16], [70, 16], {"scale": 5.0}, {}),
}  # fmt: skip
CASES |= {f"heads of {width}": ([70, width], [66, width], [66, width], {"is_causal": True}, {})
          for width in (8, 16, 32, 64, 96, 100, 128)}  # fmt: skip


def drawn_case(title, dtype):
    """Halves and what is beside them."""
    query, key, value, options, beside = CASES[title]
    shapes = {"query": query, "key": key, "value": value, **beside}
    data = {}
    for seed, (name, shape) in enumerate(shapes.items()):
        if shape == "bool":
            data[name] = drawn([query[-2], key[-2]], seed) > 0
            data[name][:3, :-2] = False  # nothing of a first tile
            data[name][:, -1] = True
        else:
            data[name] = drawn(shape, seed).astype(HALVES[dtype])
    if "offset" in options and options["offset"] is ml.TBD:
        data["offset"] = np.array(120, np.int64)
    return data, options


def made(data, options):
    flags = {f"use_{name}": True for name in ("attn_mask", "bias") if name in data}
    model = ml.Model()
    model |= ml.Attention(**options, **flags)(**{name: name for name in data}, output="y")
    model.expose_keys("y")
    return model


def compiled(model, data, backend, trained=(), **options):
    return ml.compile(
        model, backend, data_keys=set(data) - set(trained), trainable_keys=set(trained),
        shapes={name: list(x.shape) for name, x in data.items()}, **options,
    )  # fmt: skip


def kernels(pm, program="evaluate"):
    return [step.kernel for step in pm.explain(program=program).steps]


def scores_of(data, options):
    wide = {name: x.astype("f8") for name, x in data.items() if x.dtype.kind not in "bi"}
    query, key, value = (wide[name] for name in ("query", "key", "value"))
    if options.get("enable_gqa"):
        times = query.shape[-3] // key.shape[-3]
        key, value = (np.repeat(x, times, axis=-3) for x in (key, value))
    scale = options.get("scale", query.shape[-1] ** -0.5)
    scores = query @ key.swapaxes(-1, -2) * scale + wide.get("bias", 0)
    if options.get("is_causal"):
        offset = int(data.get("offset", options.get("offset", 0)))
        seen = np.arange(scores.shape[-2])[:, None] + offset >= np.arange(scores.shape[-1])
        scores = np.where(seen, scores, -np.inf)
    if "attn_mask" in wide:
        scores = scores + wide["attn_mask"]
    elif "attn_mask" in data:
        scores = np.where(data["attn_mask"], scores, -np.inf)
    return query, key, value, scores, scale


def by_hand(data, options):
    _, _, value, scores, _ = scores_of(data, options)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ value


def gradients_by_hand(data, options, cotangent):
    query, key, value, scores, scale = scores_of(data, options)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    dy = cotangent.astype("f8")
    slopes = weights * (dy @ value.swapaxes(-1, -2))
    slopes = slopes - weights * slopes.sum(-1, keepdims=True)
    out = {"query": slopes @ key * scale, "key": slopes.swapaxes(-1, -2) @ query * scale,
           "value": weights.swapaxes(-1, -2) @ dy}  # fmt: skip
    if options.get("enable_gqa"):
        times = query.shape[-3] // data["key"].shape[-3]
        for name in ("key", "value"):
            grown = out[name]
            shape = (*grown.shape[:-3], grown.shape[-3] // times, times, *grown.shape[-2:])
            out[name] = grown.reshape(shape).sum(-3)
    return out


def assert_near(got, want, dtype, margin=1.0, largest=None):
    """Rounded once to a half, and off before that by as much as weights of two halves are."""
    got = np.asarray(got).astype("f8")
    largest = np.abs(want).max() if largest is None else largest
    bound = 1.01 * ROUNDING[dtype] * np.abs(want) + margin * OF_WEIGHTS[dtype] * largest
    worst = np.max(np.abs(got - want) / bound)
    assert worst <= 1, f"{worst} times the bound"


# --- values and gradients -------------------------------------------------------------------------


@every_half
@pytest.mark.parametrize("title", CASES)
def test_values(title, dtype):
    data, options = drawn_case(title, dtype)
    pm = compiled(made(data, options), data, ml.CudaBackend(dtype=dtype), inference=True)
    assert kernels(pm) == ["cuda.attention"]
    y = pm.evaluate({}, data)["y"]
    assert np.asarray(y).dtype == HALVES[dtype]
    assert_near(y, by_hand(data, options), dtype, margin=16 if "scale" in options else 4)


# Gradients are not of numbers that only data tell, nor of few queries.
TRAINED = [title for title in CASES if title not in ("one query", "long keys")]


@every_half
@pytest.mark.parametrize("title", TRAINED)
def test_gradients(title, dtype):
    data, options = drawn_case(title, dtype)
    trained = ("query", "key", "value")
    model = made(data, options)
    pm = compiled(model, data, ml.CudaBackend(dtype=dtype), trained)
    assert {"cuda.attention", "cuda.attention_grad"} <= set(kernels(pm, "gradient"))
    y = by_hand(data, options)
    cotangent = drawn(list(y.shape), 9).astype(HALVES[dtype])
    params = {name: data[name] for name in trained}
    rest = {name: x for name, x in data.items() if name not in trained}
    run = pm.evaluate(params, rest, output_gradients={"y": cotangent})
    assert_near(run.outputs["y"], y, dtype, margin=16 if "scale" in options else 4)
    wanted = gradients_by_hand(data, options, cotangent)
    largest = max(np.abs(want).max() for want in wanted.values())  # of one key some are 0
    for name, want in wanted.items():
        got = run.gradients[name]
        assert np.asarray(got).dtype == HALVES[dtype], name
        assert_near(got, want, dtype, 64 if "scale" in options else 16, largest)


def gradients_of(data, options, cotangent, dtype="float16", kernel="cuda"):
    """Those of query, key and value, by the kernel of tiles."""
    trained = ("query", "key", "value")
    pm = compiled(made(data, options), data, ml.CudaBackend(dtype=dtype), trained)
    assert f"{kernel}.attention_grad" in kernels(pm, "gradient")
    params = {name: data[name] for name in trained}
    rest = {name: x for name, x in data.items() if name not in trained}
    run = pm.evaluate(params, rest, output_gradients={"y": cotangent})
    return {name: np.asarray(x).astype("f8") for name, x in run.gradients.items()}


def test_gradients_of_float16_beyond_its_range():
    """Slopes of scores may be: each row of them is multiplied by a power of two."""
    data, options = drawn_case("one tile", "float16")
    for name, factor in (("value", 10_000), ("query", 1 / 64)):
        data[name] = (data[name].astype("f4") * factor).astype(np.float16)
    cotangent = np.full([64, 64], 64.0, np.float16) * np.sign(drawn([64, 64], 9)).astype(np.float16)
    mean = cotangent.astype("f8") @ data["value"].astype("f8").T / 64
    assert np.abs(mean).max() > np.finfo(np.float16).max  # weights are about 1/64
    want = gradients_by_hand(data, options, cotangent)["key"]
    assert_near(gradients_of(data, options, cotangent)["key"], want, "float16", margin=16)


# Powers of two by which rows of cotangents, keys and values are larger or smaller than 1: by turns,
# or from row to row.
EXTREMES = {
    "large cotangents": {"cotangent": lambda row: 13 + 0 * row, "key": lambda row: -9 + 0 * row},
    "small cotangents": {"cotangent": lambda row: -20 + 0 * row},
    "small values": {"value": lambda row: -20 + 0 * row, "cotangent": lambda row: 12 + 0 * row},
    "large values": {"value": lambda row: 13 + 0 * row, "key": lambda row: -8 + 0 * row},
    "rows that grow": {"cotangent": lambda row: row // 8 - 13, "value": lambda row: row // 10 - 6},
    "rows that shrink": {"cotangent": lambda row: 4 - row // 8, "value": lambda row: 6 - row // 10},
    "large and small by turns": {"cotangent": lambda row: 11 - row % 2 * 30,
                                 "value": lambda row: 3 - row % 3 * 9},
}  # fmt: skip


def sizes_of_terms(data, options, cotangent):
    """What each gradient's terms come to without their signs: where they cancel float32 is off by
    some of its steps beside these."""
    query, key, value, scores, scale = scores_of(data, options)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    dy = np.abs(cotangent.astype("f8"))
    products = dy @ np.abs(value).swapaxes(-1, -2)
    slopes = weights * (products + (weights * products).sum(-1, keepdims=True))
    return {"query": slopes @ np.abs(key) * scale,
            "key": slopes.swapaxes(-1, -2) @ np.abs(query) * scale,
            "value": weights.swapaxes(-1, -2) @ dy}  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=["all keys", "causal"])
@pytest.mark.parametrize("title", EXTREMES)
def test_gradients_near_the_ends_of_the_range_of_float16(title, options):
    """Row by row as near as float32 is: no slope overflows, and none is lost beside larger ones."""
    data = {name: drawn([2, 150, 32], i) for i, name in enumerate(("query", "key", "value"))}
    cotangent = drawn([2, 150, 32], 9)
    for name, exponents in EXTREMES[title].items():
        array = cotangent if name == "cotangent" else data[name]
        array *= np.exp2(exponents(np.arange(150)).astype("f8"))[:, None].astype(array.dtype)
    data = {name: x.astype(np.float16) for name, x in data.items()}
    cotangent = cotangent.astype(np.float16)
    assert np.isfinite(cotangent).all() and all(np.isfinite(x).all() for x in data.values())
    got = gradients_of(data, options, cotangent)
    sizes = sizes_of_terms(data, options, cotangent)
    for name, want in gradients_by_hand(data, options, cotangent).items():
        fits = np.abs(want) < 65000
        assert fits.mean() > 0.5, name
        bound = 1.01 * 2.0**-11 * np.abs(want) + 2.0**-25 + 2.0**-21 * sizes[name]
        assert (np.abs(got[name] - want)[fits] <= bound[fits]).all(), name


def test_gradients_are_rounded_as_those_of_float32():
    """The kernel of float32 gives nearly all of them the same half."""
    data = {name: drawn([2, 150, 32], i) for i, name in enumerate(("query", "key", "value"))}
    data = {name: x.astype(np.float16) for name, x in data.items()}
    cotangent = (drawn([2, 150, 32], 9) * 2.0**-10).astype(np.float16)
    got = gradients_of(data, {}, cotangent)
    wide = {name: x.astype("f4") for name, x in data.items()}
    of_float32 = gradients_of(wide, {}, cotangent.astype("f4"), "float32", "device")
    for name, x in of_float32.items():
        assert (x.astype(np.float16) == got[name]).mean() > 0.98, name


@every_half
def test_operands_that_do_not_lie_side_by_side(dtype):
    """Heads behind places, in one array of all three; features one row behind the other."""
    model = ml.Model()
    for at, name in enumerate(("query", "key", "value")):
        model |= ml.Indexer(index=(slice(None), at))(input="x", output=f"{name}_places")
        model |= ml.Transpose(axes=(1, 0, 2))(input=f"{name}_places", output=name)
    model |= ml.Transpose(axes=(0, 2, 1))(input="turned", output="other_key")
    model |= ml.Attention()(query="query", key="key", value="value", output="y")
    model |= ml.Attention()(query="query", key="other_key", value="value", output="z")
    model.expose_keys("y", "z")
    data = {"x": drawn([70, 3, 4, 16]), "turned": drawn([4, 16, 70], 1)}
    data = {name: x.astype(HALVES[dtype]) for name, x in data.items()}
    pm = compiled(model, data, ml.CudaBackend(dtype=dtype), inference=True)
    assert kernels(pm).count("cuda.attention") == 2
    found = pm.evaluate({}, data)
    query, key, value = data["x"].transpose(1, 2, 0, 3)
    other = data["turned"].swapaxes(-1, -2)
    for name, keys in (("y", key), ("z", other)):
        want = by_hand({"query": query, "key": keys, "value": value}, {})
        assert_near(found[name], want, dtype, margin=4)


@every_half
def test_the_same_bits_again(dtype):
    data, options = drawn_case("causal", dtype)
    trained = ("query", "key", "value")
    pm = compiled(made(data, options), data, ml.CudaBackend(dtype=dtype), trained)
    cotangents = {"y": drawn([2, 2, 150, 16], 9).astype(HALVES[dtype])}
    runs = [pm.evaluate(data, {}, output_gradients=cotangents).gradients for _ in range(2)]
    for name, one in runs[0].items():
        assert np.asarray(one).tobytes() == np.asarray(runs[1][name]).tobytes()


# --- what is not finite ---------------------------------------------------------------------------


@every_half
def test_a_row_that_sees_no_key_is_nan(dtype):
    data, options = drawn_case("a mask of bools", dtype)
    data["attn_mask"] = np.ones([12, 70], bool)
    data["attn_mask"][3] = False
    pm = compiled(made(data, options), data, ml.CudaBackend(dtype=dtype), inference=True)
    y = np.asarray(pm.evaluate({}, data)["y"]).astype("f8")
    assert np.isnan(y[:, 3]).all() and np.isfinite(np.delete(y, 3, 1)).all()


@every_half
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name, place", [("query", 3), ("key", 131), ("value", 131)])
def test_numbers_that_are_not_finite_reach_what_the_formula_says(name, place, bad, dtype):
    """As with the kernel of float32: an infinite value is infinite in the results that hold it."""
    data, options = drawn_case("rests of tiles", dtype)
    data = {key: np.concatenate([x, x], axis=-2) for key, x in data.items()}
    data[name][1, place, 2] = bad
    with np.errstate(invalid="ignore", over="ignore"):
        want = by_hand(data, options)
    y = []
    for one in (dtype, "float32"):
        cast = {key: x.astype(HALVES.get(one, one)) for key, x in data.items()}
        pm = compiled(made(data, options), data, ml.CudaBackend(dtype=one), inference=True)
        y.append(np.asarray(pm.evaluate({}, cast)["y"]).astype("f8"))
    for got in y:
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    finite = np.isfinite(want)
    assert finite.any() and not finite.all()
    assert_near(y[0][finite], want[finite], dtype, margin=4)


@every_half
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["cotangent", "key", "value"])
def test_gradients_of_what_is_not_finite_are_those_of_float32(name, bad, dtype):
    """An infinite cotangent times a weight is infinite, though the weight is two halves."""
    data, options = drawn_case("rests of tiles", dtype)
    trained = ("query", "key", "value")
    cotangent = drawn(list(by_hand(data, options).shape), 9).astype(HALVES[dtype])
    (cotangent if name == "cotangent" else data[name])[..., 1, 2] = bad
    found = []
    for one, kernel in ((dtype, "cuda"), ("float32", "device")):
        cast = {key: x.astype(HALVES.get(one, one)) for key, x in data.items()}
        pm = compiled(made(data, options), data, ml.CudaBackend(dtype=one), trained)
        assert f"{kernel}.attention_grad" in kernels(pm, "gradient")
        params = {key: cast.pop(key) for key in trained}
        slopes = {"y": cotangent.astype(HALVES.get(one, one))}
        run = pm.evaluate(params, cast, output_gradients=slopes)
        found.append({key: np.asarray(x).astype("f8") for key, x in run.gradients.items()})
    got, want = found
    for key in trained:
        np.testing.assert_array_equal(np.isnan(got[key]), np.isnan(want[key]), err_msg=key)
        places = np.isinf(want[key])
        np.testing.assert_array_equal(got[key][places], want[key][places], err_msg=key)
    if name == "cotangent" and np.isinf(bad):
        assert np.isinf(want["value"]).any()


@every_half
def test_keys_that_nobody_sees_may_be_anything(dtype):
    data, options = drawn_case("from a place on", dtype)
    options = {**options, "offset": 100}
    for name in ("key", "value"):
        data[name][120:] = np.nan
    pm = compiled(made(data, options), data, ml.CudaBackend(dtype=dtype), inference=True)
    y = np.asarray(pm.evaluate({}, data)["y"]).astype("f8")
    short = {name: x[:120] if name != "query" else x for name, x in data.items()}
    assert_near(y, by_hand(short, options), dtype, margin=4)


def test_weights_far_below_the_largest_one_count_in_float16():
    """There are 40,000 of them, each below its least number beside 1."""
    keys = 40_000
    data = {"query": np.ones([16, 16]), "key": np.full([keys, 16], -18.0 / 16),
            "value": np.full([keys, 16], 1000.0)}  # fmt: skip
    data["key"][0], data["value"][0] = 0, 0
    data = {name: x.astype(np.float16) for name, x in data.items()}
    options = {"scale": 1.0}
    pm = compiled(made(data, options), data, ml.CudaBackend(dtype="float16"), inference=True)
    assert_near(pm.evaluate({}, data)["y"], by_hand(data, options), "float16", margin=16)


# --- where they are not taken ---------------------------------------------------------------------


@every_half
def test_portable_results_are_not_of_tensor_cores(dtype):
    data, options = drawn_case("causal", dtype)
    names, portable = ("query", "key", "value"), {"deterministic": "portable"}
    pm = compiled(made(data, options), data, ml.CudaBackend(dtype=dtype), names, **portable)
    for program in ("evaluate", "gradient"):
        assert not any(kernel.startswith("cuda.attention") for kernel in kernels(pm, program))
    assert_near(pm.evaluate(data, {})["y"], by_hand(data, options), dtype, margin=4)


@pytest.mark.parametrize("why", ["wide heads", "few scores"])
def test_other_kernels_do_the_rest(why):
    data, options = drawn_case("a mask of numbers and a bias", "bfloat16")
    if why == "wide heads":
        data |= {name: drawn([2, 3, n, 144], 1).astype(HALVES["bfloat16"])
                 for name, n in (("query", 12), ("key", 70))}  # fmt: skip
    elif why == "few scores":
        data = {name: data[name][..., :5, :] for name in ("query", "key", "value")}
        options = {}
    pm = compiled(made(data, options), data, ml.CudaBackend(dtype="bfloat16"), inference=True)
    assert "cuda.attention" not in kernels(pm)
    assert_near(pm.evaluate({}, data)["y"], by_hand(data, options), "bfloat16", margin=16)


@pytest.mark.skipif(not is_used(), reason="a device of the emulator")
@every_half
def test_an_older_device_has_the_kernel_of_float32(dtype):
    """The emulator's third device is sm_75."""
    data, options = drawn_case("causal", dtype)
    backend = ml.CudaBackend("cuda:2", dtype=dtype)
    assert backend.device_info["architecture"] == "sm_75"
    pm = compiled(made(data, options), data, backend, inference=True)
    assert "device.attention" in kernels(pm) and "cuda.attention" not in kernels(pm)
    assert_near(pm.evaluate({}, data)["y"], by_hand(data, options), dtype, margin=4)


# --- beside PyTorch -------------------------------------------------------------------------------


@every_half
@pytest.mark.parametrize("title", ["heads of 64", "long keys", "scores near 60"])
def test_errors_beside_those_of_pytorch(title, dtype):
    """Root mean squares of the errors of results and gradients are no larger than those of
    PyTorch's attention on the CPU, of the same halves."""
    torch = pytest.importorskip("torch")
    data, options = drawn_case(title, dtype)
    want = by_hand(data, options)
    names = ("query", "key", "value")
    tensors = [torch.tensor(data[name].astype("f4")).to(getattr(torch, dtype)) for name in names]
    tensors = [x.requires_grad_() for x in tensors]
    given = {"is_causal": options.get("is_causal", False), "scale": options.get("scale")}
    attend = torch.nn.functional.scaled_dot_product_attention
    theirs = attend(*(x[None, None] for x in tensors), **given)[0, 0]
    trained = names if title in TRAINED else ()
    pm = compiled(made(data, options), data, ml.CudaBackend(dtype=dtype), trained,
                  inference=not trained)  # fmt: skip
    found = {
        "y": (pm.evaluate(data if trained else {}, {} if trained else data)["y"], theirs, want)
    }
    if trained:
        cotangent = drawn(list(want.shape), 9).astype(HALVES[dtype])
        theirs.backward(torch.tensor(cotangent.astype("f4")).to(getattr(torch, dtype)))
        run = pm.evaluate(data, {}, output_gradients={"y": cotangent})
        for (name, exact), x in zip(gradients_by_hand(data, options, cotangent).items(), tensors,
                                    strict=True):  # fmt: skip
            found[name] = (run.gradients[name], x.grad, exact)
    for name, (ours, of_torch, exact) in found.items():
        of_torch = of_torch.detach().float().numpy()
        rounded = exact.astype(HALVES[dtype])
        errors = [np.sqrt(np.mean((np.asarray(x).astype("f8") - exact) ** 2))
                  for x in (ours, of_torch, rounded)]  # fmt: skip
        print(f"{dtype}, {title}, {name}: off by {errors[0]:.3g}, PyTorch by {errors[1]:.3g},"
              f" the exact ones rounded by {errors[2]:.3g}")  # fmt: skip
        assert errors[0] <= 1.001 * errors[1], name
        assert errors[0] <= 1.05 * errors[2], name

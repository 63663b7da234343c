"""Attention of heads against functions written by hand, and step by step against all at once."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, OptionError, ShapeError, SignatureError
from models.composite_cases import BACKENDS, check, far, numbers, on_native, run

WIDTH, HEADS, L = 12, 3, 6


def shapes(width=WIDTH, heads=HEADS, kv_heads=HEADS, size=None, bias=True):
    size = size or width // heads
    out = {"w_q": (heads * size, width), "w_k": (kv_heads * size, width)}
    out |= {"w_v": (kv_heads * size, width), "w_o": (width, heads * size)}
    biases = {f"b_{name}": (out[f"w_{name}"][0],) for name in "qkvo"}
    return out | (biases if bias else {})


def turned(x, theta, width, interleaved):
    """Row by row and pair by pair."""
    x = x.copy()
    for place in range(x.shape[-2]):
        for pair in range(width // 2):
            a, b = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + width // 2)
            angle = place / theta ** (2 * pair / width)
            c, s, first = np.cos(angle), np.sin(angle), x[..., place, a].copy()
            x[..., place, a] = first * c - x[..., place, b] * s
            x[..., place, b] = x[..., place, b] * c + first * s
    return x


def attention(p, x, heads, kv_heads=None, turn=lambda x: x, bias=0.0, is_causal=False):
    """Of [..., l, width], head by head."""
    kv_heads = kv_heads or heads

    def projected(role):
        return x @ p[f"w_{role}"].T + p.get(f"b_{role}", 0.0)

    q, k, v = (projected(role) for role in "qkv")
    size, found = q.shape[-1] // heads, []
    bias = np.broadcast_to(bias, (heads, x.shape[-2], x.shape[-2]))
    for head in range(heads):
        of = head // (heads // kv_heads)
        mine = turn(q[..., head * size : (head + 1) * size])
        theirs = turn(k[..., of * size : (of + 1) * size])
        scores = mine @ theirs.swapaxes(-1, -2) / np.sqrt(size) + bias[head]
        if is_causal:
            scores = np.where(np.tri(x.shape[-2], dtype=bool), scores, -np.inf)
        weights = np.exp(scores)
        weights /= weights.sum(-1, keepdims=True)
        found.append(weights @ v[..., of * size : (of + 1) * size])
    return np.concatenate(found, -1) @ p["w_o"].T + p.get("b_o", 0.0)


# --- values and gradients ------------------------------------------------------------------------

# Slopes of 4 heads, and of 6: those of 4 and the first two of every second one of 8 (the paper,
# section 3, and its code).
SLOPES = {4: [2**-2, 2**-4, 2**-6, 2**-8], 6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]}


def distances(heads, length):
    away = np.abs(np.arange(length)[:, None] - np.arange(length))
    return -np.array(SLOPES[heads])[:, None, None] * away


FORMS = {
    "plain": ({"num_heads": 3}, shapes(), {"heads": 3}),
    "shared keys": (
        {"num_heads": 4, "num_kv_heads": 2, "head_dim": 2, "is_causal": True, "use_bias": False},
        shapes(6, 4, 2, 2, bias=False),
        {"heads": 4, "kv_heads": 2, "is_causal": True},
    ),
    "rotary": (
        {"num_heads": 2, "embed_dim": 8, "is_causal": True, "num_kv_heads": 1,
         "rotary": ml.RotaryEmbedding(theta=100.0)},
        shapes(8, 2, 1),
        {"heads": 2, "kv_heads": 1, "is_causal": True,
         "turn": lambda x: turned(x, 100.0, 4, False)},
    ),
    "part of the columns": (
        {"num_heads": 1, "head_dim": 5, "use_output_bias": False,
         "rotary": ml.RotaryEmbedding(interleaved=True, width=4)},
        {k: v for k, v in shapes(4, 1, 1, 5).items() if k != "b_o"},
        {"heads": 1, "turn": lambda x: turned(x, 10000.0, 4, True)},
    ),
    "alibi": (
        {"num_heads": 4, "embed_dim": 8, "is_causal": True, "alibi": True},
        shapes(8, 4, 4),
        {"heads": 4, "is_causal": True, "bias": distances(4, 4)},
    ),
    "alibi of 6 heads": (
        {"num_heads": 6, "alibi": True, "use_bias": False},
        shapes(6, 6, 6, bias=False),
        {"heads": 6, "bias": distances(6, 4)},
    ),
}  # fmt: skip


def inputs_of(form, *lead):
    _, sizes, _ = FORMS[form]
    return numbers(5, query=(*lead, 4, sizes["w_q"][1]), **sizes)


@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients(form, backend_name):
    arguments, _, how = FORMS[form]

    def by_hand(query, **p):
        return {"output": attention(p, query, **how)}

    check(ml.MultiHeadAttention(**arguments), by_hand, inputs_of(form, 2), backend_name)


@on_native
@pytest.mark.parametrize("lead", [(), (2, 3)], ids=["none", "two"])
def test_any_number_of_leading_axes(lead, native):
    arguments, _, how = FORMS["rotary"]
    given = inputs_of("rotary", *lead)
    found, _ = run(ml.MultiHeadAttention(**arguments), given, native)
    wanted = attention(given, given["query"], **how)
    assert far(found["output"], wanted, 1e-12) is None


@pytest.mark.parametrize("form", ["shared keys", "alibi", "rotary"])
@pytest.mark.device
def test_verified_on_all_native_backends(form):
    arguments, _, _ = FORMS[form]
    report = ml.verify(
        ml.MultiHeadAttention(**arguments),
        shapes={"query": inputs_of(form, 2)["query"].shape},
        backends=["cpu", "numpy"],
    )
    assert report, str(report)


def test_far_places_in_float32(backend_name):
    """Angles are those of float64: a float32 product of place and rate is off by 1e-3 there."""
    backend = getattr(ml, BACKENDS[backend_name])()
    model = ml.Model()
    offset = ml.IOKey("offset", type=ml.Tensor[int], shape=[])
    model |= ml.RotaryEmbedding(offset=ml.TBD)(input="x", offset=offset, output="y")
    pm = ml.compile(model, backend, data_keys={"x", "offset"}, shapes={"x": [3, 8]})
    x, first = numbers(1, x=(3, 8))["x"].astype(np.float32), 130_001
    found = backend.to_numpy(pm.evaluate({}, {"x": x, "offset": np.array(first)})["y"])
    angles = (first + np.arange(3)[:, None]) / 10000.0 ** (np.arange(4) / 4)
    a, b = x[:, :4].astype(np.float64), x[:, 4:].astype(np.float64)
    c, s = np.cos(angles), np.sin(angles)
    wanted = np.concatenate([a * c - b * s, b * c + a * s], -1)
    np.testing.assert_allclose(found, wanted, atol=4e-7)


# --- the cache -----------------------------------------------------------------------------------

CACHED = {
    "plain": {},
    "shared rotary": {"num_kv_heads": 1, "rotary": ml.RotaryEmbedding(), "use_bias": False},
    "alibi": {"alibi": True},
}


def compiled(model, backend, **options):
    shapes = {"query": [2, None, WIDTH]}
    return ml.compile(model, backend, data_keys={"query"}, shapes=shapes, jit=False, **options)


def in_parts(pm, backend, params, x, sizes, state):
    """The outputs of calls with as many places each, side by side; and the last state."""
    outputs, at = [], 0
    for size in sizes:
        part = backend.array(x[:, at : at + size])
        result = pm.evaluate(params, {"query": part}, state=state)
        outputs.append(backend.to_numpy(result.outputs["output"]))
        state, at = result.state, at + size
    return np.concatenate(outputs, 1), state


@pytest.mark.parametrize("form", CACHED)
def test_part_by_part_is_all_at_once(form, backend_name):
    backend = getattr(ml, BACKENDS[backend_name])(dtype="float64")
    options = {"num_heads": HEADS, "embed_dim": WIDTH, "is_causal": True, **CACHED[form]}
    whole = compiled(ml.MultiHeadAttention(**options), backend)
    by_part = compiled(ml.MultiHeadAttention(**options, cache_size=L), backend)
    sizes = {key: whole.shapes[key] for key in whole.param_keys}
    params = {key: backend.array(value) for key, value in numbers(3, **sizes).items()}
    x = numbers(4, x=(2, L, WIDTH))["x"]
    wanted = backend.to_numpy(whole.evaluate(params, {"query": backend.array(x)})["output"])
    for parts in ([1] * L, [3, 1, 2], [L]):
        first = by_part.initial_state()
        found, state = in_parts(by_part, backend, params, x, parts, first)
        assert far(found, wanted, 1e-12) is None, parts
        assert int(state["length"]) == L


@pytest.mark.device
def test_gradients_through_a_call_with_a_cache():
    """Of a call that fills the empty cache they are those without one."""
    options = {"num_heads": HEADS, "is_causal": True, "rotary": ml.RotaryEmbedding()}
    backend, found = ml.CpuBackend(dtype="float64"), []
    x = numbers(4, x=(2, L, WIDTH))["x"]
    for size in (None, L + 2):
        pm = compiled(ml.MultiHeadAttention(**options, cache_size=size), backend)
        params = numbers(3, **{key: pm.shapes[key] for key in sorted(pm.param_keys)})
        state = pm.initial_state() or None
        cotangent = {"output": np.ones_like(x)}
        result = pm.evaluate(params, {"query": x}, output_gradients=cotangent, state=state)
        found.append(result.gradients)
    for key, slope in found[0].items():
        np.testing.assert_allclose(found[1][key], slope, rtol=1e-10, atol=1e-12)


@on_native
def test_a_full_cache_gives_nan(native):
    backend = getattr(ml, BACKENDS[native])(dtype="float64")
    pm = compiled(ml.MultiHeadAttention(HEADS, WIDTH, is_causal=True, cache_size=3), backend)
    params, x = pm.randomize_params(), numbers(4, x=(2, 6, WIDTH))["x"]
    found, state = in_parts(pm, backend, params, x, [2, 1, 1, 1], pm.initial_state())
    assert np.isfinite(found[:, :3]).all() and np.isnan(found[:, 3:]).all()
    assert int(state["length"]) == 5
    with pytest.raises(ml.errors.MithrilError, match="has no room for 4"):
        in_parts(pm, backend, params, x, [4], pm.initial_state())


def decoder():
    """Two layers, whose states have names of their own."""
    model = ml.Model()
    for at in range(2):
        layer = ml.MultiHeadAttention(2, 4, is_causal=True, cache_size=5)
        model |= layer(query="x" if at == 0 else "h", output="h" if at == 0 else "y")
    model.expose_keys("y")
    return model


@pytest.mark.device
def test_layers_have_states_of_their_own_and_files_keep_them():
    x = numbers(1, x=(1, 4, 4))["x"]
    outputs = []
    for model in (decoder(), ml.Model.from_json(decoder().to_json()), decoder().clone()):
        pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [1, None, 4]})
        state = pm.initial_state()
        names = {f"{name}_{at}" for name in ("k_cache", "v_cache", "length") for at in (0, 1)}
        assert set(state) == names
        params, found = pm.randomize_params(seed=0), []
        for place in range(4):
            result = pm.evaluate(params, {"x": x[:, place : place + 1]}, state=state)
            state = result.state
            found.append(result.outputs["y"])
        outputs.append(np.concatenate(found, 1))
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])


@pytest.mark.device
def test_the_first_length_is_an_int_where_ranks_are_open():
    layer = ml.MultiHeadAttention(2, 4, is_causal=True, cache_size=5, use_attn_mask=True)
    keys = {"query", "attn_mask"}
    pm = ml.compile(layer, ml.CpuBackend(), data_keys=keys, shapes={"query": [1, 2, 4]})
    state = pm.initial_state()
    assert state["length"].dtype.kind == "i"
    mask = np.ones((2, 5), bool)
    data = {"query": np.ones((1, 2, 4), np.float32), "attn_mask": mask}
    assert int(pm.evaluate(pm.randomize_params(), data, state=state).state["length"]) == 2


# --- dropout -------------------------------------------------------------------------------------


def test_dropout_in_training(backend_name):
    """With the identity for values the output is the weights."""
    backend = getattr(ml, BACKENDS[backend_name])(dtype="float64")
    places, p = 40, 0.25
    model = ml.DropoutAttention(p=p)
    keys = {"query": (places, 4), "key": (places, 4), "value": (places, places)}
    data = {**numbers(1, **keys), "value": np.eye(places)}
    found = {}
    for mode in ("train", "eval"):
        pm = ml.compile(model, backend, data_keys=set(keys), shapes=keys, mode=mode, jit=False)
        state = pm.initial_state(seed=3) or None
        result = pm.evaluate({}, data, state=state)
        found[mode] = backend.to_numpy((result.outputs if state else result)["output"])
    assert far(found["eval"].sum(-1), np.ones(places), 1e-12) is None
    kept = found["train"] != 0
    assert abs((~kept).mean() - p) < 0.05
    assert far(found["train"][kept], found["eval"][kept] / (1 - p), 1e-12) is None


@on_native
def test_dropout_of_the_layer(native):
    backend = getattr(ml, BACKENDS[native])(dtype="float64")
    layer = ml.MultiHeadAttention(HEADS, WIDTH, dropout=0.5)
    trained, used = (compiled(layer, backend, mode=mode) for mode in ("train", "eval"))
    x, params = numbers(4, x=(2, L, WIDTH))["x"], used.randomize_params(seed=1)
    state = trained.initial_state()
    first = trained.evaluate(params, {"query": x}, state=state)
    second = trained.evaluate(params, {"query": x}, state=first.state)
    assert not np.allclose(first.outputs["output"], second.outputs["output"])
    plain, _ = run(ml.MultiHeadAttention(HEADS, WIDTH), {**params, "query": x}, native)
    found = used.evaluate(params, {"query": x})["output"]
    assert far(np.asarray(found), plain["output"], 1e-12) is None


def test_the_op_of_the_documents_says_where_dropout_is():
    pattern = r"DropoutAttention has one, and MultiHeadAttention\(dropout=p\)"
    with pytest.raises(ml.errors.UnsupportedError, match=pattern):
        ml.compile(
            ml.ScaledDotProduct(dropout_p=0.1),
            ml.NumpyBackend(),
            shapes={"query": [3, 4], "key": [3, 4], "value": [3, 4]},
        )


# --- arguments -----------------------------------------------------------------------------------

REFUSED = {
    "no heads": (ArgumentError, {"num_heads": 0}, "num_heads: requires an integer of at least 1"),
    "no multiple": (ArgumentError, {"embed_dim": 13}, "multiple of num_heads = 4, got 13"),
    "no divisor": (
        ArgumentError, {"num_kv_heads": 3}, "num_kv_heads must divide num_heads = 4, got 3"
    ),
    "open size": (OptionError, {"num_kv_heads": 2}, "leaves the size of a head open"),
    "dropout": (ArgumentError, {"dropout": 1.0}, "at least 0.0 and below 1.0, got 1.0"),
    "scale": (ArgumentError, {"scale": "big"}, "scale must be a number, got 'big'"),
    "rotary": (SignatureError, {"rotary": True}, "rotary: requires a RotaryEmbedding"),
    "both": (
        OptionError,
        {"rotary": ml.RotaryEmbedding(), "alibi": True},
        "takes one of rotary and alibi",
    ),
    "cache": (OptionError, {"cache_size": 4}, "cache_size requires is_causal=True"),
    "cached cross": (
        OptionError,
        {"cache_size": 4, "is_causal": True, "use_key": True},
        "cache_size is for attention of a sequence to itself",
    ),
    "absent key": (OptionError, {"b_q": "b", "use_bias": False}, "has no key 'b_q'"),
    "flag": (SignatureError, {"use_key": "yes"}, "use_key: requires True or False"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_that_are_refused(case):
    error, arguments, message = REFUSED[case]
    with pytest.raises(error) as raised:
        ml.MultiHeadAttention(**{"num_heads": 4, **arguments})
    assert message in str(raised.value)


def test_keys_and_shapes():
    layer = ml.MultiHeadAttention(4, num_kv_heads=2, head_dim=3, use_key=True, use_attn_mask=True)
    layer.set_shapes(query=[2, 5, 8], key=[2, 7, 6])
    found = {key: layer.shapes[key] for key in layer.input_keys}
    assert found["w_q"] == [12, 8] and found["w_k"] == found["w_v"] == [6, 6]
    assert found["w_o"] == [8, 12] and found["b_o"] == [8]
    assert layer.shapes["output"] == [2, 5, 8]
    assert [c.key for c in layer.conns.cins] == ["query"] and layer.is_frozen


# --- batch axes that broadcast ------------------------------------------------------------------

# Shapes of query, key, value and mask.
BATCHES = {
    "one for all": ((2, 3, 4, 5), (1, 3, 6, 5), (1, 3, 6, 7), None),
    "heads": ((2, 3, 4, 5), (2, 1, 6, 5), (2, 1, 6, 7), (4, 6)),
    "fewer axes": ((2, 3, 4, 5), (3, 6, 5), (6, 7), (2, 1, 1, 6)),
    "queries": ((1, 4, 5), (3, 6, 5), (3, 6, 7), (3, 1, 6)),
    "each other": ((2, 1, 4, 5), (1, 3, 6, 5), (2, 3, 6, 7), None),
}


def of_torch(arrays, weights, mask, **options):
    torch = pytest.importorskip("torch")
    given = [torch.tensor(x, requires_grad=True) for x in arrays]
    mask = None if mask is None else torch.tensor(mask)
    output = torch.nn.functional.scaled_dot_product_attention(*given, attn_mask=mask, **options)
    (output * torch.tensor(weights)).sum().backward()
    return output.detach().numpy(), [x.grad.numpy() for x in given]


def broadcast_attention(shapes, mask, **options):
    model = ml.Model()
    names = ("query", "key", "value")
    keys = {
        n: ml.IOKey(n, shape=s, type=ml.Tensor[float]) for n, s in zip(names, shapes, strict=False)
    }
    if mask is not None:
        keys["attn_mask"] = ml.IOKey("attn_mask", shape=mask.shape, type=ml.Tensor[bool])
    layer = ml.ScaledDotProduct(broadcast=True, use_attn_mask=mask is not None, **options)
    model |= layer.connect(**keys, output="output")
    return model


@pytest.mark.frameworks
@pytest.mark.parametrize("is_causal", [False, True], ids=["all places", "causal"])
@pytest.mark.parametrize("which", BATCHES)
def test_batch_axes_broadcast_as_those_of_pytorch(which, is_causal, backend_name):
    *shapes, of_mask = BATCHES[which]
    if of_mask is not None and is_causal:
        pytest.skip("PyTorch takes one of them")
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    mask = None if of_mask is None else (rng.random(of_mask) < 0.7) | (np.arange(of_mask[-1]) == 0)
    batch = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
    weights = rng.standard_normal((*batch, 4, 7))
    want, slopes = of_torch(arrays, weights, mask, is_causal=is_causal)
    backend = ml.get_backend(backend_name)
    names = ["query", "key", "value"]
    pm = ml.compile(
        broadcast_attention(shapes, mask, is_causal=is_causal), backend, trainable_keys=names
    )
    params = {n: backend.array(x.astype("f4")) for n, x in zip(names, arrays, strict=True)}
    data = {} if mask is None else {"attn_mask": backend.array(mask)}
    found = pm.evaluate(params, data, output_gradients={"output": weights.astype("f4")})
    np.testing.assert_allclose(backend.to_numpy(found.outputs["output"]), want, atol=2e-5)
    for name, slope in zip(names, slopes, strict=True):
        np.testing.assert_allclose(backend.to_numpy(found.gradients[name]), slope, atol=5e-5)


def test_heads_that_are_shared_broadcast_with_their_batch(backend_name):
    rng = np.random.default_rng(5)
    q, k, v = (
        rng.standard_normal(shape).astype("f4")
        for shape in ((2, 4, 3, 5), (1, 2, 6, 5), (1, 2, 6, 7))
    )
    backend = ml.get_backend(backend_name)
    model = broadcast_attention((q.shape, k.shape, v.shape), None, is_causal=False, enable_gqa=True)
    pm = ml.compile(model, backend, inference=True)
    given = {n: backend.array(x) for n, x in (("query", q), ("key", k), ("value", v))}
    found = backend.to_numpy(pm.evaluate({}, given)["output"])
    for example, head in np.ndindex(2, 4):
        scores = q[example, head] @ k[0, head // 2].T / np.sqrt(5)
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        np.testing.assert_allclose(found[example, head], weights @ v[0, head // 2], atol=1e-5)


def test_shapes_of_batches_that_broadcast():
    def shapes(**given):
        layer = ml.ScaledDotProduct(broadcast=True)
        layer.set_shapes(**given)
        return layer.shapes

    found = shapes(query=[2, 1, 4, 5], key=[3, 6, None], value=[None, None, None, 7])
    assert found["output"][-2:] == [4, 7] and found["key"] == [3, 6, 5]
    assert found["value"][-2:] == [6, 7]
    assert shapes(query=[2, 1, 4, 5], key=[3, 6, 5], value=[3, 6, 7])["output"] == [2, 3, 4, 7]
    assert shapes(output=[1, 4, 7], query=[None, 4, 5], key=[1, 6, 5])["query"] == [1, 4, 5]
    with pytest.raises(ShapeError):
        shapes(query=[2, 4, 5], key=[3, 6, 5])
    with pytest.raises(ShapeError):
        ml.ScaledDotProduct().set_shapes(query=[2, 4, 5], key=[1, 6, 5])


def test_open_batches_broadcast():
    model = broadcast_attention(([None, 4, 5], [None, 6, 5], [None, 6, 7]), None, is_causal=False)
    rng = np.random.default_rng(6)
    for backend in (ml.CpuBackend(), ml.NumpyBackend()):
        pm = ml.compile(model, backend, trainable_keys=["key"])
        for q, k in ((3, 1), (1, 3), (2, 2)):
            given = {
                "query": rng.standard_normal((q, 4, 5)),
                "value": rng.standard_normal((k, 6, 7)),
            }
            key = rng.standard_normal((k, 6, 5))
            ones = {"output": np.ones((max(q, k), 4, 7))}
            found = pm.evaluate({"key": key}, given, output_gradients=ones)
            want, slopes = of_torch([given["query"], key, given["value"]], ones["output"], None)
            np.testing.assert_allclose(backend.to_numpy(found.outputs["output"]), want, atol=2e-5)
            np.testing.assert_allclose(
                backend.to_numpy(found.gradients["key"]), slopes[1], atol=2e-5
            )


@pytest.mark.parametrize("width", [0, 3])
def test_queries_without_features(width, backend_name):
    """Scores are 0 times infinity."""
    backend = getattr(ml, BACKENDS[backend_name])()
    model = ml.Model()
    model |= ml.ScaledDotProduct(is_causal=False)(query="q", key="k", value="v", output="y")
    shapes = {"q": [2, 3, 0], "k": [2, 3, 0], "v": [2, 3, width]}
    pm = ml.compile(model, backend, data_keys=set(shapes), shapes=shapes)
    data = {key: backend.array(np.ones(shape, "f4")) for key, shape in shapes.items()}
    got = backend.to_numpy(pm.evaluate({}, data)["y"])
    np.testing.assert_array_equal(got, np.full((2, 3, width), np.nan))

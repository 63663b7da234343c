"""Attention against that of PyTorch, in float64, on every backend: outputs and gradients."""

import mithril as ml
import numpy as np
import pytest
from frameworks.test_models_against_torch import check, numbers

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.frameworks
N, L, S, WIDTH, HEADS = 2, 5, 7, 12, 3


def parameters(seed, width=WIDTH, heads=HEADS, kv_heads=HEADS, key_width=WIDTH, value_width=WIDTH):
    queries, keys = width, width // heads * kv_heads
    shapes = {"w_q": (queries, width), "w_k": (keys, key_width), "w_v": (keys, value_width)}
    shapes |= {"w_o": (width, queries), "b_q": (queries,), "b_k": (keys,), "b_v": (keys,)}
    return numbers(seed, **shapes, b_o=(width,))


def multihead(p, query, key, value, **options):
    """`torch.nn.MultiheadAttention` with these weights."""
    layer = torch.nn.MultiheadAttention(
        WIDTH, HEADS, kdim=key.shape[-1], vdim=value.shape[-1], batch_first=True
    ).double()
    given = {"in_proj_bias": torch.cat([p["b_q"], p["b_k"], p["b_v"]])}
    given |= {"out_proj.weight": p["w_o"], "out_proj.bias": p["b_o"]}
    if layer.in_proj_weight is None:
        given |= {f"{name}_proj_weight": p[f"w_{name}"] for name in "qkv"}
    else:
        given["in_proj_weight"] = torch.cat([p["w_q"], p["w_k"], p["w_v"]])
    return torch.func.functional_call(layer, given, (query, key, value), options)[0]


MASK = np.random.default_rng(3).random((L, L)) < 0.7
MASK |= np.eye(L, dtype=bool)
SELF = {
    "plain": ({}, {}, None),
    "causal": ({"is_causal": True}, {}, ~np.tri(L, dtype=bool)),
    "mask": ({"use_attn_mask": True}, {"attn_mask": MASK}, ~MASK),
    "bias": ({"use_attn_bias": True}, {"attn_bias": 2.0 * MASK}, 2.0 * MASK),
}


@pytest.mark.parametrize("case", SELF)
def test_a_sequence_to_itself(case, backend_name):
    options, given, mask = SELF[case]
    mask = None if mask is None else torch.tensor(mask)

    def by_hand(p, d, _):
        return {"output": multihead(p, d["query"], d["query"], d["query"], attn_mask=mask)}, None

    data = numbers(2, query=(N, L, WIDTH)) | given
    check(ml.MultiHeadAttention(HEADS, **options), by_hand, parameters(1), data, backend_name)


def test_another_sequence_of_other_widths(backend_name):
    def by_hand(p, d, _):
        return {"output": multihead(p, d["query"], d["key"], d["value"])}, None

    data = numbers(2, query=(N, L, WIDTH), key=(N, S, 4), value=(N, S, 6))
    model = ml.MultiHeadAttention(HEADS, WIDTH, use_key=True, use_value=True)
    params = parameters(1, key_width=4, value_width=6)
    check(model, by_hand, params, data, backend_name)


@pytest.mark.parametrize("op", ["ScaledDotProduct", "Attention"])
def test_queries_that_share_keys(op, backend_name):
    def by_hand(p, *_):
        out = F.scaled_dot_product_attention(**p, is_causal=True, enable_gqa=True)
        return {"output": out}, None

    shapes = {"query": (N, 6, L, 4), "key": (N, 2, L, 4), "value": (N, 2, L, 3)}
    model = getattr(ml, op)(is_causal=True, enable_gqa=True)
    options = {"trainable_keys": set(shapes)}
    check(model, by_hand, numbers(1, **shapes), {}, backend_name, shapes=shapes, **options)


# --- as Llama has it ------------------------------------------------------------------------------


def halves_turned(x, angles):
    """GPT-NeoX and Llama in transformers: x cos + rotate_half(x) sin."""
    angles = torch.cat([angles, angles], -1)
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


def pairs_turned(x, angles):
    """RoFormer, and Llama as Meta published it: pairs as complex numbers."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


@pytest.mark.parametrize(
    ("interleaved", "turned"), [(False, halves_turned), (True, pairs_turned)], ids=["llama", "meta"]
)
def test_rotated_queries_that_share_keys(interleaved, turned, backend_name):
    heads, kv_heads, size, theta = 4, 2, 6, 500.0

    def by_hand(p, d, _):
        x = d["query"]
        rates = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = torch.arange(L, dtype=torch.float64)[:, None] * rates
        q, k, v = (
            F.linear(x, p[f"w_{name}"]).unflatten(-1, (-1, size)).transpose(1, 2) for name in "qkv"
        )
        k, v = (y.repeat_interleave(heads // kv_heads, 1) for y in (turned(k, angles), v))
        mixed = F.scaled_dot_product_attention(turned(q, angles), k, v, is_causal=True)
        return {"output": F.linear(mixed.transpose(1, 2).flatten(-2), p["w_o"])}, None

    model = ml.MultiHeadAttention(
        heads,
        WIDTH,
        num_kv_heads=kv_heads,
        head_dim=size,
        use_bias=False,
        is_causal=True,
        rotary=ml.RotaryEmbedding(theta=theta, interleaved=interleaved),
    )
    wide, narrow = heads * size, kv_heads * size
    shapes = {"w_q": (wide, WIDTH), "w_k": (narrow, WIDTH), "w_v": (narrow, WIDTH)}
    params = numbers(1, **shapes, w_o=(WIDTH, wide))
    check(model, by_hand, params, numbers(2, query=(N, L, WIDTH)), backend_name)

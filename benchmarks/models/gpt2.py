"""A GPT-2-shaped language model (Radford et al. 2019, the 124M size), composed of ops."""

import mithril as ml
import numpy as np

LAYERS, WIDTH, HEADS, VOCABULARY, PLACES = 12, 768, 12, 50257, 1024


def attention(width: int, heads: int, cache_size: int | None = None) -> ml.Model:
    """Self-attention: one projection to queries, keys and values, split, joined again. With
    a cache, keys and values of earlier calls are kept as state."""
    model = ml.Model()
    model |= ml.Linear(3 * width, name="c_attn")(input="input", output="qkv")
    model |= ml.Split(3, axis=-1)(input="qkv", output="parts")
    shape = model.qkv.shape
    head = (shape[0], shape[1], heads, width // heads)
    for i, name in enumerate(("query", "key", "value")):
        by_head = model.parts[i].reshape(head)
        model |= ml.Transpose((0, 2, 1, 3))(input=by_head, output=name)
    if cache_size is None:
        model |= ml.ScaledDotProduct(is_causal=True)(
            query="query", key="key", value="value", output="mixed"
        )
    else:
        _attend_with_cache(model, cache_size)
    model |= ml.Transpose((0, 2, 1, 3))(input="mixed", output="by_place")
    joined = model.by_place.reshape((shape[0], shape[1], width))
    model |= ml.Linear(width, name="c_proj")(input=joined, output="output")
    model.expose_keys("output")
    return model


def _attend_with_cache(model: ml.Model, size: int) -> None:
    for name in ("key", "value"):
        model |= ml.UpdateCache()(
            cache=f"{name}_cache", input=name, offset="length", output=f"new_{name}_cache"
        )
    model |= ml.Attention(is_causal=True, offset=ml.TBD)(
        query="query", key="new_key_cache", value="new_value_cache", offset="length", output="mixed"
    )
    model |= ml.Add()(left="length", right=model.input.shape[1], output="new_length")
    model.set_types(length=ml.Tensor[int])
    model.set_shapes(length=[])
    for name in ("key", "value"):
        model.set_shapes(**{f"{name}_cache": [None, None, size, None]})
        model.bind_state_keys(f"{name}_cache", f"new_{name}_cache", 0.0)
    model.bind_state_keys("length", "new_length", 0)


def block(width: int, heads: int, name: str, cache_size: int | None = None) -> ml.Model:
    """Attention and two layers, both behind a norm and beside a way around."""
    model = ml.Model(name=name)
    model |= ml.LayerNorm(eps=1e-5, name="ln_1")(input="input", output="ln_1_out")
    model |= attention(width, heads, cache_size)(input="ln_1_out", output="attn_out")
    model |= ml.Add()(left="input", right="attn_out", output="middle")
    model |= ml.LayerNorm(eps=1e-5, name="ln_2")(input="middle")
    model += ml.Linear(4 * width, name="c_fc")
    model += ml.Gelu(approximate=True)
    model += ml.Linear(width, name="c_proj")(output="mlp_out")
    model |= ml.Add()(left="middle", right="mlp_out", output="output")
    model.expose_keys("output")
    return model


def gpt2(
    layers: int = LAYERS,
    width: int = WIDTH,
    heads: int = HEADS,
    vocabulary: int = VOCABULARY,
    places: int = PLACES,
    cache_size: int | None = None,
) -> ml.Model:
    """Token numbers [b, t] to logits [b, t, vocabulary]; the embedding is used twice."""
    model = ml.Model(name="gpt2")
    model |= ml.Embedding(vocabulary, width, name="wte")(
        input="tokens", weight="wte", output="token_vectors"
    )
    model |= ml.Embedding(places, width, name="wpe")(input="places", output="place_vectors")
    model |= ml.Add()(left="token_vectors", right="place_vectors", output="h_0")
    for i in range(layers):
        model |= block(width, heads, f"h_{i}", cache_size)(input=f"h_{i}", output=f"h_{i + 1}")
    model |= ml.LayerNorm(eps=1e-5, name="ln_f")(input=f"h_{layers}", output="last")
    model |= ml.Linear(vocabulary, use_bias=False, name="head")(
        input="last", weight="wte", output="logits"
    )
    model.expose_keys("logits")
    return model


def training(tokens: int, *sizes: int) -> ml.TrainModel:
    """The cost of the next tokens, `target` [tokens], of one sequence."""
    model = ml.Model()
    model |= gpt2(*sizes)(tokens="tokens", places="places", logits="logits")
    model |= ml.Reshape((tokens, sizes[3]))(input="logits", output="rows")
    model.expose_keys("rows")
    train = ml.TrainModel(model)
    train.add_loss(ml.CrossEntropy(input_type="logits"), input="rows", target="target")
    return train


# --- the same by hand -----------------------------------------------------------------------------


def weights(keys: list[str], shapes: dict[str, list[int]]) -> list[np.ndarray]:
    """Random values for the parameters of the mithril model, in the order of its inputs: those that
    keep values about 1, so that outputs tell one input from another."""
    rng = np.random.default_rng(0)
    values = []
    for key in keys:
        shape = shapes[key]
        scales = len(shape) == 1 and key.startswith("weight")  # of a norm
        fan_in = np.prod(shape[1:]) if len(shape) > 1 and shape[0] > 1 else 100
        value = rng.standard_normal(shape, dtype=np.float32) / np.float32(fan_in**0.5)
        values.append(value + 1 if scales else value)
    return values


def torch_block(
    width: int, heads: int, is_causal: bool = True, tanh: bool = True, eps: float = 1e-5
):
    """`block` as people write it in PyTorch; that of a ViT has other options."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1 = nn.LayerNorm(width, eps)
            self.c_attn = nn.Linear(width, 3 * width)
            self.c_proj = nn.Linear(width, width)
            self.ln_2 = nn.LayerNorm(width, eps)
            self.c_fc = nn.Linear(width, 4 * width)
            self.c_out = nn.Linear(4 * width, width)

        def forward(self, x, cache=None, at=0):
            b, t, _ = x.shape
            parts = self.c_attn(self.ln_1(x)).split(width, -1)
            q, k, v = (p.view(b, t, heads, width // heads).transpose(1, 2) for p in parts)
            if cache is not None:
                for kept, new in zip(cache, (k, v), strict=True):
                    kept[:, :, at : at + t] = new
                k, v = (kept[:, :, : at + t] for kept in cache)
            attend = nn.functional.scaled_dot_product_attention
            mixed = attend(q, k, v, is_causal=is_causal and t > 1)
            x = x + self.c_proj(mixed.transpose(1, 2).reshape(b, t, width))
            approximate = "tanh" if tanh else "none"
            hidden = nn.functional.gelu(self.c_fc(self.ln_2(x)), approximate=approximate)
            return x + self.c_out(hidden)

    return Block()


def torch_model(layers: int, width: int, heads: int, vocabulary: int, places: int):
    """As people write it in PyTorch; parameters come in the order of the mithril model's."""
    import torch
    from torch import nn

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(vocabulary, width)
            self.wpe = nn.Embedding(places, width)
            self.blocks = nn.ModuleList(torch_block(width, heads) for _ in range(layers))
            self.ln_f = nn.LayerNorm(width)

        def forward(self, tokens, caches=None, at=0):
            """With caches, a pair of [b, heads, places, width] for each block, the tokens are those
            from place `at` on; more than one of them only at the beginning."""
            places = torch.arange(at, at + tokens.shape[1], device=tokens.device)
            x = self.wte(tokens) + self.wpe(places)
            for i, block in enumerate(self.blocks):
                x = block(x, None if caches is None else caches[i], at)
            return nn.functional.linear(self.ln_f(x), self.wte.weight)

    return Gpt2()


def jax_forward(layers: int, heads: int):
    """A function of a flat list of parameters (in the order of the mithril model's) and tokens."""
    import jax
    import jax.numpy as jnp

    def norm(x, scale, shift):
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift

    def attend(x, w, b, w_out, b_out):
        batch, t, width = x.shape
        parts = jnp.split(x @ w.T + b, 3, -1)
        q, k, v = (p.reshape(batch, t, heads, width // heads).swapaxes(1, 2) for p in parts)
        scores = q @ k.swapaxes(2, 3) / (width // heads) ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
        mixed = jax.nn.softmax(scores, -1) @ v
        return mixed.swapaxes(1, 2).reshape(batch, t, width) @ w_out.T + b_out

    def forward(params, tokens):
        wte, wpe, *rest = params
        x = wte[tokens] + wpe[: tokens.shape[1]]
        for i in range(layers):
            own = rest[12 * i : 12 * i + 12]
            x = x + attend(norm(x, *own[:2]), *own[2:6])
            hidden = jax.nn.gelu(norm(x, *own[6:8]) @ own[8].T + own[9], approximate=True)
            x = x + hidden @ own[10].T + own[11]
        return norm(x, *rest[-2:]) @ wte.T

    return forward

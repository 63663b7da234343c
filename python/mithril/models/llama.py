"""Language models of Llama's form: `create_llama`."""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.checks import checked_size
from mithril.base.public import public
from mithril.logical.model import Model
from mithril.models._blocks import attend, chain, count_places, divides, finish, positive, residual


@public
def create_llama(
    dims: int,
    num_heads: int,
    num_kv_heads: int,
    num_layers: int,
    ffn_dim: int,
    vocab_size: int,
    *,
    head_dim: int | None = None,
    theta: float = 10000.0,
    eps: float = 1e-6,
    cache_size: int | None = None,
    name: str | None = None,
) -> Model:
    """A decoder of Llama's form (Touvron et al., arXiv:2302.13971): norms by root mean squares,
    rotated places, shared keys and gated layers, without biases.

    Parameters
    ----------
    dims : the width of what stands for a token
    num_heads, num_kv_heads : heads of queries, and of keys and values; the latter divide the former
    num_layers : the number of blocks
    ffn_dim : the width of the gated layers
    vocab_size : the number of tokens
    head_dim : size of a head; None: dims / num_heads
    theta : base of the angles of places
    eps : of the norms
    cache_size : room for the places of earlier calls, kept as state (see `generate`); None: each
        call begins at the first place

    Keys
    ----
    input : int [b, t], tokens
    output : float [b, t, vocab_size], logits of the tokens that follow

    With ``naming="path"`` parameters have the names of transformers' `LlamaForCausalLM`
    (``model.layers.0.self_attn.q_proj.weight``), so that `ml.formats.load_state_dict` reads its
    state dicts.

    Raises
    ------
    ArgumentError : a number that is none of a size, or one that does not divide another.

    >>> import mithril as ml
    >>> llama = ml.models.create_llama(8, 4, 2, 1, 16, vocab_size=11)
    >>> llama.set_shapes(input=["b", "t"])
    >>> llama.shapes["output"]
    ['b', 't', 11]
    """
    sizes = {"dims": dims, "num_heads": num_heads, "num_kv_heads": num_kv_heads,
             "num_layers": num_layers, "ffn_dim": ffn_dim, "vocab_size": vocab_size}  # fmt: skip
    optional = {"head_dim": head_dim, "cache_size": cache_size}
    sizes |= {key: value for key, value in optional.items() if value is not None}
    for key, value in sizes.items():
        checked_size(f"create_llama: {key}", value)
    theta, eps = positive("create_llama: theta", theta), positive("create_llama: eps", eps)
    if head_dim is None:
        divides("create_llama: num_heads", num_heads, "create_llama: dims", dims)
    divides("create_llama: num_kv_heads", num_kv_heads, "create_llama: num_heads", num_heads)
    heads = {"heads": num_heads, "kv_heads": num_kv_heads, "cache_size": cache_size,
             "rotary": models.RotaryEmbedding(theta=theta)}  # fmt: skip
    width = head_dim or dims // num_heads
    blocks = [_block(str(i), dims, width, ffn_dim, eps, heads) for i in range(num_layers)]
    head = models.Linear(vocab_size, use_bias=False, name="lm_head")
    model = chain([_body(blocks, dims, vocab_size, eps), head], name, ("offset",))
    if cache_size:
        count_places(model, "input")
    return model


def _body(blocks: list[Model], dims: int, vocab_size: int, eps: float) -> Model:
    embedding = models.Embedding(vocab_size, dims, name="embed_tokens")
    parts = [embedding, chain(blocks, "layers", ("offset",)), models.RMSNorm(eps=eps, name="norm")]
    return chain(parts, "model", ("offset",))


def _block(
    name: str, dims: int, head_dim: int, ffn_dim: int, eps: float, heads: dict[str, Any]
) -> Model:
    norms = ("input_layernorm", "post_attention_layernorm")
    parts = (_attention(dims, head_dim, heads), _gated(dims, ffn_dim))
    branches = [
        [models.RMSNorm(eps=eps, name=norm), part] for norm, part in zip(norms, parts, strict=True)
    ]
    return residual(name, branches, ("offset",))


def _attention(dims: int, head_dim: int, heads: dict[str, Any]) -> Model:
    model = Model(name="self_attn")
    for role, count in (("q", "heads"), ("k", "kv_heads"), ("v", "kv_heads")):
        projection = models.Linear(heads[count] * head_dim, use_bias=False, name=f"{role}_proj")
        model |= projection(input="input", output=role)
    joined = attend(model, model.q, model.k, model.v, is_causal=True, **heads)
    model |= models.Linear(dims, use_bias=False, name="o_proj")(input=joined, output="output")
    return finish(model, "output")


def _gated(dims: int, ffn_dim: int) -> Model:
    model = Model(name="mlp")
    for role in ("gate", "up"):
        wide = models.Linear(ffn_dim, use_bias=False, name=f"{role}_proj")
        model |= wide(input="input", output=role)
    product = models.Silu()(model.gate) * model.up
    model |= models.Linear(dims, use_bias=False, name="down_proj")(input=product, output="output")
    return finish(model, "output")


__all__ = ["create_llama"]

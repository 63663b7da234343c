"""Language models of GPT-2's form: `create_gpt`."""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.checks import checked_flag, checked_size
from mithril.base.public import public
from mithril.logical.model import Model
from mithril.models._blocks import attend, chain, count_places, divides, finish, residual, wires_of


@public
def create_gpt(
    bias: bool,
    block_size: int,
    dims: int,
    num_heads: int,
    num_layers: int,
    vocab_size: int,
    *,
    cache_size: int | None = None,
    name: str | None = None,
) -> Model:
    """A decoder of GPT-2's form (Radford et al. 2019), with GELU by tanh.

    Parameters
    ----------
    bias : whether linear layers and norms have one
    block_size : the number of places that have an embedding
    dims : the width of what stands for a token
    num_heads : heads of the attention of each block; they divide dims
    num_layers : the number of blocks
    vocab_size : the number of tokens
    cache_size : room for the places of earlier calls, kept as state (see `generate`); None: each
        call begins at the first place

    Keys
    ----
    input : int [b, t], tokens
    output : float [b, t, vocab_size], logits of the tokens that follow

    With ``naming="path"`` parameters have the names of transformers' `GPT2LMHeadModel`
    (``transformer.h.0.attn.c_attn.weight``), which stores four kinds of matrices with their axes
    the other way around: give `ml.formats.load_state_dict` ``transposed=TRANSPOSED`` of this
    module. The head has a weight of its own.

    Raises
    ------
    ArgumentError : a number that is none of a size, or num_heads that do not divide dims.

    >>> import mithril as ml
    >>> gpt = ml.models.create_gpt(True, 16, 8, 2, 1, vocab_size=11)
    >>> gpt.set_shapes(input=["b", "t"])
    >>> gpt.shapes["output"]
    ['b', 't', 11]
    """
    sizes = {"block_size": block_size, "dims": dims, "num_heads": num_heads,
             "num_layers": num_layers, "vocab_size": vocab_size}  # fmt: skip
    for key, value in sizes.items():
        checked_size(f"create_gpt: {key}", value)
    if cache_size is not None:
        checked_size("create_gpt: cache_size", cache_size)
    bias = checked_flag("create_gpt: bias", bias)
    divides("create_gpt: num_heads", num_heads, "create_gpt: dims", dims)
    blocks = [_block(str(i), dims, num_heads, bias, cache_size) for i in range(num_layers)]
    body = _body(blocks, block_size, dims, vocab_size, bias, cache_size)
    head = models.Linear(vocab_size, use_bias=False, name="lm_head")
    model = chain([body, head], name, ("offset",))
    if cache_size:
        count_places(model, "input")
    return model


TRANSPOSED = ("*.c_attn.weight", "*.c_proj.weight", "*.c_fc.weight")


def _body(
    blocks: list[Model], block_size: int, dims: int, vocab_size: int, bias: bool,
    cache_size: int | None,
) -> Model:  # fmt: skip
    model = Model(name="transformer")
    model |= models.Embedding(vocab_size, dims, name="wte")(input="input", output="tokens")
    places: Any = models.Arange()(stop=model.input.shape[1])
    if cache_size:
        places = places + models.IOKey("offset", type=models.Tensor[int], shape=[])
    model |= models.Embedding(block_size, dims, name="wpe")(input=places, output="places")
    model |= models.Add()(left="tokens", right="places", output="placed")
    stack = chain(blocks, "h", ("offset",))
    model |= stack.connect(input="placed", output="seen", **wires_of(stack, ("offset",)))
    model |= models.LayerNorm(use_bias=bias, eps=1e-5, name="ln_f")(input="seen", output="output")
    return finish(model, "output")


def _block(name: str, dims: int, heads: int, bias: bool, cache_size: int | None) -> Model:
    norms = (models.LayerNorm(use_bias=bias, eps=1e-5, name=f"ln_{i}") for i in (1, 2))
    parts = (_attention(dims, heads, bias, cache_size), _mlp(dims, bias))
    return residual(name, list(zip(norms, parts, strict=True)), ("offset",))


def _attention(dims: int, heads: int, bias: bool, cache_size: int | None) -> Model:
    model = Model(name="attn")
    model |= models.Linear(3 * dims, use_bias=bias, name="c_attn")(input="input", output="packed")
    q, k, v = (model.packed[..., i * dims : (i + 1) * dims] for i in range(3))
    joined = attend(model, q, k, v, heads, is_causal=True, cache_size=cache_size)
    model |= models.Linear(dims, use_bias=bias, name="c_proj")(input=joined, output="output")
    return finish(model, "output")


def _mlp(dims: int, bias: bool) -> Model:
    wide = models.Linear(4 * dims, use_bias=bias, name="c_fc")
    return chain(
        [wide, models.Gelu(approximate=True), models.Linear(dims, use_bias=bias, name="c_proj")],
        "mlp",
    )


__all__ = ["TRANSPOSED", "create_gpt"]

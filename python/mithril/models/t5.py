"""Encoders and decoders of T5's form: `t5_encode`, `t5_decode`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from mithril import models
from mithril.base.checks import checked_size
from mithril.base.public import public
from mithril.errors import KeyNotFound, OptionError, shown
from mithril.logical.model import IOKey, Model
from mithril.models._blocks import attend, chain, count_places, finish, residual, wires_of

if TYPE_CHECKING:
    import numpy as np

# By the names of the configurations of transformers.
T5_CONFIGS: dict[str, dict[str, Any]] = {
    "t5-small": {"d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "t5-base": {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    "t5-large": {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
}
_SHARED = ("position_bias", "memory", "offset")


@public
def t5_encode(config: Any, *, name: str | None = None) -> Model:
    """The encoder of T5 (Raffel et al., arXiv:1910.10683).

    Parameters
    ----------
    config : a dictionary, or an object with attributes, of transformers' names: d_model, d_ff,
        num_layers and num_heads; and where they differ from T5's, d_kv (64), vocab_size (32128),
        num_decoder_layers (num_layers), relative_attention_num_buckets (32),
        relative_attention_max_distance (128), layer_norm_epsilon (1e-6), feed_forward_proj ("relu",
        or "gated-gelu"), tie_word_embeddings (True; the decoder then scales what its head takes).
        `T5_CONFIGS["t5-small"]` is one.

    Keys
    ----
    input : int [b, s], tokens
    output : float [b, s, d_model], the memory of the decoder

    With ``naming="path"`` parameters have the names of transformers' `T5ForConditionalGeneration`;
    `ml.formats.load_state_dict` with ``strict=False`` takes the encoder's of its state dicts.

    Raises
    ------
    KeyNotFound : the configuration lacks an entry.
    ArgumentError, OptionError : an entry that is no size, or no kind of layer that is known.

    >>> import mithril as ml
    >>> config = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    >>> encoder = ml.models.t5_encode(config)
    >>> encoder.set_shapes(input=["b", "s"])
    >>> encoder.shapes["output"]
    ['b', 's', 8]
    """
    sizes = _read("t5_encode", config)
    parts = [_embedding(sizes), _stack(sizes, None, is_decoder=False)]
    return chain(parts, name)


@public
def t5_decode(config: Any, *, cache_size: int | None = None, name: str | None = None) -> Model:
    """The decoder of T5 with its head.

    Parameters
    ----------
    config : as of `t5_encode`
    cache_size : room for the places of earlier calls, kept as state (see `generate`); None: each
        call begins at the first place

    Keys
    ----
    input : int [b, t], tokens
    memory : float [b, s, d_model], what the encoder gave
    output : float [b, t, vocab_size], logits of the tokens that follow

    Raises
    ------
    KeyNotFound, ArgumentError, OptionError : as `t5_encode`.

    >>> import mithril as ml
    >>> config = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    >>> decoder = ml.models.t5_decode(config)
    >>> decoder.set_shapes(input=["b", "t"], memory=["b", "s", 8])
    >>> decoder.shapes["output"]
    ['b', 't', 32128]
    """
    sizes = _read("t5_decode", config)
    if cache_size is not None:
        checked_size("t5_decode: cache_size", cache_size)
    parts = [_embedding(sizes), _stack(sizes, cache_size, is_decoder=True)]
    if sizes.scales:
        parts.append(_scaled(sizes.d_model**-0.5))
    parts.append(models.Linear(sizes.vocab_size, use_bias=False, name="lm_head"))
    model = chain(parts, name, _SHARED)
    if cache_size:
        count_places(model, "input")
    return model


@dataclass(frozen=True)
class _Sizes:
    d_model: int
    d_ff: int
    num_layers: int
    num_heads: int
    d_kv: int = 64
    vocab_size: int = 32128
    num_decoder_layers: int | None = None
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str = "relu"
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None  # what newer configurations say instead

    @property
    def scales(self) -> bool:
        scales = self.scale_decoder_outputs
        return self.tie_word_embeddings if scales is None else scales


def _read(what: str, config: Any) -> _Sizes:
    entries = config if isinstance(config, Mapping) else _attributes(config)
    given = {f.name: entries[f.name] for f in fields(_Sizes) if f.name in entries}
    missing = [key for key in ("d_model", "d_ff", "num_layers", "num_heads") if key not in given]
    if missing:
        raise KeyNotFound(f"{what}: config has no entry {missing[0]!r}, got {shown(config)}")
    sizes = _Sizes(**given)
    for field in fields(_Sizes):
        value = getattr(sizes, field.name)
        if field.type == "int" or (field.type == "int | None" and value is not None):
            checked_size(f"{what}: {field.name}", value)
    if sizes.feed_forward_proj not in ("relu", "gated-gelu"):
        raise OptionError(
            f'{what}: feed_forward_proj requires "relu" or "gated-gelu", got'
            f" {shown(sizes.feed_forward_proj)}"
        )
    return sizes


def _attributes(config: Any) -> dict[str, Any]:
    names = (field.name for field in fields(_Sizes))
    return {name: getattr(config, name) for name in names if hasattr(config, name)}


def _embedding(sizes: _Sizes) -> Model:
    return models.Embedding(sizes.vocab_size, sizes.d_model, name="shared")


def _scaled(factor: float) -> Model:
    model = Model()
    model |= models.Multiply()(left="input", right=factor, output="output")
    return finish(model, "output")


def _norm(sizes: _Sizes, name: str) -> Model:
    return models.RMSNorm(eps=sizes.layer_norm_epsilon, name=name)


def _stack(sizes: _Sizes, cache_size: int | None, is_decoder: bool) -> Model:
    model = Model(name="decoder" if is_decoder else "encoder")
    count = sizes.num_decoder_layers if is_decoder else None
    blocks = chain(
        [_block(str(i), sizes, cache_size, is_decoder) for i in range(count or sizes.num_layers)],
        "block",
        _SHARED,
    )
    _add_position_bias(model, sizes, cache_size, is_decoder)
    shared = wires_of(blocks, _SHARED)
    model |= blocks.connect(input="input", output="seen", **shared)
    model |= _norm(sizes, "final_layer_norm")(input="seen", output="output")
    return finish(model, "output")


def _block(name: str, sizes: _Sizes, cache_size: int | None, is_decoder: bool) -> Model:
    parts = [_attention("SelfAttention", sizes, is_decoder, cache_size)]
    if is_decoder:
        parts.append(_attention("EncDecAttention", sizes))
    parts.append(_feed_forward(sizes))
    layers = [
        residual(str(i), [[_norm(sizes, "layer_norm"), part]], _SHARED)
        for i, part in enumerate(parts)
    ]
    return chain([chain(layers, "layer", _SHARED)], name, _SHARED)


def _attention(
    name: str, sizes: _Sizes, is_causal: bool = False, cache_size: int | None = None
) -> Model:
    """Attention without a scale: of a sequence to itself, or to the memory."""
    model = Model(name=name)
    is_own = name == "SelfAttention"
    for role in "qkv":
        source = "input" if role == "q" or is_own else "memory"
        projection = models.Linear(sizes.num_heads * sizes.d_kv, use_bias=False, name=role)
        model |= projection(input=source, output=f"{role}_wide")
    joined = attend(
        model,
        model.q_wide,
        model.k_wide,
        model.v_wide,
        heads=sizes.num_heads,
        is_causal=is_causal,
        scale=1.0,
        bias=IOKey("position_bias") if is_own else None,
        cache_size=cache_size,
    )
    model |= models.Linear(sizes.d_model, use_bias=False, name="o")(input=joined, output="output")
    return finish(model, "output")


def _feed_forward(sizes: _Sizes) -> Model:
    narrow = models.Linear(sizes.d_model, use_bias=False, name="wo")
    if sizes.feed_forward_proj == "relu":
        wide = models.Linear(sizes.d_ff, use_bias=False, name="wi")
        return chain([wide, models.Relu(), narrow], "DenseReluDense")
    model = Model(name="DenseReluDense")
    for i in (0, 1):
        wide = models.Linear(sizes.d_ff, use_bias=False, name=f"wi_{i}")
        model |= wide(input="input", output=f"wide_{i}")
    product = models.Gelu(approximate=True)(model.wide_0) * model.wide_1
    model |= narrow(input=product, output="output")
    return finish(model, "output")


def _add_position_bias(
    model: Model, sizes: _Sizes, cache_size: int | None, is_decoder: bool
) -> None:
    """Adds what a head's scores get for the distance of a key from its query, [heads, t, s].

    The weight is a part of the first block's attention in transformers, hence the name.
    """
    most = sizes.relative_attention_max_distance
    table = buckets(most, sizes.relative_attention_num_buckets, is_both_ways=not is_decoder)
    length = IOKey("input").shape[1]
    queries: Any = models.Arange()(stop=length)
    keys: Any = models.Arange()(stop=cache_size or length)
    if cache_size:
        queries = queries + IOKey("offset", type=models.Tensor[int], shape=[])
    distances = (keys[None, :] - queries[:, None]).clamp(-most, most)
    rows = IOKey(value=models.Tensor(table))[distances + most]
    weights = models.Embedding(
        sizes.relative_attention_num_buckets,
        sizes.num_heads,
        name="block.0.layer.0.SelfAttention.relative_attention_bias",
    )
    model |= models.Transpose((2, 0, 1))(input=weights(rows), output="position_bias")


def buckets(most: int, count: int, is_both_ways: bool) -> np.ndarray:
    """The bucket of each distance from -most to most of a key from its query, int32.

    Half of a direction's buckets are for one distance each, half for ranges that grow by a factor
    up to `most`, from which on all are in the last one. Where a decoder's key comes after its
    query, the bucket is that of distance 0.
    """
    import numpy as np

    distances = np.arange(-most, most + 1)
    behind = np.abs(distances) if is_both_ways else np.maximum(-distances, 0)
    count = count // 2 if is_both_ways else count
    exact = count // 2
    # In float32, as the weights were learned: it decides at the borders of ranges.
    growth = np.log(np.maximum(behind, 1).astype(np.float32) / np.float32(exact))
    steps = growth / np.float32(np.log(most / exact)) * np.float32(count - exact)
    far = np.minimum(exact + steps.astype(np.int64), count - 1)
    found = np.where(behind < exact, behind, far)
    found = found + count * (distances > 0) if is_both_ways else found
    return found.astype(np.int32)


__all__ = ["T5_CONFIGS", "buckets", "t5_decode", "t5_encode"]

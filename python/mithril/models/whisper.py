"""Models of Whisper's form, from sound to text: `whisper_model` and its halves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mithril import models
from mithril.base.checks import checked_size
from mithril.base.public import public
from mithril.logical.model import IOKey, Model
from mithril.models._blocks import (
    attend,
    chain,
    count_places,
    divides,
    finish,
    positive,
    residual,
    wires_of,
)

_SHARED = ("memory", "offset")


@public
def whisper_model(
    num_layers: int,
    input_dim: int,
    num_heads: int,
    ffn_dim: int,
    eps: float = 1e-5,
    *,
    vocab_size: int = 51865,
    num_mel_bins: int = 80,
    max_source_positions: int = 1500,
    max_target_positions: int = 448,
    name: str | None = None,
) -> Model:
    """An encoder of sound and a decoder of text (Radford et al., arXiv:2212.04356).

    Parameters
    ----------
    num_layers : the number of blocks of each half
    input_dim : the width of what stands for a place
    num_heads : heads of each attention; they divide input_dim
    ffn_dim : the width between the two layers behind the attention
    eps : of the norms
    vocab_size : the number of tokens
    num_mel_bins : bands of the spectrogram
    max_source_positions : places of the encoder, each of two frames of the spectrogram
    max_target_positions : places of the decoder that have an embedding

    Keys
    ----
    input_features : float [b, num_mel_bins, 2 · max_source_positions], a logarithmic spectrogram
    input : int [b, t], tokens
    output : float [b, t, vocab_size], logits of the tokens that follow

    With ``naming="path"`` parameters have the names of transformers'
    `WhisperForConditionalGeneration`; `ml.formats.load_state_dict` reads its state dicts.

    Raises
    ------
    ArgumentError : a number that is none of a size, or num_heads that do not divide input_dim.

    >>> import mithril as ml
    >>> model = ml.models.whisper_model(1, 8, 2, 16, vocab_size=11, num_mel_bins=4,
    ...                                 max_source_positions=5, max_target_positions=6)
    >>> model.set_shapes(input_features=["b", 4, 10], input=["b", "t"])
    >>> model.shapes["output"]
    ['b', 't', 11]
    """
    sizes = _Sizes("whisper_model", num_layers, input_dim, num_heads, ffn_dim, eps, vocab_size,
                   num_mel_bins, max_source_positions, max_target_positions)  # fmt: skip
    halves = Model(name="model")
    halves |= _encoder(sizes)(input="input_features", output="memory")
    halves |= _decoder(sizes)(input="input", memory="memory", output="output")
    finish(halves, "output")
    model = Model(name=name)
    model |= halves(input_features="input_features", input="input", output="hidden")
    model |= _head(sizes)(input="hidden", output="output")
    return finish(model, "output")


@public
def whisper_encoder(
    num_layers: int,
    input_dim: int,
    num_heads: int,
    ffn_dim: int,
    eps: float = 1e-5,
    *,
    num_mel_bins: int = 80,
    max_source_positions: int = 1500,
    name: str | None = None,
) -> Model:
    """The encoder of `whisper_model`, with the arguments that it has there.

    Keys
    ----
    input : float [b, num_mel_bins, 2 · max_source_positions], a logarithmic spectrogram
    output : float [b, max_source_positions, input_dim], the memory of the decoder

    Raises
    ------
    ArgumentError : a number that is none of a size, or num_heads that do not divide input_dim.

    >>> import mithril as ml
    >>> encoder = ml.models.whisper_encoder(1, 8, 2, 16, num_mel_bins=4, max_source_positions=5)
    >>> encoder.set_shapes(input=["b", 4, 10])
    >>> encoder.shapes["output"]
    ['b', 5, 8]
    """
    own = {"num_mel_bins": num_mel_bins, "max_source_positions": max_source_positions}
    sizes = _Sizes("whisper_encoder", num_layers, input_dim, num_heads, ffn_dim, eps, **own)
    return chain([chain([_encoder(sizes)], "model")], name)


@public
def whisper_decoder(
    num_layers: int,
    input_dim: int,
    num_heads: int,
    ffn_dim: int,
    eps: float = 1e-5,
    *,
    vocab_size: int = 51865,
    max_target_positions: int = 448,
    cache_size: int | None = None,
    name: str | None = None,
) -> Model:
    """The decoder of `whisper_model` with its head, with the arguments that it has there.

    `cache_size` is room for the places of earlier calls, kept as state (see `generate`).

    Keys
    ----
    input : int [b, t], tokens
    memory : float [b, s, input_dim], what the encoder gave
    output : float [b, t, vocab_size], logits of the tokens that follow

    Raises
    ------
    ArgumentError : a number that is none of a size, or num_heads that do not divide input_dim.

    >>> import mithril as ml
    >>> decoder = ml.models.whisper_decoder(1, 8, 2, 16, vocab_size=11, max_target_positions=6)
    >>> decoder.set_shapes(input=["b", "t"], memory=["b", "s", 8])
    >>> decoder.shapes["output"]
    ['b', 't', 11]
    """
    sizes = _Sizes("whisper_decoder", num_layers, input_dim, num_heads, ffn_dim, eps, vocab_size,
                   max_target_positions=max_target_positions)  # fmt: skip
    if cache_size is not None:
        checked_size("whisper_decoder: cache_size", cache_size)
    body = chain([_decoder(sizes, cache_size)], "model", _SHARED)
    model = chain([body, _head(sizes)], name, _SHARED)
    if cache_size:
        count_places(model, "input")
    return model


@dataclass(frozen=True)
class _Sizes:
    what: str
    num_layers: int
    input_dim: int
    num_heads: int
    ffn_dim: int
    eps: float
    vocab_size: int = 1
    num_mel_bins: int = 1
    max_source_positions: int = 1
    max_target_positions: int = 1

    def __post_init__(self) -> None:
        for key in ("num_layers", "ffn_dim", "vocab_size", "num_mel_bins", "max_source_positions",
                    "max_target_positions"):  # fmt: skip
            checked_size(f"{self.what}: {key}", getattr(self, key))
        divides(
            f"{self.what}: num_heads", self.num_heads, f"{self.what}: input_dim", self.input_dim
        )
        positive(f"{self.what}: eps", self.eps)


def _norm(sizes: _Sizes, name: str) -> Model:
    return models.LayerNorm(eps=sizes.eps, name=name)


def _head(sizes: _Sizes) -> Model:
    return models.Linear(sizes.vocab_size, use_bias=False, name="proj_out")


def _encoder(sizes: _Sizes) -> Model:
    model = Model(name="encoder")
    wire = "input"
    for i, stride in ((1, 1), (2, 2)):
        convolution = models.Convolution1D(
            kernel_size=3, out_channels=sizes.input_dim, stride=stride, padding=1, name=f"conv{i}"
        )
        model |= convolution(input=wire, output=f"conv{i}_out")
        wire = f"gelu{i}_out"
        model |= models.Gelu()(input=f"conv{i}_out", output=wire)
    places = models.Arange()(stop=sizes.max_source_positions)
    positions = models.Embedding(
        sizes.max_source_positions, sizes.input_dim, name="embed_positions"
    )
    model |= positions(input=places, output="positions")
    frames = models.Transpose((0, 2, 1))(model.gelu2_out)
    model |= models.Add()(left=frames, right="positions", output="placed")
    blocks = [_block(str(i), sizes) for i in range(sizes.num_layers)]
    model |= chain(blocks, "layers")(input="placed", output="seen")
    model |= _norm(sizes, "layer_norm")(input="seen", output="output")
    model.set_shapes(input=[None, sizes.num_mel_bins, 2 * sizes.max_source_positions])
    return finish(model, "output")


def _decoder(sizes: _Sizes, cache_size: int | None = None) -> Model:
    model = Model(name="decoder")
    words = models.Embedding(sizes.vocab_size, sizes.input_dim, name="embed_tokens")
    model |= words(input="input", output="words")
    places: Any = models.Arange()(stop=model.input.shape[1])
    if cache_size:
        places = places + IOKey("offset", type=models.Tensor[int], shape=[])
    positions = models.Embedding(
        sizes.max_target_positions, sizes.input_dim, name="embed_positions"
    )
    model |= positions(input=places, output="positions")
    model |= models.Add()(left="words", right="positions", output="placed")
    blocks = [_block(str(i), sizes, True, cache_size) for i in range(sizes.num_layers)]
    stack = chain(blocks, "layers", _SHARED)
    model |= stack.connect(input="placed", output="seen", **wires_of(stack, _SHARED))
    model |= _norm(sizes, "layer_norm")(input="seen", output="output")
    return finish(model, "output")


def _block(
    name: str, sizes: _Sizes, is_decoder: bool = False, cache_size: int | None = None
) -> Model:
    own = _attention("self_attn", sizes, "input", is_decoder, cache_size)
    branches = [[_norm(sizes, "self_attn_layer_norm"), own]]
    if is_decoder:
        norm = _norm(sizes, "encoder_attn_layer_norm")
        branches.append([norm, _attention("encoder_attn", sizes, "memory")])
    wide, narrow = (
        models.Linear(width, name=f"fc{i}")
        for i, width in ((1, sizes.ffn_dim), (2, sizes.input_dim))
    )
    branches.append([_norm(sizes, "final_layer_norm"), wide, models.Gelu(), narrow])
    return residual(name, branches, _SHARED)


def _attention(
    name: str, sizes: _Sizes, source: str, is_causal: bool = False, cache_size: int | None = None
) -> Model:
    """Attention of a sequence to itself or to the memory; keys have no bias."""
    model = Model(name=name)
    for role in "qkv":
        projection = models.Linear(sizes.input_dim, use_bias=role != "k", name=f"{role}_proj")
        model |= projection(input="input" if role == "q" else source, output=f"{role}_wide")
    joined = attend(
        model,
        model.q_wide,
        model.k_wide,
        model.v_wide,
        heads=sizes.num_heads,
        is_causal=is_causal,
        cache_size=cache_size,
    )
    model |= models.Linear(sizes.input_dim, name="out_proj")(input=joined, output="output")
    return finish(model, "output")


__all__ = ["whisper_decoder", "whisper_encoder", "whisper_model"]

"""CLIP, images and texts in one space: `clip`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mithril import models
from mithril.base.checks import checked_list, checked_size
from mithril.base.public import public
from mithril.errors import ArgumentError
from mithril.logical.model import IOKey, Model
from mithril.models._blocks import append, attend, chain, divides, finish, residual
from mithril.models.vision_transformer import packed_attention

_WHAT = "clip"


@public
def clip(
    embed_dim: int,
    image_resolution: int,
    vision_layers: int | Iterable[int],
    vision_width: int,
    vision_patch_size: int | None,
    context_length: int,
    vocab_size: int,
    transformer_width: int,
    transformer_heads: int,
    transformer_layers: int,
    *,
    name: str | None = None,
) -> Model:
    """Likenesses of images and texts (Radford et al., arXiv:2103.00020).

    Parameters
    ----------
    embed_dim : the width of the space that both are projected to
    image_resolution : side of the images; a multiple of 32, or of the size of patches
    vision_layers : the number of blocks of each stage of a residual network, or of a transformer
    vision_width : channels of the first stage, or the width of the transformer; a multiple of 64
        there, of 2 here
    vision_patch_size : side of the patches of a transformer; not read for a residual network
    context_length : the number of places of a text
    vocab_size : the number of tokens; the text ends at the greatest token that it has
    transformer_width, transformer_heads, transformer_layers : of the transformer of texts

    Keys
    ----
    image : float [n, 3, image_resolution, image_resolution]
    text : int [m, context_length], tokens
    logits_per_image : float [n, m], cosines times exp(logit_scale)
    logits_per_text : float [m, n]

    With ``naming="path"`` parameters have the names of OpenAI's state dicts
    (``visual.layer1.0.conv1.weight``), which `ml.formats.load_state_dict` reads.

    Raises
    ------
    ArgumentError : a number that is none of a size, or one that does not divide another.

    >>> import mithril as ml
    >>> model = ml.models.clip(4, 8, 1, 64, 4, 5, 11, 6, 2, 1)
    >>> model.set_shapes(image=["n", 3, 8, 8], text=["m", 5])
    >>> model.shapes["logits_per_image"]
    ['n', 'm']
    """
    sizes = {"embed_dim": embed_dim, "context_length": context_length, "vocab_size": vocab_size,
             "transformer_layers": transformer_layers}  # fmt: skip
    for key, value in sizes.items():
        checked_size(f"{_WHAT}: {key}", value)
    divides(f"{_WHAT}: transformer_heads", transformer_heads, f"{_WHAT}: transformer_width",
            transformer_width)  # fmt: skip
    if isinstance(vision_layers, int):
        visual = _vision_transformer(
            image_resolution, vision_patch_size, vision_width, vision_layers, embed_dim
        )
    else:
        visual = _residual_network(image_resolution, vision_layers, vision_width, embed_dim)
    model = Model(name=name)
    model |= visual(input="image", output="image_features")
    _add_text(
        model, embed_dim, context_length, vocab_size, transformer_width, transformer_heads,
        transformer_layers,
    )  # fmt: skip
    _compare(model)
    model.set_shapes(
        image=[None, 3, image_resolution, image_resolution], text=[None, context_length]
    )
    model.expose_keys("logits_per_image", "logits_per_text")
    return model


def _multiple(key: str, value: Any, of: int) -> int:
    if checked_size(f"{_WHAT}: {key}", value) % of:
        raise ArgumentError(f"{_WHAT}: {key} must be a multiple of {of}, got {value}")
    return int(value)


def _compare(model: Model) -> None:
    scale = IOKey("logit_scale", shape=[], differentiable=True)
    image, text = (_unit(wire) for wire in (model.image_features, model.text_features))
    model |= models.Multiply()(left=scale.exp(), right=image @ text.T, output="logits_per_image")
    model |= models.Transpose()(input="logits_per_image", output="logits_per_text")


def _unit(vectors: Any) -> Any:
    return vectors / (vectors**2).sum(axis=-1, keepdim=True).sqrt()


# --- texts ----------------------------------------------------------------------------------------


def _add_text(
    model: Model, embed_dim: int, places: int, vocab_size: int, width: int, heads: int, layers: int
) -> None:
    """Adds the transformer of texts, read off where the greatest token stands."""
    embedding = models.Embedding(vocab_size, width, name="token_embedding")
    model |= embedding(input="text", output="words")
    positions = IOKey("positional_embedding", shape=[places, width], differentiable=True)
    model |= models.Add()(left="words", right=positions, output="placed")
    model |= _transformer(width, heads, layers, is_causal=True)(input="placed", output="read")
    model |= models.LayerNorm(eps=1e-5, name="ln_final")(input="read", output="normed")
    end = models.ArgMax(axis=-1, keepdim=True)(model.text)
    is_end = models.Arange()(stop=places)[None, :].eq(end)
    last = models.Where()(is_end[:, :, None], model.normed, 0.0).sum(axis=1)
    projection = IOKey("text_projection", shape=[width, embed_dim], differentiable=True)
    model |= models.MatrixMultiply()(left=last, right=projection, output="text_features")


def _transformer(width: int, heads: int, layers: int, is_causal: bool = False) -> Model:
    blocks = [_block(str(i), width, heads, is_causal) for i in range(layers)]
    return chain([chain(blocks, "resblocks")], "transformer")


def _block(name: str, width: int, heads: int, is_causal: bool) -> Model:
    norms = (models.LayerNorm(eps=1e-5, name=f"ln_{i}") for i in (1, 2))
    parts = (packed_attention(width, heads, "attn", is_causal), _mlp(width))
    return residual(name, list(zip(norms, parts, strict=True)))


def _mlp(width: int) -> Model:
    wide = models.Linear(4 * width, name="c_fc")
    return chain([wide, _quick_gelu(), models.Linear(width, name="c_proj")], "mlp")


def _quick_gelu() -> Model:
    """x sigmoid(1.702 x) (Hendrycks and Gimpel, arXiv:1606.08415, section 2)."""
    model = Model()
    x = IOKey("input")
    model |= models.Multiply()(left=x, right=models.Sigmoid()(1.702 * x), output="output")
    return finish(model, "output")


# --- images by a transformer ----------------------------------------------------------------------


def _vision_transformer(
    resolution: int, patch_size: int | None, width: int, layers: int, embed_dim: int
) -> Model:
    checked_size(f"{_WHAT}: vision_layers", layers)
    patch = divides(
        f"{_WHAT}: vision_patch_size", patch_size, f"{_WHAT}: image_resolution", resolution
    )
    heads = _multiple("vision_width", width, 64) // 64
    patches = (resolution // patch) ** 2
    model = Model(name="visual")
    convolution = models.Convolution2D(
        kernel_size=patch, out_channels=width, stride=patch, use_bias=False, name="conv1"
    )
    model |= convolution(input="input", output="grid")
    batch = model.grid.shape[0]
    vectors = models.Transpose((0, 2, 1))(model.grid.reshape((batch, width, patches)))
    token = IOKey("class_embedding", shape=[width], differentiable=True)
    tokens = models.BroadcastTo()(input=token, shape=(batch, 1, width))
    model |= models.Concat(axis=1)(input=[tokens, vectors], output="sequence")
    places = IOKey("positional_embedding", shape=[patches + 1, width], differentiable=True)
    model |= models.LayerNorm(eps=1e-5, name="ln_pre")(
        input=model.sequence + places, output="placed"
    )
    model |= _transformer(width, heads, layers)(input="placed", output="seen")
    model |= models.LayerNorm(eps=1e-5, name="ln_post")(input=model.seen[:, 0], output="first")
    projection = IOKey("proj", shape=[width, embed_dim], differentiable=True)
    model |= models.MatrixMultiply()(left="first", right=projection, output="output")
    return finish(model, "output")


# --- images by a residual network -----------------------------------------------------------------


def _residual_network(resolution: int, layers: Iterable[int], width: int, embed_dim: int) -> Model:
    """A residual network with three convolutions at its beginning, averages where it strides, and
    attention instead of a mean at its end."""
    counts = checked_list(f"{_WHAT}: vision_layers", layers, "a number or four numbers")
    counts = [checked_size(f"{_WHAT}: vision_layers", count) for count in counts]
    if len(counts) != 4:
        raise ArgumentError(f"{_WHAT}: vision_layers requires four numbers, got {len(counts)}")
    _multiple("image_resolution", resolution, 32)
    _multiple("vision_width", width, 2)
    model = Model(name="visual")
    append(model, _stem(width), "input", "stem")
    wire, before = "stem", width
    for i, count in enumerate(counts):
        filters = width * 2**i
        blocks = [_bottleneck("0", before, filters, 1 if i == 0 else 2)]
        blocks += [_bottleneck(str(j), 4 * filters, filters, 1) for j in range(1, count)]
        model |= chain(blocks, f"layer{i + 1}")(input=wire, output=f"stage_{i + 1}")
        wire, before = f"stage_{i + 1}", 4 * filters
    places = (resolution // 32) ** 2
    pool = _attention_pool(places, before, before // 64, embed_dim)
    model |= pool(input=wire, output="output")
    return finish(model, "output")


def _convolution(filters: int, size: int, stride: int, name: str) -> Model:
    return models.Convolution2D(
        kernel_size=size, out_channels=filters, stride=stride, padding=size // 2, use_bias=False,
        name=name,
    )  # fmt: skip


def _norm(name: str) -> Model:
    return models.BatchNorm2D(mode=None, name=name)


def _stem(width: int) -> list[Model]:
    parts: list[Model] = []
    for i, (filters, stride) in enumerate(((width // 2, 2), (width // 2, 1), (width, 1)), 1):
        parts += [_convolution(filters, 3, stride, f"conv{i}"), _norm(f"bn{i}"), models.Relu()]
    return [*parts, models.AvgPool2D(kernel_size=2)]


def _bottleneck(name: str, before: int, filters: int, stride: int) -> Model:
    wide = 4 * filters
    parts: list[Model] = [_convolution(filters, 1, 1, "conv1"), _norm("bn1"), models.Relu()]
    parts += [_convolution(filters, 3, 1, "conv2"), _norm("bn2"), models.Relu()]
    parts += [models.AvgPool2D(kernel_size=stride)] if stride > 1 else []
    parts += [_convolution(wide, 1, 1, "conv3"), _norm("bn3")]
    around: list[Model] = [models.AvgPool2D(kernel_size=stride)] if stride > 1 else []
    around += [_convolution(wide, 1, 1, "0"), _norm("1")]
    model = Model(name=name)
    append(model, parts, "input", "deep")
    wire = "input"
    if stride > 1 or before != wide:
        wire = "identity"
        model |= chain(around, "downsample")(input="input", output=wire)
    model |= models.Add()(left="deep", right=wire, output="sum")
    model |= models.Relu()(input="sum", output="output")
    return finish(model, "output")


def _attention_pool(places: int, width: int, heads: int, embed_dim: int) -> Model:
    """Attention of the mean of all places to it and to them."""
    model = Model(name="attnpool")
    grid = IOKey("input")
    flat = models.Transpose((0, 2, 1))(grid.reshape((grid.shape[0], width, places)))
    model |= models.Buffer()(input=flat, output="flat")
    mean = model.flat.mean(axis=1, keepdim=True)
    model |= models.Concat(axis=1)(input=[mean, model.flat], output="all")
    weights = IOKey("positional_embedding", shape=[places + 1, width], differentiable=True)
    model |= models.Add()(left="all", right=weights, output="placed")
    sources: dict[str, Any] = {"q": model.placed[:, :1], "k": "placed", "v": "placed"}
    for role, source in sources.items():
        model |= models.Linear(width, name=f"{role}_proj")(input=source, output=role)
    joined = attend(model, model.q, model.k, model.v, heads)
    model |= models.Linear(embed_dim, name="c_proj")(input=joined[:, 0], output="output")
    return finish(model, "output")


__all__ = ["clip"]

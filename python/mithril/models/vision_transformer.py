"""Transformers of images: `vit_b_16`, `vit_b_32`, `vit_l_16`."""

from __future__ import annotations

from mithril import models
from mithril.base.checks import checked_size
from mithril.base.public import public
from mithril.logical.connection import IOKey
from mithril.logical.model import Model
from mithril.models._blocks import attend, chain, divides, finish, residual

_EPS = 1e-6


@public
def vision_transformer(
    image_size: int,
    patch_size: int,
    num_layers: int,
    num_heads: int,
    hidden_dim: int,
    mlp_dim: int,
    num_classes: int = 1000,
    *,
    name: str | None = None,
) -> Model:
    """A transformer over the patches of an image (Dosovitskiy et al., arXiv:2010.11929).

    Parameters
    ----------
    image_size, patch_size : sides of the square images, and of their patches, which tile them
    num_layers : the number of blocks
    num_heads : heads of the attention of each block; they divide hidden_dim
    hidden_dim : the width of what stands for a patch
    mlp_dim : the width between the two layers behind the attention
    num_classes : size of the last axis of the output

    Keys
    ----
    input : float [n, 3, image_size, image_size]
    output : float [n, num_classes], logits

    With ``naming="path"`` parameters have torchvision's names; `ml.formats.load_state_dict` reads
    its state dicts.

    Raises
    ------
    ArgumentError : a number that is none of a size, or one that does not divide another.

    >>> from mithril.models.vision_transformer import vision_transformer
    >>> model = vision_transformer(32, 8, 2, 2, 16, 32, num_classes=10)
    >>> model.set_shapes(input=["n", 3, 32, 32])
    >>> model.shapes["output"]
    ['n', 10]
    """
    sizes = {"image_size": image_size, "patch_size": patch_size, "num_layers": num_layers,
             "num_heads": num_heads, "hidden_dim": hidden_dim, "mlp_dim": mlp_dim,
             "num_classes": num_classes}  # fmt: skip
    return _network("vision_transformer", name, **sizes)


def _network(
    what: str, name: str | None, *, image_size: int, patch_size: int, num_layers: int,
    num_heads: int, hidden_dim: int, mlp_dim: int, num_classes: int,
) -> Model:  # fmt: skip
    checked_size(f"{what}: num_layers", num_layers)
    checked_size(f"{what}: mlp_dim", mlp_dim)
    checked_size(f"{what}: num_classes", num_classes)
    divides(f"{what}: patch_size", patch_size, f"{what}: image_size", image_size)
    divides(f"{what}: num_heads", num_heads, f"{what}: hidden_dim", hidden_dim)
    patches = (image_size // patch_size) ** 2
    model = Model(name=name)
    _embed(model, hidden_dim, patch_size, patches)
    blocks = [
        _block(hidden_dim, num_heads, mlp_dim, f"encoder_layer_{i}") for i in range(num_layers)
    ]
    model |= _encoder(blocks, hidden_dim, patches)(input="sequence", output="encoded")
    head = models.Linear(num_classes, name="head")
    model |= chain([head], "heads")(input=model.encoded[:, 0], output="output")
    model.set_shapes(input=[None, 3, image_size, image_size])
    return finish(model, "output")


def _embed(model: Model, width: int, patch_size: int, patches: int) -> None:
    """Adds the projection of patches, behind a token that stands for the image."""
    convolution = models.Convolution2D(
        kernel_size=patch_size, out_channels=width, stride=patch_size, name="conv_proj"
    )
    model |= convolution(input="input", output="grid")
    batch = model.grid.shape[0]
    vectors = models.Transpose((0, 2, 1))(model.grid.reshape((batch, width, patches)))
    token = IOKey("class_token", shape=[1, 1, width], differentiable=True)
    tokens = models.BroadcastTo()(input=token, shape=(batch, 1, width))
    model |= models.Concat(axis=1)(input=[tokens, vectors], output="sequence")


def _encoder(blocks: list[Model], width: int, patches: int) -> Model:
    model = Model(name="encoder")
    places = IOKey("pos_embedding", shape=[1, patches + 1, width], differentiable=True)
    model |= models.Add()(left="input", right=places, output="placed")
    model |= chain(blocks, "layers")(input="placed", output="seen")
    model |= models.LayerNorm(eps=_EPS, name="ln")(input="seen", output="output")
    return finish(model, "output")


def _block(width: int, heads: int, mlp_dim: int, name: str) -> Model:
    norms = (models.LayerNorm(eps=_EPS, name=f"ln_{i}") for i in (1, 2))
    parts = (packed_attention(width, heads, "self_attention"), _mlp(width, mlp_dim))
    return residual(name, list(zip(norms, parts, strict=True)))


def packed_attention(width: int, heads: int, name: str, is_causal: bool = False) -> Model:
    """Attention with the parameters of PyTorch's `MultiheadAttention`: one projection to queries,
    keys and values, `in_proj_weight` and `in_proj_bias`."""
    model = Model(name=name)
    model |= models.Linear(3 * width)(
        input="input", weight="in_proj_weight", bias="in_proj_bias", output="packed"
    )
    q, k, v = (model.packed[..., i * width : (i + 1) * width] for i in range(3))
    joined = attend(model, q, k, v, heads, is_causal=is_causal)
    model |= models.Linear(width, name="out_proj")(input=joined, output="output")
    return finish(model, "output")


def _mlp(width: int, mlp_dim: int) -> Model:
    """Its parts have torchvision's numbers, which also count GELU and dropout."""
    parts = [models.Linear(mlp_dim, name="0"), models.Gelu(), models.Linear(width, name="3")]
    return chain(parts, "mlp")


@public
def vit_b_16(num_classes: int = 1000, image_size: int = 224, *, name: str | None = None) -> Model:
    """ViT-B/16 with torchvision's names of parameters, 86.6 million of them.

    Parameters
    ----------
    num_classes : size of the last axis of the output
    image_size : side of the images, a multiple of 16

    Keys
    ----
    input : float [n, 3, image_size, image_size]
    output : float [n, num_classes], logits

    Raises
    ------
    ArgumentError : a number that is none of a size, or no multiple of 16.

    >>> import mithril as ml
    >>> model = ml.models.vit_b_16(num_classes=10, image_size=64)
    >>> model.set_shapes(input=["n", 3, 64, 64])
    >>> model.shapes["output"]
    ['n', 10]
    """
    return _network(
        "vit_b_16", name, image_size=image_size, patch_size=16, num_layers=12, num_heads=12,
        hidden_dim=768, mlp_dim=3072, num_classes=num_classes,
    )  # fmt: skip


@public
def vit_b_32(num_classes: int = 1000, image_size: int = 224, *, name: str | None = None) -> Model:
    """ViT-B/32 with torchvision's names of parameters, 88.2 million of them.

    Parameters
    ----------
    num_classes : size of the last axis of the output
    image_size : side of the images, a multiple of 32

    Keys
    ----
    input : float [n, 3, image_size, image_size]
    output : float [n, num_classes], logits

    Raises
    ------
    ArgumentError : a number that is none of a size, or no multiple of 32.

    >>> import mithril as ml
    >>> model = ml.models.vit_b_32(num_classes=10, image_size=64)
    >>> model.set_shapes(input=["n", 3, 64, 64])
    >>> model.shapes["output"]
    ['n', 10]
    """
    return _network(
        "vit_b_32", name, image_size=image_size, patch_size=32, num_layers=12, num_heads=12,
        hidden_dim=768, mlp_dim=3072, num_classes=num_classes,
    )  # fmt: skip


@public
def vit_l_16(num_classes: int = 1000, image_size: int = 224, *, name: str | None = None) -> Model:
    """ViT-L/16 with torchvision's names of parameters, 304.3 million of them.

    Parameters
    ----------
    num_classes : size of the last axis of the output
    image_size : side of the images, a multiple of 16

    Keys
    ----
    input : float [n, 3, image_size, image_size]
    output : float [n, num_classes], logits

    Raises
    ------
    ArgumentError : a number that is none of a size, or no multiple of 16.

    >>> import mithril as ml
    >>> model = ml.models.vit_l_16(num_classes=10, image_size=64)
    >>> model.set_shapes(input=["n", 3, 64, 64])
    >>> model.shapes["output"]
    ['n', 10]
    """
    return _network(
        "vit_l_16", name, image_size=image_size, patch_size=16, num_layers=24, num_heads=16,
        hidden_dim=1024, mlp_dim=4096, num_classes=num_classes,
    )  # fmt: skip


__all__ = ["packed_attention", "vision_transformer", "vit_b_16", "vit_b_32", "vit_l_16"]

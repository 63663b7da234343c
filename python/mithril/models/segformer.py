"""Segmentation of images by SegFormer: `segformer_semantic_segmentation`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mithril import models
from mithril.base.checks import checked_list, checked_size
from mithril.base.public import public
from mithril.errors import ArgumentError, KeyNotFound, shown
from mithril.logical.model import IOKey, Model
from mithril.models._blocks import append, attend, chain, divides, finish, residual

_WHAT = "segformer_semantic_segmentation"


@public
def segformer_semantic_segmentation(
    config: Any, image_size: int | tuple[int, int], *, name: str | None = None
) -> Model:
    """A class for each four by four pixels of an image (Xie et al., arXiv:2105.15203).

    Parameters
    ----------
    config : a dictionary, or an object with attributes, of transformers' names: num_labels, and
        where they differ from the smallest model's, depths, sr_ratios, hidden_sizes, patch_sizes,
        strides, num_attention_heads and mlp_ratios, a number for each stage; decoder_hidden_size
        (256) and num_channels (3)
    image_size : height and width of the images, or both at once

    Keys
    ----
    input : float [n, num_channels, height, width]
    output : float [n, num_labels, h, w], logits, where h and w are those of the first stage

    With ``naming="path"`` parameters have the names of transformers'
    `SegformerForSemanticSegmentation`; `ml.formats.load_state_dict` reads its state dicts.

    Raises
    ------
    ArgumentError : a number that is none of a size, or lists of different lengths.

    >>> import mithril as ml
    >>> model = ml.models.segformer_semantic_segmentation({"num_labels": 5}, 64)
    >>> model.set_shapes(input=["n", 3, 64, 64])
    >>> model.shapes["output"]
    ['n', 5, 16, 16]
    """
    sizes = _read(config)
    grids, side = [], _sides(image_size)
    for stage in sizes.stages:
        side = stage.grid(*side)
        grids.append(side)
    outputs = [f"stage_{i}" for i in range(len(grids))]
    stages = Model(name="stages")
    for i, (stage, grid, before) in enumerate(
        zip(sizes.stages, grids, ["input", *outputs], strict=False)
    ):
        stages |= _stage(str(i), stage, grid)(input=before, output=outputs[i])
    finish(stages, *outputs)
    encoder = Model(name="segformer")
    wires = {key: key for key in outputs}
    encoder |= stages(input="input", **wires)
    finish(encoder, *outputs)
    model = Model(name=name)
    model |= encoder(input="input", **wires)
    model |= _decode_head(sizes, grids)(**wires, output="output")
    model.set_shapes(input=[None, sizes.num_channels, *_sides(image_size)])
    return finish(model, "output")


@dataclass(frozen=True)
class _Stage:
    depth: int
    sr_ratio: int
    hidden_size: int
    patch_size: int
    stride: int
    num_heads: int
    mlp_ratio: int

    def grid(self, *sides: int) -> tuple[int, ...]:
        """Height and width of what the patches of an image make."""
        grown = [side + 2 * (self.patch_size // 2) - self.patch_size for side in sides]
        return tuple(side // self.stride + 1 for side in grown)


@dataclass(frozen=True)
class _Sizes:
    stages: list[_Stage]
    num_labels: int
    decoder_hidden_size: int
    num_channels: int


_DEFAULTS: dict[str, Any] = {
    "depths": (2, 2, 2, 2),
    "sr_ratios": (8, 4, 2, 1),
    "hidden_sizes": (32, 64, 160, 256),
    "patch_sizes": (7, 3, 3, 3),
    "strides": (4, 2, 2, 2),
    "num_attention_heads": (1, 2, 5, 8),
    "mlp_ratios": (4, 4, 4, 4),
    "decoder_hidden_size": 256,
    "num_channels": 3,
}


def _read(config: Any) -> _Sizes:
    keys = (*_DEFAULTS, "num_labels")
    if not isinstance(config, Mapping):
        config = {key: getattr(config, key) for key in keys if hasattr(config, key)}
    entries = {**_DEFAULTS, **{key: config[key] for key in keys if key in config}}
    if "num_labels" not in entries:
        raise KeyNotFound(f"{_WHAT}: config has no entry 'num_labels', got {shown(config)}")
    per_stage = list(_DEFAULTS)[:7]
    lists = [
        [
            checked_size(f"{_WHAT}: {key}", n)
            for n in checked_list(f"{_WHAT}: {key}", entries[key], "a list")
        ]
        for key in per_stage
    ]
    if len({len(numbers) for numbers in lists}) != 1 or not lists[0]:
        counts = ", ".join(f"{k} {len(n)}" for k, n in zip(per_stage, lists, strict=True))
        raise ArgumentError(f"{_WHAT}: config requires one number for each stage, got {counts}")
    stages = [_Stage(*numbers) for numbers in zip(*lists, strict=True)]
    for stage in stages:
        divides(f"{_WHAT}: num_attention_heads", stage.num_heads, f"{_WHAT}: hidden_sizes",
                stage.hidden_size)  # fmt: skip
    rest = ("num_labels", "decoder_hidden_size", "num_channels")
    return _Sizes(stages, *(checked_size(f"{_WHAT}: {key}", entries[key]) for key in rest))


def _sides(image_size: Any) -> tuple[int, ...]:
    what = f"{_WHAT}: image_size"
    sides = (
        [image_size] * 2
        if isinstance(image_size, int)
        else checked_list(what, image_size, "two sizes")
    )
    if len(sides) != 2:
        raise ArgumentError(f"{what}: requires height and width, got {len(sides)} numbers")
    return tuple(checked_size(what, side) for side in sides)


# --- parts ----------------------------------------------------------------------------------------


def _as_grid(width: int, grid: tuple[int, ...]) -> Model:
    """[n, places, width] to [n, width, height, width of the grid]."""
    model = Model()
    channels = models.Transpose((0, 2, 1))(IOKey("input"))
    shape = (channels.shape[0], width, *grid)
    model |= models.Buffer()(input=channels.reshape(shape), output="output")
    return finish(model, "output")


def _as_places(width: int) -> Model:
    """The other way around."""
    model = Model()
    grid = IOKey("input")
    flat = grid.reshape((grid.shape[0], width, -1))
    model |= models.Transpose((0, 2, 1))(input=flat, output="output")
    return finish(model, "output")


def _norm(name: str) -> Model:
    return models.LayerNorm(eps=1e-5, name=name)


def _stage(name: str, stage: _Stage, grid: tuple[int, ...]) -> Model:
    """Patches that overlap, blocks on them, and a grid again."""
    projection = models.Convolution2D(
        kernel_size=stage.patch_size,
        out_channels=stage.hidden_size,
        stride=stage.stride,
        padding=stage.patch_size // 2,
        name="proj",
    )
    patches = [projection, _as_places(stage.hidden_size), _norm("layer_norm")]
    blocks = [_block(str(i), stage, grid) for i in range(stage.depth)]
    parts = [chain(patches, "patch_embeddings"), chain(blocks, "blocks"), _norm("layer_norm")]
    return chain([*parts, _as_grid(stage.hidden_size, grid)], name)


def _block(name: str, stage: _Stage, grid: tuple[int, ...]) -> Model:
    branches = [
        [_norm("layernorm_before"), _attention(stage, grid)],
        [_norm("layernorm_after"), _mlp(stage, grid)],
    ]
    return residual(name, branches)


def _attention(stage: _Stage, grid: tuple[int, ...]) -> Model:
    """Attention to a smaller grid, which a convolution makes."""
    model, width, source = Model(name="attention"), stage.hidden_size, "input"
    if stage.sr_ratio > 1:
        source = "reduced"
        model |= _reduction(width, stage.sr_ratio, grid)(input="input", output=source)
    for role in "qkv":
        projection = models.Linear(width, name=f"{role}_proj")
        model |= projection(input="input" if role == "q" else source, output=f"{role}_wide")
    joined = attend(model, model.q_wide, model.k_wide, model.v_wide, heads=stage.num_heads)
    model |= models.Linear(width, name="o_proj")(input=joined, output="output")
    return finish(model, "output")


def _reduction(width: int, ratio: int, grid: tuple[int, ...]) -> Model:
    convolution = models.Convolution2D(
        kernel_size=ratio, out_channels=width, stride=ratio, name="sequence_reduction"
    )
    parts = [_as_grid(width, grid), convolution, _as_places(width), _norm("layer_norm")]
    return chain(parts, "sequence_reduction")


def _mlp(stage: _Stage, grid: tuple[int, ...]) -> Model:
    """Two layers with a convolution of each channel between them, which tells places apart."""
    wide = stage.hidden_size * stage.mlp_ratio
    convolution = models.Convolution2D(
        kernel_size=3, out_channels=wide, padding=1, groups=wide, name="dwconv"
    )
    mixed = chain([_as_grid(wide, grid), convolution, _as_places(wide)], "dwconv")
    narrow = models.Linear(stage.hidden_size, name="fc2")
    return chain([models.Linear(wide, name="fc1"), mixed, models.Gelu(), narrow], "mlp")


def _decode_head(sizes: _Sizes, grids: list[tuple[int, ...]]) -> Model:
    """Joins the stages, each projected and as large as the first."""
    model, width = Model(name="decode_head"), sizes.decoder_hidden_size
    projections = Model(name="linear_projections")
    for i, (stage, grid) in enumerate(zip(sizes.stages, grids, strict=True)):
        part = chain([_as_places(stage.hidden_size), models.Linear(width, name="proj")], str(i))
        projections |= part(input=f"stage_{i}", output=f"places_{i}")
        append(projections, [_as_grid(width, grid)], f"places_{i}", f"grid_{i}")
    names = [f"grid_{i}" for i in range(len(grids))]
    projections.expose_keys(*names)
    stages = {f"stage_{i}": f"stage_{i}" for i in range(len(grids))}
    model |= projections(**stages, **{name: name for name in names})
    for name in names:
        resized = models.Interpolate(size=grids[0], mode="bilinear", align_corners=False)
        model |= resized(input=name, output=f"{name}_large")
    large = [getattr(model, f"{name}_large") for name in reversed(names)]
    model |= models.Concat(axis=1)(input=large, output="joined")
    fuse = models.Convolution2D(
        kernel_size=1, out_channels=width, use_bias=False, name="linear_fuse"
    )
    classifier = models.Convolution2D(
        kernel_size=1, out_channels=sizes.num_labels, name="classifier"
    )
    norm = models.BatchNorm2D(mode=None, name="batch_norm")
    append(model, [fuse, norm, models.Relu(), classifier], "joined", "output")
    model.expose_keys("output")
    return model


__all__ = ["segformer_semantic_segmentation"]

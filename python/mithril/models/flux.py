"""Blocks of FLUX, for images and texts: `double_stream_block`, `single_stream_block`."""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.checks import checked_flag
from mithril.base.public import public
from mithril.errors import ArgumentError
from mithril.logical.model import IOKey, Model
from mithril.models._blocks import chain, divides, finish, positive


@public
def double_stream_block(
    hidden_size: int,
    num_heads: int,
    mlp_ratio: float = 4.0,
    qkv_bias: bool = False,
    *,
    name: str | None = None,
) -> Model:
    """A block with weights of its own for images and for texts, which attend to each other (Black
    Forest Labs 2024; Esser et al., arXiv:2403.03206).

    Parameters
    ----------
    hidden_size : the width of both streams
    num_heads : heads of the attention; they divide hidden_size
    mlp_ratio : how many times wider the layers behind the attention are
    qkv_bias : whether the projections to queries, keys and values have a bias

    Keys
    ----
    img : float [b, n, hidden_size]
    txt : float [b, m, hidden_size]
    vec : float [b, hidden_size], which shifts, scales and gates
    pe : float [b, 1, m + n, head / 2, 2, 2], the rotations of the places, texts first
    img_out, txt_out : as img and txt

    With ``naming="path"`` parameters have the names of the published checkpoints
    (``img_attn.qkv.weight``).

    Raises
    ------
    ArgumentError : a number that is none of a size, or num_heads that do not divide hidden_size.

    >>> import mithril as ml
    >>> block = ml.models.double_stream_block(8, 2)
    >>> block.set_shapes(img=["b", "n", 8], txt=["b", "m", 8])
    >>> block.shapes["img_out"]
    ['b', 'n', 8]
    """
    what = "double_stream_block"
    divides(f"{what}: num_heads", num_heads, f"{what}: hidden_size", hidden_size)
    wide = _wide(what, hidden_size, mlp_ratio)
    qkv_bias = checked_flag(f"{what}: qkv_bias", qkv_bias)
    model = Model(name=name)
    for role in ("img", "txt"):
        model |= _modulation(hidden_size, 6, f"{role}_mod")(input="vec", output=f"{role}_parts")
        modulated = _modulated(IOKey(role), model[f"{role}_parts"], 0, hidden_size)
        linear = models.Linear(3 * hidden_size, use_bias=qkv_bias, name=f"{role}_attn.qkv")
        model |= linear(input=modulated, output=f"{role}_packed")
        _add_heads(model, role, hidden_size, num_heads)
    joint = {
        key: models.Concat(axis=2)(input=[model[f"txt_{key}"], model[f"img_{key}"]])
        for key in "qkv"
    }
    model |= models.Buffer()(input=_attended(**joint), output="joint")
    length = model.txt.shape[1]
    found = {"txt": model.joint[:, :length], "img": model.joint[:, length:]}
    for role in ("img", "txt"):
        _end(model, role, found[role], hidden_size, wide)
    shapes = {"img": ["b", "n", hidden_size], "txt": ["b", "m", hidden_size]}
    model.set_shapes(**shapes, vec=["b", hidden_size])
    model.set_shapes({f"{role}_out": shape for role, shape in shapes.items()})
    model.expose_keys("img_out", "txt_out")
    return model


@public
def single_stream_block(
    hidden_size: int, num_heads: int, mlp_ratio: float = 4.0, *, name: str | None = None
) -> Model:
    """A block of texts and images in one stream, whose attention and layers run beside each other.

    Parameters
    ----------
    hidden_size, num_heads, mlp_ratio : as of `double_stream_block`

    Keys
    ----
    input : float [b, n, hidden_size]
    vec : float [b, hidden_size], which shifts, scales and gates
    pe : float [b, 1, n, head / 2, 2, 2], the rotations of the places
    output : as input

    Raises
    ------
    ArgumentError : a number that is none of a size, or num_heads that do not divide hidden_size.

    >>> import mithril as ml
    >>> block = ml.models.single_stream_block(8, 2)
    >>> block.set_shapes(input=["b", "n", 8])
    >>> block.shapes["output"]
    ['b', 'n', 8]
    """
    what = "single_stream_block"
    divides(f"{what}: num_heads", num_heads, f"{what}: hidden_size", hidden_size)
    wide = _wide(what, hidden_size, mlp_ratio)
    model = Model(name=name)
    model |= _modulation(hidden_size, 3, "modulation")(input="vec", output="parts")
    modulated = _modulated(IOKey("input"), model.parts, 0, hidden_size)
    joint = models.Linear(3 * hidden_size + wide, name="linear1")
    model |= joint(input=modulated, output="joint")
    packed, beside = model.joint[..., : 3 * hidden_size], model.joint[..., 3 * hidden_size :]
    model |= models.Buffer()(input=packed, output="packed")
    _add_heads(model, "", hidden_size, num_heads)
    found = _attended(model.q, model.k, model.v)
    both = models.Concat(axis=2)(input=[found, models.Gelu(approximate=True)(beside)])
    model |= models.Linear(hidden_size, name="linear2")(input=both, output="update")
    gate = _part(model.parts, 2, hidden_size)
    model |= models.Add()(left="input", right=gate * model.update, output="output")
    shape = ["b", "n", hidden_size]
    model.set_shapes(input=shape, vec=["b", hidden_size], output=shape)
    return finish(model, "output")


def _wide(what: str, width: int, ratio: float) -> int:
    wide = int(width * positive(f"{what}: mlp_ratio", ratio))
    if not 0 < wide < 2**31:
        raise ArgumentError(f"{what}: mlp_ratio makes no width of {width}, got {ratio}")
    return wide


def _modulation(width: int, count: int, name: str) -> Model:
    """The vector [b, width] to `count` parts beside each other, [b, 1, count · width]."""
    model = Model(name=name)
    linear = models.Linear(count * width, name="lin")
    model |= linear(input=models.Silu()(IOKey("input")), output="flat")
    model |= models.Buffer()(input=model.flat[:, None, :], output="output")
    return finish(model, "output")


def _part(parts: Any, at: int, width: int) -> Any:
    return parts[..., at * width : (at + 1) * width]


def _modulated(x: Any, parts: Any, first: int, width: int) -> Any:
    """A norm without parameters, scaled and shifted by two of the parts."""
    normed = models.LayerNorm(use_scale=False, use_bias=False, eps=1e-6)(x)
    return (1 + _part(parts, first + 1, width)) * normed + _part(parts, first, width)


def _add_heads(model: Model, role: str, width: int, heads: int) -> None:
    """Adds queries, keys and values, [b, heads, places, head], of what a projection packed.

    The norm is a part of the attention in the checkpoints, hence its name.
    """
    before, norm = (f"{role}_", f"{role}_attn.norm") if role else ("", "norm")
    q, k, v = (
        models.SplitHeads(heads)(_part(model[f"{before}packed"], i, width)) for i in range(3)
    )
    model |= _norms(norm)(q=q, k=k, q_out=f"{before}q", k_out=f"{before}k")
    model |= models.Buffer()(input=v, output=f"{before}v")


def _norms(name: str) -> Model:
    """Divides each head of queries and keys by its root mean square."""
    model = Model(name=name)
    for key, part in (("q", "query_norm"), ("k", "key_norm")):
        norm = Model(name=part)
        norm |= models.RMSNorm(eps=1e-6)(input="input", weight="scale", output="output")
        model |= finish(norm, "output")(input=key, output=f"{key}_out")
    model.expose_keys("q_out", "k_out")
    return model


def _attended(q: Any, k: Any, v: Any) -> Any:
    """Attention of queries and keys that are turned by the rotations `pe`; heads side by side."""
    pe = IOKey("pe")
    return models.MergeHeads()(
        models.Attention()(query=_turned(q, pe), key=_turned(k, pe), value=v)
    )


def _turned(x: Any, pe: Any) -> Any:
    pairs = x.reshape((x.shape[0], x.shape[1], x.shape[2], -1, 1, 2))
    turned = pe[..., 0] * pairs[..., 0] + pe[..., 1] * pairs[..., 1]
    return turned.reshape((x.shape[0], x.shape[1], x.shape[2], -1))


def _end(model: Model, role: str, found: Any, width: int, wide: int) -> None:
    """Adds what a stream does with what attention found."""
    parts = model[f"{role}_parts"]
    projection = models.Linear(width, name=f"{role}_attn.proj")
    model |= projection(input=found, output=f"{role}_update")
    middle = model[role] + _part(parts, 2, width) * model[f"{role}_update"]
    model |= models.Buffer()(input=middle, output=f"{role}_middle")
    layers: list[Model] = [models.Linear(wide, name="0"), models.Gelu(approximate=True)]
    layers.append(models.Linear(width, name="2"))
    modulated = _modulated(model[f"{role}_middle"], parts, 3, width)
    model |= chain(layers, f"{role}_mlp")(input=modulated, output=f"{role}_narrow")
    last = _part(parts, 5, width) * model[f"{role}_narrow"]
    model |= models.Add()(left=f"{role}_middle", right=last, output=f"{role}_out")


__all__ = ["double_stream_block", "single_stream_block"]

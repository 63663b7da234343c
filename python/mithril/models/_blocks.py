"""Building blocks of whole models: chains of parts, and attention between wires."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

from mithril import models
from mithril.base.checks import as_float, checked_size
from mithril.errors import ArgumentError, shown
from mithril.logical.connection import Connection
from mithril.logical.model import Model


def divides(what: str, part: Any, of: str, total: Any) -> int:
    """Returns a size that divides another; `what` and `of` are "call: argument"."""
    checked_size(what, part)
    if checked_size(of, total) % part:
        key = of.rpartition(": ")[2]
        raise ArgumentError(f"{what} must divide {key} = {total}, got {part}")
    return int(part)


def positive(what: str, value: Any) -> float:
    """Returns a positive number, such as an eps."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 < value < float("inf"):
        raise ArgumentError(f"{what}: requires a positive number, got {shown(value)}")
    return as_float(what, value)


def finish(model: Model, *outputs: str) -> Model:
    """Exposes the outputs, and makes `input` and the first output what `+=` joins."""
    model.expose_keys(*outputs)
    model.set_cin("input")
    model.set_cout(outputs[0])
    return model


def chain(parts: Sequence[Model], name: str | None = None, shared: Sequence[str] = ()) -> Model:
    """Composes parts one after the other, `input` to `output`; each reads the shared keys that it
    has from keys of the chain of the same name."""
    model = Model(name=name)
    append(model, parts, "input", "output", shared)
    return finish(model, "output")


def append(
    model: Model, parts: Sequence[Model], before: str, after: str, shared: Sequence[str] = ()
) -> None:
    """Adds parts to a model, one after the other between two of its wires."""
    wires = [before, *(f"{after}_{i}" for i in range(1, len(parts))), after]
    for part, reads, writes in zip(parts, wires, wires[1:], strict=False):
        model |= part.connect(input=reads, output=writes, **wires_of(part, shared))


def wires_of(part: Model, shared: Sequence[str]) -> dict[str, str]:
    """Wires each shared key that a part has to the key of the same name around it."""
    return {key: key for key in shared if key in part.input_keys}


def residual(
    name: str | None, branches: Sequence[Sequence[Model]], shared: Sequence[str] = ()
) -> Model:
    """Composes branches one after the other, each a row of parts beside a way around it; shared
    keys are those of parts, as in a chain."""
    model = Model(name=name)
    wires = ["input", *(f"middle_{i}" for i in range(1, len(branches))), "output"]
    for branch, before, after in zip(branches, wires, wires[1:], strict=False):
        append(model, branch, before, f"{after}_added", shared)
        model |= models.Add()(left=before, right=f"{after}_added", output=after)
    return finish(model, "output")


def attend(
    model: Model,
    query: Any,
    key: Any,
    value: Any,
    heads: int,
    kv_heads: int | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    bias: Any = None,
    rotary: models.RotaryEmbedding | None = None,
    cache_size: int | None = None,
) -> Connection:
    """Adds attention of `heads` heads to a model and returns what it finds, [b, t, width].

    Query, key and value are [b, t, width], their heads side by side. With `cache_size`, keys and
    values of earlier calls are state of the model, whose key `offset` is the number of their
    places.
    """
    q: Any = models.SplitHeads(heads)(query)
    k: Any = models.SplitHeads(kv_heads or heads)(key)
    v: Any = models.SplitHeads(kv_heads or heads)(value)
    offset: dict[str, Any] = {"offset": Connection("offset")} if cache_size else {}
    if rotary is not None:
        q, k = (_turned(rotary, wire, offset) for wire in (q, k))
    if cache_size is not None:
        k, v = (_remember(model, name, wire, cache_size) for name, wire in (("k", k), ("v", v)))
    core = models.Attention(
        is_causal=is_causal,
        scale=scale,
        enable_gqa=kv_heads not in (None, heads),
        use_bias=bias is not None,
        **({"offset": models.TBD} if offset else {}),  # type: ignore[arg-type]
    )
    biases = {} if bias is None else {"bias": bias}
    return models.MergeHeads()(core(query=q, key=k, value=v, **biases, **offset))


def _turned(rotary: models.RotaryEmbedding, wire: Any, offset: dict[str, Any]) -> Any:
    options = {**rotary.factory_args, **dict.fromkeys(offset, models.TBD)}
    return models.RotaryEmbedding(**options)(input=wire, **offset)


def _remember(model: Model, role: str, new: Any, cache_size: int) -> Connection:
    """Appends places to a cache of the model and returns the cache after that."""
    cache, after = f"{role}_cache", f"new_{role}_cache"
    model |= models.UpdateCache().connect(cache=cache, input=new, offset="offset", output=after)
    model.set_types(offset=models.Tensor[int])
    model.set_shapes({"offset": [], cache: [None, None, cache_size, None]})
    model.bind_state_keys(cache, after, 0.0)
    return getattr(model, after)


def count_places(model: Model, input: str) -> None:
    """Makes `offset` state of a model: the places of axis 1 of its input that calls have seen."""
    places = getattr(model, input).shape[1]
    model |= models.Add().connect(left="offset", right=places, output="new_offset")
    model.bind_state_keys("offset", "new_offset", 0)


__all__ = [
    "append",
    "attend",
    "chain",
    "count_places",
    "divides",
    "finish",
    "positive",
    "residual",
    "wires_of",
]

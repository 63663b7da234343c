"""Attention of many heads, with its projections: `MultiHeadAttention`."""

from __future__ import annotations

from numbers import Real
from typing import Any

from mithril import models
from mithril.base.checks import as_float, checked_flag, checked_instance, checked_size
from mithril.base.public import public
from mithril.errors import ArgumentError, OptionError, shown
from mithril.logical.connection import Connection
from mithril.logical.model import ExtendInfo
from mithril.logical.typing import Initial, Output, Wire, as_connected
from mithril.models._composite import Composite
from mithril.types import NOT_GIVEN, TBD

_WHAT = "MultiHeadAttention"


class MultiHeadAttention(Composite):
    """Attention of several heads between projections of the input, and one of what they found.

    Head h weighs the values by softmax(q_h k_hᵀ · scale + bias); w_o joins the heads (Vaswani et
    al., arXiv:1706.03762).

    Parameters
    ----------
    num_heads : the number of heads of the queries
    embed_dim : size of the last axis of query and output; None: follows from the query
    num_kv_heads : the number of heads of keys and values, which divides num_heads; each serves as
        many heads of queries (Ainslie et al., arXiv:2305.13245). None: num_heads
    head_dim : size of a head; None: embed_dim / num_heads
    use_bias : whether b_q, b_k, b_v exist
    use_output_bias : whether b_o exists; None: as use_bias
    is_causal : whether a place sees itself and those before it only
    use_key : keys and values are made of an input `key` instead of the query
    use_value : values are made of an input `value` instead of that
    use_attn_mask : whether there is an input `attn_mask` that says what is seen
    use_attn_bias : whether there is an input `attn_bias`, which is added to the scores
    dropout : the probability with which a weight is dropped in training (mode="train")
    rotary : a `RotaryEmbedding`, which turns queries and keys by their places
    alibi : whether scores fall with distance, by the biases of `Alibi`
    cache_size : room for the places of earlier calls, kept as state; None: nothing is kept
    scale : of the scores; None: 1 / √head_dim
    query, key, value, attn_mask, attn_bias, w_q … b_o : values or `IOKey`s for these keys

    Keys
    ----
    query : float or int [..., l, embed_dim]
    key : [..., s, d_k], with use_key; else s = l
    value : [..., s, d_v], with use_value
    attn_mask : bool, with use_attn_mask; broadcasts to [..., num_heads, l, s] (with a cache: l,
        cache_size); nothing is seen where it is false
    attn_bias : float, with use_attn_bias; as attn_mask, but added to the scores
    w_q : float [num_heads · head_dim, embed_dim], trainable
    b_q : float [num_heads · head_dim], trainable
    w_k, w_v : float [num_kv_heads · head_dim, d_k or d_v], trainable
    b_k, b_v : float [num_kv_heads · head_dim], trainable
    w_o : float [embed_dim, num_heads · head_dim], trainable
    b_o : float [embed_dim], trainable
    output : float [..., l, embed_dim]

    State, with cache_size (in both modes; `state=` of `evaluate`, at first `initial_state`)
    ---------------------------------------------------------------------------------------
    k_cache, v_cache : float [..., num_kv_heads, cache_size, head_dim], with zeros for no places
    length : int, the number of places so far

    A call appends its places to those of earlier calls and sees both, so that calls with parts of
    a sequence give what one call with all of it gives. A call with more places than are left gives
    NaN, as do all calls after it; one with more than cache_size of them raises ArgumentError.

    Raises
    ------
    ArgumentError : a number that is none of a head, a size or a probability; of compile and
        evaluate: a call of more places than cache_size.
    OptionError : options that exclude each other or leave a size open.

    >>> import mithril as ml
    >>> layer = ml.MultiHeadAttention(8, 64, num_kv_heads=2, is_causal=True, use_bias=False)
    >>> model = ml.Model()
    >>> model |= layer(query="x", output="y")
    >>> model.set_shapes(x=["batch", "places", None])
    >>> model.shapes["y"], layer.shapes["w_k"]
    (['batch', 'places', 64], [16, 64])
    """

    _connect_order = ("query", "key", "value", "attn_mask", "attn_bias", "w_q", "b_q", "w_k",
                      "b_k", "w_v", "b_v", "w_o", "b_o", "output")  # fmt: skip

    @public
    def __init__(
        self,
        num_heads: int,
        embed_dim: int | None = None,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        use_bias: bool = True,
        use_output_bias: bool | None = None,
        is_causal: bool = False,
        use_key: bool = False,
        use_value: bool = False,
        use_attn_mask: bool = False,
        use_attn_bias: bool = False,
        dropout: float = 0.0,
        rotary: models.RotaryEmbedding | None = None,
        alibi: bool = False,
        cache_size: int | None = None,
        scale: float | None = None,
        query: Any = TBD,
        key: Any = TBD,
        value: Any = TBD,
        attn_mask: Any = TBD,
        attn_bias: Any = TBD,
        w_q: Any = TBD,
        b_q: Any = TBD,
        w_k: Any = TBD,
        b_k: Any = TBD,
        w_v: Any = TBD,
        b_v: Any = TBD,
        w_o: Any = TBD,
        b_o: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        arguments = {
            "num_heads": num_heads,
            "embed_dim": embed_dim,
            "num_kv_heads": num_kv_heads,
            "head_dim": head_dim,
            "use_bias": use_bias,
            "use_output_bias": use_output_bias,
            "is_causal": is_causal,
            "use_key": use_key,
            "use_value": use_value,
            "use_attn_mask": use_attn_mask,
            "use_attn_bias": use_attn_bias,
            "dropout": dropout,
            "rotary": rotary,
            "alibi": alibi,
            "cache_size": cache_size,
            "scale": scale,
        }
        plan = _Plan(arguments)
        given = {"query": query, "key": key, "value": value, "attn_mask": attn_mask,
                 "attn_bias": attn_bias, "w_q": w_q, "b_q": b_q, "w_k": w_k, "b_k": b_k,
                 "w_v": w_v, "b_v": b_v, "w_o": w_o, "b_o": b_o}  # fmt: skip
        plan.refuse_missing(given)
        wires = {key: value for key, value in given.items() if key not in plan.missing}
        with self._compose(name, {**arguments, "init": init}, **wires) as keys:
            self._build(plan, keys)
            self.set_shapes(plan.output_shapes())
            self.set_cin("query")
            self.set_cout("output")
            self.expose_keys("output")

    def _build(self, plan: _Plan, keys: dict[str, Connection]) -> None:
        query = keys["query"]
        source = keys.get("key", query)
        q = self._heads(keys, "q", query, plan.heads, plan.query_width)
        k = self._heads(keys, "k", source, plan.kv_heads, plan.key_width)
        v = self._heads(keys, "v", keys.get("value", source), plan.kv_heads, plan.key_width)
        offset = plan.offset()
        if plan.rotary is not None:
            q, k = plan.turned(q), plan.turned(k)
        if plan.cache_size:
            k, v = self._cached("k_cache", k), self._cached("v_cache", v)
        wires: dict[str, Any] = {"query": q, "key": k, "value": v, **offset}
        if "attn_mask" in keys:
            wires["attn_mask"] = keys["attn_mask"]
        biases: list[Any] = [keys["attn_bias"]] if "attn_bias" in keys else []
        if plan.alibi:
            key_places: Any = plan.cache_size or source.shape[-2]
            places = {"query_places": query.shape[-2], "key_places": key_places}
            biases.append(models.Alibi(plan.heads, offset=plan.first)(**places, **offset))
        if biases:
            wires["bias"] = biases[0] if len(biases) == 1 else biases[0] + biases[1]
        merged = Connection()
        self |= models.MergeHeads().connect(input=plan.core()(**wires), output=merged)
        self.set_shapes(plan.input_shapes())
        if "attn_mask" in keys:
            self.set_types(attn_mask=models.Tensor[bool])
        if "attn_bias" in keys:
            self.set_types(attn_bias=models.Tensor[float])
        self._project(plan.embed_dim, merged, keys, "o", Connection("output"))
        if plan.cache_size:
            self._keep(plan.cache_size, query)

    def _heads(
        self, keys: dict[str, Connection], role: str, input: Any, heads: int, width: int | None
    ) -> Connection:
        wide, apart = Connection(), Connection()
        self |= models.SplitHeads(heads).connect(input=wide, output=apart)
        self._project(width, input, keys, role, wide)  # last: it names the parameter that is wrong
        return apart

    def _project(
        self, width: int | None, input: Any, keys: dict[str, Connection], role: str, output: Any
    ) -> None:
        bias = keys.get(f"b_{role}")
        wires = {"input": input, "weight": keys[f"w_{role}"], "output": output}
        layer = models.Linear(width, use_bias=bias is not None)
        self |= layer.connect(**wires, **({} if bias is None else {"bias": bias}))

    def _cached(self, cache: str, new: Any) -> Connection:
        """Appends keys or values to a cache and returns the cache after this call."""
        self |= models.UpdateCache().connect(
            cache=cache, input=new, offset="length", output=f"new_{cache}"
        )
        return getattr(self, f"new_{cache}")

    def _keep(self, cache_size: int, query: Any) -> None:
        self |= models.Add().connect(left="length", right=query.shape[-2], output="new_length")
        self.set_types(length=models.Tensor[int])
        self.set_shapes(length=[])
        for cache in ("k_cache", "v_cache"):
            self.set_shapes({cache: [("lead", ...), cache_size, None]})
            self.bind_state_keys(cache, f"new_{cache}", 0.0)
        self.bind_state_keys("length", "new_length", 0)

    @public
    def connect(
        self,
        query: Wire = NOT_GIVEN,
        key: Wire = NOT_GIVEN,
        value: Wire = NOT_GIVEN,
        attn_mask: Wire = NOT_GIVEN,
        attn_bias: Wire = NOT_GIVEN,
        w_q: Wire = NOT_GIVEN,
        b_q: Wire = NOT_GIVEN,
        w_k: Wire = NOT_GIVEN,
        b_k: Wire = NOT_GIVEN,
        w_v: Wire = NOT_GIVEN,
        b_v: Wire = NOT_GIVEN,
        w_o: Wire = NOT_GIVEN,
        b_o: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"query": query, "key": key, "value": value, "attn_mask": attn_mask,
                "attn_bias": attn_bias, "w_q": w_q, "b_q": b_q, "w_k": w_k, "b_k": b_k,
                "w_v": w_v, "b_v": b_v, "w_o": w_o, "b_o": b_o, "output": output}  # fmt: skip
        return ExtendInfo(self, keys)

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class _Plan:
    """The arguments, checked, and the sizes and keys that follow from them."""

    def __init__(self, arguments: dict[str, Any]):
        self._given = arguments
        self.heads = self._size("num_heads")
        self.kv_heads = self._optional("num_kv_heads") or self.heads
        self.embed_dim = self._optional("embed_dim")
        self.cache_size = self._optional("cache_size")
        self.is_causal, self.alibi = self._flag("is_causal"), self._flag("alibi")
        self.dropout = _probability(arguments["dropout"])
        self.scale = _number("scale", arguments["scale"])
        self.rotary = arguments["rotary"]
        self.missing = self._missing()
        if self.rotary is not None:
            checked_instance(
                f"{_WHAT}: rotary", self.rotary, models.RotaryEmbedding, "a RotaryEmbedding()"
            )
        if self.heads % self.kv_heads:
            raise ArgumentError(
                f"{_WHAT}: num_kv_heads must divide num_heads = {self.heads}, got {self.kv_heads}"
            )
        self.head_dim = self._head_dim()
        self._refuse_clashes()

    def _size(self, key: str) -> int:
        return checked_size(f"{_WHAT}: {key}", self._given[key])

    def _optional(self, key: str) -> int | None:
        return None if self._given[key] is None else self._size(key)

    def _flag(self, key: str) -> bool:
        return checked_flag(f"{_WHAT}: {key}", self._given[key])

    def _missing(self) -> dict[str, str]:
        """Keys that do not exist -> the argument that says so."""
        bias = self._flag("use_bias")
        of_output = self._given["use_output_bias"]
        has_output_bias = bias if of_output is None else self._flag("use_output_bias")
        absent = {key: f"use_{key}" for key in ("key", "value", "attn_mask", "attn_bias")
                  if not self._flag(f"use_{key}")}  # fmt: skip
        absent |= {} if bias else dict.fromkeys(("b_q", "b_k", "b_v"), "use_bias")
        return absent | ({} if has_output_bias else {"b_o": "use_output_bias"})

    def refuse_missing(self, keys: dict[str, Any]) -> None:
        for key, option in self.missing.items():
            if keys[key] is not TBD:
                raise OptionError(f"{_WHAT}: has no key {key!r}", hint=f"give {option}=True")

    def _head_dim(self) -> int | None:
        given = self._optional("head_dim")
        if given is not None or self.embed_dim is None:
            if given is None and self.kv_heads != self.heads:
                raise OptionError(
                    f"{_WHAT}: num_kv_heads = {self.kv_heads} leaves the size of a head open",
                    hint="give embed_dim or head_dim",
                )
            return given
        if self.embed_dim % self.heads:
            raise ArgumentError(
                f"{_WHAT}: embed_dim must be a multiple of num_heads = {self.heads}, got"
                f" {self.embed_dim}",
                hint=f"heads come first: ml.{_WHAT}({self.embed_dim}, {self.heads})"
                if self.heads > self.embed_dim
                else "give head_dim where heads have a size of their own",
            )
        return self.embed_dim // self.heads

    def _refuse_clashes(self) -> None:
        if self.alibi and self.rotary is not None:
            raise OptionError(f"{_WHAT}: takes one of rotary and alibi, got both")
        if self.cache_size is None:
            return
        if not self.is_causal:
            raise OptionError(
                f"{_WHAT}: cache_size requires is_causal=True: what was computed before a place is"
                " known would change with it"
            )
        if "key" not in self.missing or "value" not in self.missing:
            raise OptionError(
                f"{_WHAT}: cache_size is for attention of a sequence to itself",
                hint="leave out use_key and use_value",
            )

    @property
    def query_width(self) -> int | None:
        return None if self.head_dim is None else self.heads * self.head_dim

    @property
    def key_width(self) -> int | None:
        return None if self.head_dim is None else self.kv_heads * self.head_dim

    def input_shapes(self) -> dict[str, list[Any]]:
        """All are as wide as the query where the size of heads is open."""
        width: Any = self.embed_dim or "width"
        weights = ("w_q", "w_k", "w_v") if self.head_dim is None else ()
        shapes: dict[str, list[Any]] = {key: [width, None] for key in weights}
        return shapes | {"query": [("lead", ...), None, width]}

    def output_shapes(self) -> dict[str, list[Any]]:
        """The output is as wide as the query."""
        width: Any = self.embed_dim or "width"
        bias = {} if "b_o" in self.missing else {"b_o": [width]}
        wide = width if self.head_dim is None else None
        return {"query": [("lead", ...), None, width], **bias, "w_o": [width, wide]}

    @property
    def first(self) -> Any:
        """The place of the first query, for constructors: it comes from a wire with a cache."""
        return TBD if self.cache_size else 0

    def offset(self) -> dict[str, str]:
        return {"offset": "length"} if self.cache_size else {}

    def turned(self, x: Any) -> Any:
        arguments = self.rotary.factory_args
        if self.cache_size:
            arguments["offset"] = TBD
        return models.RotaryEmbedding(**arguments)(x, **self.offset())

    def core(self) -> Any:
        options: dict[str, Any] = {
            "is_causal": self.is_causal,
            "scale": self.scale,
            "enable_gqa": self.kv_heads != self.heads,
            "use_attn_mask": "attn_mask" not in self.missing,
            "use_bias": self.alibi or "attn_bias" not in self.missing,
            "offset": self.first,
        }
        if self.dropout:
            return models.DropoutAttention(p=self.dropout, **options)
        return models.Attention(**options)


def _number(key: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Real) or isinstance(value, bool):
        raise ArgumentError(f"{_WHAT}: {key} must be a number, got {shown(value)}")
    return as_float(f"{_WHAT}: {key}", value)


def _probability(value: Any) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0.0 <= value < 1.0:
        raise ArgumentError(
            f"{_WHAT}: dropout must be at least 0.0 and below 1.0, got {shown(value)}"
        )
    return float(value)


__all__ = ["MultiHeadAttention"]

"""The oracle: what a graph means, computed by plain NumPy in float64.

It reads the text of a graph as it is right after flatten and shares nothing with the engine: its
own parser is here, what each op is stands in `oracle_ops.py`; `torch_oracle.py` has gradients.

>>> result = evaluate('''graph m(%x: float[2]) {
...   %0 = exp(%x) : float[2]
...   return y=%0
... }''', {"x": [0.0, 1.0]})
>>> result.outputs["y"].round(4).tolist()
[1.0, 2.7183]
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import add, floordiv, mul, neg, sub
from typing import Any, NamedTuple

import numpy as np

_SHORT = "bool u8 i8 i16 i32 i64 int f16 bf16 f32 f64 float"
_NAMES = "bool uint8 int8 int16 int32 int64 int64 float16 bfloat16 float32 float64 float64"
DTYPES = dict(zip(_SHORT.split(), _NAMES.split(), strict=True))
CONSTANTS = {"true": True, "false": False, "none": None, "inf": np.inf, "nan": np.nan,
             "...": ...}  # fmt: skip
ROLES = ("param", "state", "cotangent")


class OracleError(Exception):
    """The text, the values given, or an op's result contradict each other."""


class DType(str):
    """An element type that stands in graph text as a value, by its full name."""


class Type(NamedTuple):
    dtype: str | None  # the word of the text ("float", "f32"); None: a host value, without shape
    shape: tuple[str, ...] = ()  # size expressions


class Input(NamedTuple):
    name: str
    type: Type
    role: str  # "data", "param", "state" or "cotangent"


class Node(NamedTuple):
    results: list[str]
    op: str
    operands: list[str | None]  # None where absent
    attrs: dict[str, Any]
    types: list[Type]
    line: int


@dataclass
class Graph:
    inputs: list[Input] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    states: list[tuple[str, str, Any]] = field(default_factory=list)  # input, next value, first
    outputs: list[tuple[str, str]] = field(default_factory=list)  # name, value


class Result(NamedTuple):
    outputs: dict[str, Any]
    states: dict[str, Any]  # the next ones


class Size(NamedTuple):
    """A size that the text gives as an expression; it is known when the graph runs."""

    text: str


_TOKEN = re.compile(
    r"""(?P<space>[ \t\n]+)
    | (?P<path>\#[^\n]*)
    | (?P<string>"(?:\\.|[^"\\])*")
    | (?P<size>'[^']*')
    | (?P<number>-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf\b))
    | (?P<word>[A-Za-z_$][\w.$]*)
    | (?P<mark>\.\.\.|<-|[%(){}\[\]<>,:=+*/-])""",
    re.VERBOSE,
)


def _tokens(text: str) -> list[tuple[str, str, int]]:
    out, at, line = [], 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise OracleError(f"line {line}: unexpected {text[at : at + 20]!r}")
        if match.lastgroup not in ("space", "path"):
            out.append((match.lastgroup, match.group(), line))
        line += match.group().count("\n")
        at = match.end()
    out.append(("end", "", line))
    return out


def _unquote(text: str) -> str:
    """Bytes that are not printable ASCII stand as \\xNN."""
    escaped = re.sub(
        rb"\\(x[0-9a-f]{2}|.)",
        lambda m: bytes([int(m[1][1:], 16)]) if len(m[1]) == 3 else m[1],
        text[1:-1].encode(),
    )
    return escaped.decode("utf-8", "surrogateescape")


class _Parser:
    def __init__(self, text: str):
        self._tokens = _tokens(text)
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at][1]

    def _next(self) -> tuple[str, str]:
        kind, text, line = self._tokens[self._at]
        if kind == "end":
            raise OracleError(f"line {line}: the text ends too early")
        self._at += 1
        return kind, text

    def _accept(self, text: str) -> bool:
        if self._peek() != text:
            return False
        self._at += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            _, got, line = self._tokens[self._at]
            raise OracleError(f"line {line}: expected {text!r}, got {got!r}")

    def _items(self, close: str, read: Callable[[], Any]) -> list[Any]:
        out: list[Any] = []
        while not self._accept(close):
            if out:
                self._expect(",")
                if self._accept(close):  # (1,)
                    break
            out.append(read())
        return out

    def graph(self) -> Graph:
        out = Graph()
        self._expect("graph")
        self._name()
        if self._accept("<"):
            self._items(">", self._next)
        self._expect("(")
        out.inputs = self._items(")", self._input)
        self._expect("{")
        while not self._accept("return"):
            self._line(out)
        out.outputs = self._items("}", self._output)
        return out

    def _name(self) -> str:
        kind, text = self._next()
        return _unquote(text) if kind == "string" else text

    def _value(self) -> str:
        self._expect("%")
        return self._name()

    def _input(self) -> Input:
        name = self._value()
        self._expect(":")
        type_ = self._type()
        return Input(name, type_, next((role for role in ROLES if self._accept(role)), "data"))

    def _output(self) -> tuple[str, str]:
        name = self._name()
        self._expect("=")
        return name, self._value()

    def _line(self, out: Graph) -> None:
        if not self._accept("state"):
            out.nodes.append(self._node())
            return
        name = self._value()
        self._expect("<-")
        output = self._value()
        self._expect("=")
        out.states.append((name, output, self._host()))

    def _node(self) -> Node:
        line = self._tokens[self._at][2]
        results = self._some(self._value)
        self._expect("=")
        op = self._name()
        operands: list[str | None] = []
        attrs: dict[str, Any] = {}
        self._expect("(")
        self._items(")", lambda: self._argument(operands, attrs))
        self._expect(":")
        return Node(results, op, operands, attrs, self._some(self._type), line)

    def _some(self, read: Callable[[], Any]) -> list[Any]:
        out = [read()]
        while self._accept(","):
            out.append(read())
        return out

    def _argument(self, operands: list, attrs: dict) -> None:
        if self._peek() in ("%", "_"):
            operands.append(None if self._accept("_") else self._value())
            return
        name = self._name()
        self._expect("=")
        attrs[name] = self._host()

    def _type(self) -> Type:
        word = self._name()
        if not self._accept("["):
            if self._accept("<"):
                self._items(">", self._type)
            return Type(None)
        return Type(word, tuple(self._items("]", self._size_text)))

    def _size_text(self) -> str:
        parts: list[str] = []
        while parts.count("(") > parts.count(")") or self._peek() not in (",", "]"):
            parts.append(self._next()[1])
        return "".join(parts)

    def _host(self) -> Any:
        start = None if self._peek() == ":" else self._atom()
        if self._peek() != ":" or not isinstance(start, int | Size | None):
            return start
        self._expect(":")
        stop = self._bound()
        return slice(start, stop, self._bound() if self._accept(":") else None)

    def _bound(self) -> Any:
        return self._atom() if self._tokens[self._at][0] in ("number", "size") else None

    def _atom(self) -> Any:
        kind, text = self._next()
        if kind == "string":
            return _unquote(text)
        if kind == "size":
            return Size(text[1:-1])
        if kind == "number":
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        if text == "(":
            return tuple(self._items(")", self._host))
        if text == "[":
            return self._items("]", self._host)
        if text in CONSTANTS:
            return CONSTANTS[text]
        return DType(DTYPES[text]) if text in DTYPES else self._literal()

    def _literal(self) -> np.ndarray:
        self._expect("<")
        dtype, shape = self._type()
        self._expect(">")
        self._expect("(")
        name = DTYPES[dtype].replace("bfloat16", "float32")
        elements = np.array(self._items(")", self._host), name)
        return _held(elements.reshape([int(size) for size in shape]))


def parse(text: str) -> Graph:
    """The graph that a text stands for."""
    return _Parser(text).graph()


def _held(array: np.ndarray) -> np.ndarray:
    """As the oracle holds numbers: floats in float64, integers and bools as they are."""
    return array.astype(np.float64) if array.dtype.kind not in "iub" else array


def _given(value: Any, type_: Type) -> Any:
    if type_.dtype is None:
        return value
    is_float = DTYPES[type_.dtype].startswith(("float", "bfloat"))
    return np.asarray(value, np.float64) if is_float else _held(np.asarray(value))


_SYMBOL = re.compile(r"[^\s+\-*/(),\[\]\d][^\s+\-*/(),\[\]]*(?!\()\b")
_DO = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.Div: floordiv, ast.USub: neg}


def size_of(text: str, symbols: Mapping[str, int]) -> int:
    """The value of a size expression; KeyError when a symbol is unknown."""

    def value(node: Any) -> int:
        if isinstance(node, ast.BinOp):
            return _DO[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp):
            return _DO[type(node.op)](value(node.operand))
        if isinstance(node, ast.Call):  # floor(a/b), or broadcast(a, b)
            first, *others = (value(argument) for argument in node.args)
            return others[0] if others and first == 1 else first
        return node.value

    numbers = _SYMBOL.sub(lambda match: str(symbols[match[0]]), text)
    return value(ast.parse(numbers, mode="eval").body)


def _resolve(value: Any, symbols: Mapping[str, int]) -> Any:
    if isinstance(value, Size):  # before tuple, which it is
        return size_of(value.text, symbols)
    if isinstance(value, tuple | list):
        return type(value)(_resolve(item, symbols) for item in value)
    if isinstance(value, slice):
        return slice(*(_resolve(v, symbols) for v in (value.start, value.stop, value.step)))
    return value


def _solve(text: str, size: int, name: str, symbols: dict[str, int]) -> None:
    """The symbol of an expression that is linear in it, such as n or 2*n+1."""
    one, two = (size_of(text, {**symbols, name: n}) for n in (1, 2))
    found = 1 + (size - one) // (two - one) if two != one else 0
    if size_of(text, {**symbols, name: found}) == size:
        symbols[name] = found


def _check(label: str, type_: Type, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    """The stated shape holds; symbols get the sizes that they are seen to have."""
    if len(shape) != len(type_.shape):
        raise OracleError(f"%{label}: stated [{', '.join(type_.shape)}], found {shape}")
    for text, size in zip(type_.shape, shape, strict=True):
        unknown = [name for name in set(_SYMBOL.findall(text)) if name not in symbols]
        if len(unknown) == 1:
            _solve(text, size, unknown[0], symbols)
        try:
            stated = size_of(text, symbols)
        except KeyError:
            continue  # an expression of a symbol that shows up later
        if stated != size:
            raise OracleError(f"%{label}: stated size {text} = {stated}, found shape {shape}")


def bind(function: Callable[..., Any], node: Node, values: Mapping[str, Any]) -> tuple[list, dict]:
    """Arguments of an op's function: operands by position, known keys and attributes by name."""
    parameters = list(inspect.signature(function).parameters.values())
    attrs = dict(node.attrs)
    args: list[Any] = []
    for i, label in enumerate(node.operands):
        parameter = parameters[min(i, len(parameters) - 1)]
        if label is not None:
            args.append(values[label])
        elif parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            args.append(attrs.pop(parameter.name, parameter.default))
    return args, attrs


def run(
    graph: Graph,
    inputs: Mapping[str, Any],
    ops: Mapping[str, Callable[..., Any]],
    given: Callable[[Any, Type], Any] = _given,
) -> Result:
    """Interprets a graph with a table of op functions."""
    symbols: dict[str, int] = {}
    values: dict[str, Any] = {}
    for name, type_, _ in graph.inputs:
        values[name] = given(inputs[name], type_)
        if type_.dtype is not None:
            _check(name, type_, tuple(values[name].shape), symbols)
    for node in graph.nodes:
        if node.op not in ops:
            raise OracleError(f"line {node.line}: the oracle has no op {node.op!r}")
        args, attrs = bind(ops[node.op], node, values)
        attrs = {name: _resolve(value, symbols) for name, value in attrs.items()}
        results = ops[node.op](*(_resolve(a, symbols) for a in args), **attrs)
        results = results if len(node.results) > 1 else (results,)
        for label, type_, value in zip(node.results, node.types, results, strict=True):
            values[label] = value
            if type_.dtype is not None:
                _check(label, type_, tuple(value.shape), symbols)
    return Result(
        {name: values[label] for name, label in graph.outputs},
        {name: values[label] for name, label, _ in graph.states},
    )


def evaluate(text: str, inputs: Mapping[str, Any], *, float_dtype: str = "float64") -> Result:
    """Outputs and next states of a graph (as `mithril.inspect.dump(physical_model)` gives it).

    `inputs` has a value for every input; `float_dtype` decides what random numbers are.
    """
    from mithril.testing.oracle_ops import ops_for

    with np.errstate(all="ignore"):
        return run(parse(text), inputs, ops_for(float_dtype))


__all__ = ["DType", "Graph", "OracleError", "Result", "evaluate", "parse", "run"]

"""Rows: the ggml backend beside ggml by hand (ggml-python): a call, and one token of GPT-2."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import (
    OURS,
    Contender,
    Settings,
    compare,
    print_comparison,
    print_target,
)
from benchmarks.models import gpt2

BY_HAND = "ggml by hand"
CONTEXT = 64 << 20  # bytes for the structs of tensors
X = np.array([1.0, -2.0, 3.0, -4.0], np.float32)


class Hand:
    """A ggml graph as people write it with ggml-python; memory by ggml's own allocator."""

    def __init__(self, threads: int) -> None:
        import ggml

        self.g = ggml
        self.context = ggml.ggml_init(ggml.ggml_init_params(CONTEXT, None, True))
        self.backend = ggml.ggml_backend_cpu_init()
        ggml.ggml_backend_cpu_set_n_threads(self.backend, threads)
        self._kept: list[Any] = []

    def leaf(self, array: np.ndarray, kind: int | None = None) -> Any:
        """A tensor over the memory of an array, converted where a type is given."""
        g, ne = self.g, array.shape[::-1]
        plain = g.GGML_TYPE_F32 if array.dtype == np.float32 else g.GGML_TYPE_I32
        sizes = (*ne, *[1] * (4 - len(ne)))
        tensor = g.ggml_new_tensor_4d(self.context, plain if kind is None else kind, *sizes)
        if kind is not None:
            array = self._converted(array, kind)
        self._kept.append(array)
        tensor.contents.data = array.ctypes.data
        return tensor

    def _converted(self, array: np.ndarray, kind: int) -> np.ndarray:
        rows, columns = array.shape
        made = np.empty(rows * self.g.ggml_row_size(kind, columns), np.uint8)
        source = array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self.g.ggml_quantize_chunk(kind, source, made.ctypes.data, 0, rows, columns, None)
        return made

    def op(self, name: str, *operands: Any) -> Any:
        return getattr(self.g, f"ggml_{name}")(self.context, *operands)

    def finish(self, output: Any) -> Callable[[], np.ndarray]:
        """Computes the graph; the result is a copy."""
        g = self.g
        g.ggml_set_output(output)
        graph = g.ggml_new_graph_custom(self.context, 4096, False)
        g.ggml_build_forward_expand(graph, output)
        self._allocator = g.ggml_gallocr_new(g.ggml_backend_get_default_buffer_type(self.backend))
        assert g.ggml_gallocr_alloc_graph(self._allocator, graph)
        size = g.ggml_nelements(output)
        values = np.ctypeslib.as_array(
            ctypes.cast(output.contents.data, ctypes.POINTER(ctypes.c_float)), (size,)
        )

        def run() -> np.ndarray:
            g.ggml_backend_graph_compute(self.backend, graph)
            return values.copy()

        return run


# --- the overhead of a call ----------------------------------------------------------------------


def our_exponential(settings: Settings) -> Contender:
    import mithril as ml

    model = ml.Model()
    model |= ml.Exponential()(input="x", output="y")
    model.expose_keys("y")
    backend = ml.GGMLBackend(threads=settings.threads)
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [4]}, inference=True)
    return Contender(lambda: pm.evaluate({}, {"x": X}), lambda: pm.evaluate({}, {"x": X}))


def exponential_by_hand(settings: Settings) -> Contender:
    hand = Hand(settings.threads)
    run = hand.finish(hand.op("exp", hand.leaf(X)))
    return Contender(run, lambda: {"y": run()})


def overhead(settings: Settings) -> None:
    comparison = compare({BY_HAND: exponential_by_hand, OURS: our_exponential}, settings)
    print_comparison("exp of 4 numbers on ggml: the overhead of a call", comparison)
    ours, hand = comparison.of(OURS), comparison.of(BY_HAND)
    more = 1e6 * (ours.median - hand.median) if ours and hand else None
    print_target("more than ggml by hand", more, 15, True, " us")


# --- one token of GPT-2 --------------------------------------------------------------------------

TOKEN = 464
QUANTIZED = {"float32": None, "q8_0": 8}


@functools.cache
def parameters() -> tuple[tuple[str, ...], tuple[np.ndarray, ...]]:
    import mithril as ml

    pm = ml.compile(
        gpt2.gpt2(), ml.NumpyBackend(), data_keys={"tokens", "places"},
        shapes={"tokens": [1, 1], "places": [1, 1]}, types={"tokens": "int32", "places": "int32"},
    )  # fmt: skip
    names = tuple(key for key in pm.param_keys)
    return names, tuple(gpt2.weights(list(names), pm.get_shapes()))


def our_token(kind: str, settings: Settings) -> Contender:
    import mithril as ml

    backend = ml.GGMLBackend(threads=settings.threads, quantize=None if kind == "float32" else kind)
    pm = ml.compile(
        gpt2.gpt2(), backend, data_keys={"tokens", "places"}, inference=True,
        shapes={"tokens": [1, 1], "places": [1, 1]}, types={"tokens": "int32", "places": "int32"},
    )  # fmt: skip
    params = dict(zip(*parameters(), strict=True))
    data = {"tokens": np.array([[TOKEN]], np.int32), "places": np.zeros((1, 1), np.int32)}
    if kind != "float32":
        pm, params = pm.bind(params), {}
    return Contender(
        lambda: pm.evaluate(params, data),
        lambda: {"y": pm.evaluate(params, data)["logits"].ravel()},
    )


def token_by_hand(kind: str, settings: Settings) -> Contender:
    hand, (_, weights) = Hand(settings.threads), parameters()
    op, blocks = hand.op, QUANTIZED[kind]
    wte, wpe, *rest = weights
    number, place = (hand.leaf(np.array([n], np.int32)) for n in (TOKEN, 0))
    x = op("add", op("get_rows", hand.leaf(wte), number), op("get_rows", hand.leaf(wpe), place))
    for i in range(gpt2.LAYERS):
        x = _block_by_hand(hand, x, rest[12 * i : 12 * i + 12], blocks)
    x = _norm_by_hand(hand, x, *rest[-2:])
    run = hand.finish(op("mul_mat", hand.leaf(wte, blocks), x))
    return Contender(run, lambda: {"y": run()})


def _norm_by_hand(hand: Hand, x: Any, scale: np.ndarray, shift: np.ndarray) -> Any:
    normed = hand.op("norm", x, 1e-5)
    return hand.op("add", hand.op("mul", normed, hand.leaf(scale)), hand.leaf(shift))


def _linear_by_hand(hand: Hand, x: Any, w: np.ndarray, b: np.ndarray, kind: int | None) -> Any:
    return hand.op("add", hand.op("mul_mat", hand.leaf(w, kind), x), hand.leaf(b.reshape(-1)))


def _block_by_hand(hand: Hand, x: Any, own: list[np.ndarray], kind: int | None) -> Any:
    op, width, heads = hand.op, gpt2.WIDTH, gpt2.HEADS
    qkv = _linear_by_hand(hand, _norm_by_hand(hand, x, *own[:2]), *own[2:4], kind)
    head = width // heads
    q, k, v = (
        op("view_4d", qkv, head, heads, 1, 1, 4 * head, 4 * 3 * width, 4 * 3 * width, 4 * i * width)
        for i in range(3)
    )
    q, k = (op("cont", op("permute", part, 0, 2, 1, 3)) for part in (q, k))
    scores = op("soft_max_ext", op("mul_mat", k, q), None, head**-0.5, 0.0)
    turned = op("cont", op("permute", v, 1, 2, 0, 3))
    mixed = op("cont", op("permute", op("mul_mat", turned, scores), 0, 2, 1, 3))
    joined = op("reshape_2d", mixed, width, 1)
    x = op("add", x, _linear_by_hand(hand, joined, *own[4:6], kind))
    hidden = _linear_by_hand(hand, _norm_by_hand(hand, x, *own[6:8]), *own[8:10], kind)
    return op("add", x, _linear_by_hand(hand, op("gelu", hidden), *own[10:12], kind))


def one_token(kind: str, settings: Settings) -> None:
    contenders = {BY_HAND: partial(token_by_hand, kind), OURS: partial(our_token, kind)}
    comparison = compare(contenders, settings, 0.02)
    print_comparison(f"GPT-2 124M, one token on ggml, weights {kind}", comparison)
    print_target("speed of ggml by hand", comparison.ratio(BY_HAND), 0.95, False, "x")


ROWS: dict[str, Callable[[Settings], None]] = {
    "ggml-overhead": overhead,
    **{f"ggml-gpt2-token-{kind}": partial(one_token, kind) for kind in QUANTIZED},
}

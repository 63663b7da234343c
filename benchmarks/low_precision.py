"""Rows: weights in fewer bits on the CPU engine, beside PyTorch in float32 and bfloat16."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import nets
from benchmarks.harness import (
    OURS,
    Contender,
    Settings,
    compare,
    duration,
    print_comparison,
    print_target,
)
from benchmarks.machine import memory_rate
from benchmarks.models import gpt2

TORCH, TORCH_BF16, FLOAT32 = "PyTorch", "PyTorch bfloat16", "mithril float32"
BITS = {"bfloat16": 16.0, "int8": 8.5, "int4": 4.5}
# Tokens a second of llama.cpp (Q8_0 and Q4_0) on one and two cores of a Sapphire Rapids, measured
# apart: it isn't one of the contenders.
LLAMA = {1: {"int8": 73, "int4": 96}, 2: {"int8": 133, "int4": 223}}
TOLERANCE = 0.1  # of formats, not of kernels: the tests have these
DECODED_TOLERANCE = 0.4  # four bits lose 0.25 over the layers, by the same rounding in PyTorch, too
WIDTHS = (3 * gpt2.WIDTH, gpt2.WIDTH, 4 * gpt2.WIDTH, gpt2.WIDTH)  # of a block's products


# --- products with one row ------------------------------------------------------------------------


@functools.cache
def stream_weights() -> tuple[np.ndarray, ...]:
    """Every matrix of GPT-2 124M that a token is multiplied by, as layers have them."""
    rng = np.random.default_rng(0)
    sizes, width = [], gpt2.WIDTH
    for out in (*WIDTHS * gpt2.LAYERS, gpt2.VOCABULARY):
        sizes.append((out, width))
        width = gpt2.WIDTH if out == 3 * gpt2.WIDTH else out
    return tuple(
        rng.standard_normal(size, dtype=np.float32) / np.float32(size[1] ** 0.5) for size in sizes
    )


def stream_row() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, gpt2.WIDTH), dtype=np.float32)


def our_stream(weights: str | None, settings: Settings) -> Contender:
    import mithril as ml

    model, wire = ml.Model(), "x"
    for i, w in enumerate(stream_weights()):
        model |= ml.Linear(len(w), use_bias=False)(input=wire, weight=f"w_{i}", output=f"y_{i}")
        wire = f"y_{i}"
        if len(w) == 3 * gpt2.WIDTH:
            part = getattr(model, wire)[:, : gpt2.WIDTH]
            model |= ml.Buffer()(input=part, output=f"part_{i}")
            wire = f"part_{i}"
    model.expose_keys(wire)
    backend, x = ml.CpuBackend(threads=settings.threads), stream_row()
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [1, gpt2.WIDTH]}, inference=True)
    params = {f"w_{i}": w for i, w in enumerate(stream_weights())}
    evaluate = pm.bind(params, weights=weights).evaluate
    return Contender(lambda: evaluate({}, {"x": x}), lambda: {"y": evaluate({}, {"x": x})[wire]})


def torch_stream(bfloat16: bool, settings: Settings) -> Contender:
    import torch

    torch.set_num_threads(settings.threads)
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    weights = [torch.from_numpy(w).to(dtype) for w in stream_weights()]
    x = torch.from_numpy(stream_row()).to(dtype)

    def run() -> Any:
        y = x
        with torch.inference_mode():
            for w in weights:
                y = torch.nn.functional.linear(y, w)
                if len(w) == 3 * gpt2.WIDTH:
                    y = y[:, : gpt2.WIDTH]
        return y

    return Contender(run, lambda: {"y": run().float().numpy()})


def gemv_formats(settings: Settings) -> None:
    names = {weights: f"mithril {weights}" for weights in BITS}
    comparison = compare(
        {
            FLOAT32: partial(our_stream, None),
            TORCH: partial(torch_stream, False),
            TORCH_BF16: partial(torch_stream, True),
            **{name: partial(our_stream, weights) for weights, name in names.items()},
        },
        settings,
        TOLERANCE,
    )
    count, memory = sum(w.size for w in stream_weights()), memory_rate()
    bits = {FLOAT32: 32, TORCH: 32, TORCH_BF16: 16, **{names[w]: BITS[w] for w in BITS}}
    print(f"\nGPT-2 124M: every weight meets one row ({count / 1e6:.0f} M weights)")
    if memory:
        print(f"  memory is read at {memory / 1e9:.1f} GB/s by one thread (C, 512 MB)")
    print(
        f"  {'contender':<24}{'median':>12}{'a second':>12}{'GB/s':>12}{'% of it':>9}{'off by':>9}"
    )
    for timing in comparison.timings:
        rate = count * bits[timing.name] / 8 / timing.median
        off = "" if timing.difference is None else f"{timing.difference:.0e}"
        print(
            f"  {timing.name:<24}{duration(timing.median):>12}{1 / timing.median:>12.0f}"
            f"{rate / 1e9:>12.1f}{f'{100 * rate / memory:.0f}' if memory else '':>9}{off:>9}"
        )
    for weights, tokens in LLAMA.get(settings.threads, {}).items():
        ours = comparison.of(names[weights])
        ratio = 1 / ours.median / tokens if ours else None
        factor = {"int8": 1.1, "int4": 1.5}[weights]
        print_target(f"{weights} against llama.cpp's tokens", ratio, factor, False, "x")


# --- whole models ---------------------------------------------------------------------------------


def bfloat16(net_of: Callable[[], nets.Net], settings: Settings) -> None:
    net = net_of()
    comparison = compare(
        {
            FLOAT32: net.ours,
            TORCH_BF16: partial(net.torch, bfloat16=True),
            OURS: partial(net.ours, weights="bfloat16"),
        },
        settings,
        TOLERANCE,
    )
    print_comparison(f"{net.title}: bfloat16 weights", comparison)
    print_target("against PyTorch in bfloat16", comparison.ratio(TORCH_BF16), 1.0, False, "x")


def decoding(settings: Settings) -> None:
    net = nets.Gpt2Decoding()
    names = {weights: f"mithril {weights}" for weights in BITS}
    comparison = compare(
        {
            FLOAT32: net.ours,
            TORCH_BF16: partial(net.torch, bfloat16=True),
            **{name: partial(net.ours, weights=weights) for weights, name in names.items()},
        },
        settings,
        DECODED_TOLERANCE,
    )
    print_comparison(f"{net.title}, weights in fewer bits", comparison)
    nets.print_tokens(comparison)
    for weights, tokens in LLAMA.get(settings.threads, {}).items():
        ours = comparison.of(names[weights])
        ratio = nets.DECODED / ours.median / tokens if ours else None
        print_target(f"{weights} against llama.cpp's {tokens} tokens/s", ratio, 1.0, False, "x")


ROWS: dict[str, Callable[[Settings], None]] = {
    "engine-gpt2-bf16": partial(bfloat16, nets.Gpt2),
    "engine-vit-bf16": partial(bfloat16, nets.Vit),
    "engine-gpt2-decode-bits": decoding,
    "gemv-formats": gemv_formats,
}

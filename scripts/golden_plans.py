"""Writes what the engine plans for a table of models: steps, loops, addresses, and emitted source.

    python scripts/golden_plans.py --write     # tests/data/golden_plans/*.json.xz
    python scripts/golden_plans.py             # prints how today's plans differ from those

A refactoring leaves all of it as it is; a change on purpose is a commit of its own that says why.
Plans are those of one thread and AVX2, whatever machine it runs on; sizes of scratch and of chunks,
which follow from caches, are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "data" / "golden_plans"
_OF_THE_MACHINE = re.compile(r", scratch \d+ bytes a thread|; \d+ units by \d+")


def models() -> Iterator[tuple[str, Callable[[], Any], dict[str, Any]]]:
    """Name, builder and options of `ml.compile` for each entry; the last ones hold the sizes."""
    import mithril as ml

    from benchmarks.models import flux, gpt2, resnet, vit

    def chain(*layers: Any) -> Callable[[], Any]:
        def build() -> Any:
            model = ml.Model()
            model |= layers[0]()(ml.IOKey("x"), output="h_0")
            for i, layer in enumerate(layers[1:]):
                model |= layer()(f"h_{i}", output=f"h_{i + 1}")
            model.expose_keys(f"h_{len(layers) - 1}")
            return model

        return build

    def trained(build: Callable[[], Any], loss: Callable[[], Any]) -> Callable[[], Any]:
        def make() -> Any:
            model = build()
            train = ml.TrainModel(model)
            train.add_loss(loss(), input=next(iter(model.output_keys)), target="target")
            return train

        return make

    def outputs_of(layer: Any) -> Any:
        model = ml.Model()
        keys = list(layer.output_keys)
        model |= layer("x", **{key: key for key in keys})
        model.expose_keys(*keys)
        return model

    relu = ml.Relu
    dense = lambda n: lambda: ml.Linear(n)  # noqa: E731
    mlp = chain(dense(128), relu, dense(128), relu, dense(10))
    of = {"shapes": {"x": [32, 64]}, "data_keys": {"x"}}
    yield "mlp", mlp, of
    yield "mlp inference", mlp, {**of, "inference": True}
    yield "mlp float64", mlp, {**of, "dtype": "float64"}
    yield "mlp bfloat16", mlp, {**of, "dtype": "bfloat16"}
    yield "mlp float16", mlp, {**of, "dtype": "float16"}
    yield "mlp open batch", mlp, {**of, "shapes": {"x": [None, 64]}, "sizes": {"x": [7, 64]}}
    yield "mlp of passes off", mlp, {**of, "passes": ["-fuse"]}
    yield "mlp without epilogues", mlp, {**of, "passes": ["-epilogues"]}
    cost = trained(mlp, lambda: ml.CrossEntropy(input_type="logits"))
    step = {"shapes": {"x": [32, 64], "target": [32]}, "data_keys": {"x", "target"}}
    for optimizer in ("SGD", "Momentum", "Adam", "AdamW"):
        yield f"mlp step {optimizer}", cost, {**step, "optimizer": optimizer}
    yield "mlp step streamed", cost, {**step, "optimizer": "Adam", "stream_gradients": True}
    yield "mlp squared error", trained(mlp, ml.SquaredError), {
        "shapes": {"x": [4, 64], "target": [4, 10]}, "data_keys": {"x", "target"}}  # fmt: skip

    image = {"shapes": {"x": [2, 8, 16, 16]}, "data_keys": {"x"}}
    conv = lambda **options: lambda: ml.Conv2d(filters=16, **options)  # noqa: E731
    windows = {
        "winograd": {"kernel_size": 3, "padding": 1},
        "strided": {"kernel_size": 3, "stride": 2, "padding": 1},
        "pointwise": {"kernel_size": 1},
        "groups": {"kernel_size": 3, "groups": 4},
        "dilated": {"kernel_size": 3, "dilation": 2},
    }
    for name, window in windows.items():
        yield f"convolution {name}", chain(conv(**window), relu), image
    norm = lambda: ml.BatchNorm2D(mode=None)  # noqa: E731
    yield "cnn", chain(conv(kernel_size=3), norm, relu, lambda: ml.MaxPool2D(2), ml.Flatten), image
    yield "average pool", chain(lambda: ml.AvgPool2D(3, stride=2)), image
    yield "transposed convolution", chain(lambda: ml.ConvTranspose2D(kernel_size=3, filters=4)), {
        **image, "inference": True}  # fmt: skip
    yield "convolution 1d", chain(lambda: ml.Conv1d(filters=6, kernel_size=5)), {
        "shapes": {"x": [2, 4, 32]}, "data_keys": {"x"}}  # fmt: skip
    small = (8, 16, 16, 32)
    for depth in (18, 50):
        of_depth = {"shapes": {"image": [1, 3, 64, 64]}, "data_keys": {"image"}}
        yield f"resnet{depth}", lambda depth=depth: resnet.resnet(depth, 10, small), of_depth
        limited = {**of_depth, "memory_limit": 6 << 20}
        yield f"resnet{depth} limited", lambda depth=depth: resnet.resnet(depth, 10, small), limited
    tokens = {
        "shapes": {"tokens": [1, 16], "places": [1, 16]},
        "data_keys": {"tokens", "places"},
    }
    yield "gpt2", lambda: gpt2.gpt2(2, 32, 4, 50, 64), tokens
    yield "gpt2 inference", lambda: gpt2.gpt2(2, 32, 4, 50, 64), {**tokens, "inference": True}
    open_tokens = {"shapes": {"tokens": [1, None], "places": [1, None]},
                   "sizes": {"tokens": [1, 9], "places": [1, 9]}}  # fmt: skip
    yield "gpt2 open", lambda: gpt2.gpt2(2, 32, 4, 50, 64), {**tokens, **open_tokens}
    yield "gpt2 with a cache", lambda: gpt2.gpt2(1, 32, 4, 50, 64, cache_size=64), {
        **tokens, **open_tokens, "inference": True}  # fmt: skip
    yield (
        "gpt2 step",
        lambda: gpt2.training(16, 1, 32, 4, 50, 64),
        {
            "shapes": {**tokens["shapes"], "target": [16]},
            "data_keys": {"tokens", "places", "target"},
            "optimizer": "AdamW",
        },
    )
    yield "vit", lambda: vit.vit(32, 8, 2, 32, 4, 10), {
        "shapes": {"image": [1, 3, 32, 32]}, "data_keys": {"image"}}  # fmt: skip
    yield (
        "flux",
        lambda: flux.flux(1, 32, 4),
        {
            "shapes": {"img_0": [1, 8, 32], "txt_0": [1, 4, 32], "vector": [1, 32]},
            "data_keys": {"img_0", "txt_0", "vector"},
        },
    )

    sequence = {"shapes": {"x": [2, 6, 8]}, "data_keys": {"x"}}
    for layer in ("SimpleRNN", "GRU", "LSTM"):
        yield layer, chain(lambda layer=layer: getattr(ml, layer)(8)), sequence
    yield "LSTM both ways", chain(lambda: ml.LSTM(8, bidirectional=True)), sequence
    yield (
        "multi-head attention",
        chain(lambda: ml.MultiHeadAttention(num_heads=2, embed_dim=8)),
        sequence,
    )
    yield "while", lambda: _while(ml), {"shapes": {"x": [3]}, "inference": True}
    yield "cond", lambda: _cond(ml), {"shapes": {"x": [3], "flag": []}, "data_keys": {"flag"}}

    table = {"shapes": {"x": [6, 10]}, "data_keys": set(), "trainable_keys": {"x"}}
    rows: dict[str, Callable[[], Any]] = {
        "softmax": lambda: ml.Softmax(axis=-1),
        "layer norm": ml.LayerNorm,
        "rms norm": ml.RMSNorm,
        "gelu": ml.Gelu,
        "log softmax": lambda: ml.LogSoftmax(axis=1),
        "logsumexp": lambda: ml.LogSumExp(axis=0),
        "mean": lambda: ml.Mean(axis=0),
        "variance": lambda: ml.Variance(axis=1),
        "cumulative sum": lambda: ml.CumSum(axis=1),
        "sort": ml.Sort,
        "transpose": ml.Transpose,
        "slice": lambda: ml.Indexer(index=(slice(1, 5), slice(None, None, 2))),
        "dropout": lambda: ml.Dropout(p=0.5),
        "max": lambda: ml.Max(axis=1),
        "min": lambda: ml.Min(axis=0),
    }
    for name, layer in rows.items():
        yield name, chain(layer), table
    square = {"shapes": {"x": [4, 5, 5]}, "data_keys": set(), "trainable_keys": {"x"}}
    yield "determinant", chain(ml.Determinant), square
    for layer in ("QR", "SVD"):
        yield layer, lambda layer=layer: outputs_of(getattr(ml, layer)()), square
    yield "RFFT", lambda: outputs_of(ml.RFFT()), table
    yield "top k", lambda: outputs_of(ml.TopK(3)), table


def further_models() -> Iterator[tuple[str, Callable[[], Any], dict[str, Any]]]:
    """The same for weights in few bits, loops over an axis, and the digits' training."""
    import mithril as ml

    from benchmarks.models import gpt2
    from examples import digits

    def mlp() -> Any:
        model = ml.Model()
        model |= ml.Linear(128)(ml.IOKey("x"), output="hidden")
        model |= ml.Relu()("hidden", output="active")
        model |= ml.Linear(64)("active", output="y")
        model.expose_keys("y")
        return model

    of = {"shapes": {"x": [32, 64]}, "data_keys": {"x"}, "inference": True}
    for weights in ("int8", "int4", "bfloat16"):
        yield f"mlp bound in {weights}", mlp, {**of, "weights": weights}
    tokens = {"tokens": [1, 16], "places": [1, 16]}
    yield (
        "gpt2 bound in int8",
        lambda: gpt2.gpt2(1, 64, 4, 50, 64),
        {"shapes": tokens, "data_keys": set(tokens), "inference": True, "weights": "int8"},
    )
    scan = {"shapes": {"x": [6, 2, 8], "start": [2, 8]}, "data_keys": {"x", "start"}}
    yield "scan", lambda: _scan(ml), scan
    yield "scan backwards", lambda: _scan(ml, reverse=True), {**scan, "inference": True}
    yield (
        "digits step",
        lambda: digits.training(digits.network()),
        {
            "shapes": {"image": [32, 1, 8, 8], "label": [32]},
            "data_keys": {"image", "label"},
            "optimizer": "Adam",
        },
    )


# File -> its entries. What a file has stays as it is: more entries are a file of their own.
FILES = {"plans.json.xz": models, "further_plans.json.xz": further_models}


def _scan(ml: Any, **options: Any) -> Any:
    step = ml.Model()
    step |= ml.Linear(8)(ml.IOKey("state"), output="moved")
    step |= ml.Add()("moved", "x", output="sum")
    step |= ml.Tanh()("sum", output="next")
    step |= ml.Multiply()("next", "next", output="square")
    step.expose_keys("next", "square")
    model = ml.Model()
    scan = ml.Scan(step, carry={"state": "next"}, xs=["x"], ys={"square": "y"}, **options)
    model |= scan(state="start", x="x", next="last", y="y")
    model.expose_keys("y", "last")
    return model


def _while(ml: Any) -> Any:
    doubled = ml.Model.create(next=ml.IOKey("value") * 2.0)
    is_small = ml.Model.create(small=ml.IOKey("value").sum() < 100.0)
    model = ml.Model()
    model |= ml.While(is_small, doubled, carry={"value": "next"})(value="x", next="y")
    model.expose_keys("y")
    return model


def _cond(ml: Any) -> Any:
    taken, other = ml.Model.create(y=ml.IOKey("x") * 2.0), ml.Model.create(y=ml.IOKey("x") - 1.0)
    model = ml.Model()
    model |= ml.Cond(taken, other)(predicate="flag", x="x", y="y")
    model.expose_keys("y")
    return model


def text_of(build: Callable[[], Any], options: dict[str, Any], folder: Path) -> str:
    """One entry: the explanation of every program, plans and loops, and the source for NumPy."""
    import mithril as ml

    options = dict(options)
    dtype, sizes = options.pop("dtype", "float32"), options.pop("sizes", None)
    weights = options.pop("weights", None)
    if "optimizer" in options:
        options["optimizer"] = getattr(ml.optim, options["optimizer"])(lr=0.1)
    shutil.rmtree(folder)
    folder.mkdir()

    def compiled(backend: Any) -> Any:
        pm = ml.compile(build(), backend, **options)
        return pm if weights is None else pm.bind(pm.get_parameters(), weights=weights)

    pm = compiled(ml.CpuBackend(threads=1, dtype=dtype))
    told = []
    for program in ("evaluate", "gradient", "step"):
        with contextlib.suppress(ml.errors.KeyNotFound):  # there is no such program
            told.append(f"== {program}\n{pm.explain(shapes=sizes, program=program)}")
            last = program
    run(pm, sizes or options["shapes"], last, options.get("optimizer"))
    for path in sorted(path for path in folder.rglob("*.*") if path.suffix in (".txt", ".tile")):
        told.append(f"== {path.relative_to(folder)}\n{path.read_text()}")
    if not {"optimizer", "memory_limit", "stream_gradients"} & set(options) and dtype != "bfloat16":
        told.append(compiled(ml.NumpyBackend(dtype=dtype)).source)
    return _OF_THE_MACHINE.sub("", "\n".join(told))


def run(pm: Any, shapes: dict[str, list[int]], program: str, optimizer: Any) -> None:
    """Makes the engine plan for these sizes."""
    import numpy as np

    params = pm.randomize_params()
    data = {}
    for key, shape in shapes.items():
        if key in ("tokens", "places", "label") or (key == "target" and len(shape) == 1):
            data[key] = np.zeros(shape, np.int64)
        elif key not in params:
            data[key] = np.ones(shape, bool if key == "flag" else pm.backend.default_dtype.numpy())
    state = {"state": pm.initial_state()} if pm.state_keys else {}
    outputs = pm.evaluate(params, data, **state)
    outputs = outputs[0] if state else outputs
    if program == "gradient":
        ones = {key: np.ones_like(y) for key, y in outputs.items() if y.dtype.kind not in "ib"}
        pm.evaluate(params, data, output_gradients=ones, **state)
    elif program == "step":
        pm.step(params, optimizer.init(params), data, **state)


def collect() -> dict[str, dict[str, str]]:
    """File -> name -> text, of this very process, whose environment says what the engine takes."""
    folder = Path(os.environ["MITHRIL_DUMP"])
    return {
        file: {name: text_of(build, options, folder) for name, build, options in entries()}
        for file, entries in FILES.items()
    }


def today() -> dict[str, dict[str, str]]:
    """The same from a process for AVX2."""
    with tempfile.TemporaryDirectory() as folder:
        env = {
            "MITHRIL_CPU_ISA": "avx2",
            "MITHRIL_DUMP": folder,
            "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT / "python"), str(ROOT)]),
        }
        script = [sys.executable, __file__, "--collect"]
        return json.loads(subprocess.check_output(script, env={**os.environ, **env}, cwd=ROOT))


def stored() -> dict[str, dict[str, str]]:
    return {file: json.loads(lzma.decompress((GOLDEN / file).read_bytes())) for file in FILES}


def differences(old: dict[str, dict[str, str]], new: dict[str, dict[str, str]]) -> list[str]:
    """Lines of a unified diff, entry by entry."""
    out = []
    for file, name in sorted({(f, name) for one in (old, new) for f in one for name in one[f]}):
        before, after = (one.get(file, {}).get(name, "").splitlines() for one in (old, new))
        out += difflib.unified_diff(before, after, f"stored: {name}", f"today: {name}", lineterm="")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--collect", action="store_true", help=argparse.SUPPRESS)
    wants = parser.parse_args()
    if wants.collect:
        print(json.dumps(collect()))
        return 0
    made = today()
    count = sum(map(len, made.values()))
    if wants.write:
        for file, texts in made.items():
            path = GOLDEN / file
            if path.exists() and json.loads(lzma.decompress(path.read_bytes())) == texts:
                continue  # compressed anew it might have other bytes
            path.write_bytes(lzma.compress(json.dumps(texts).encode(), preset=9))
        print(f"{count} entries, {sum((GOLDEN / file).stat().st_size for file in made)} bytes")
        return 0
    found = differences(stored(), made)
    print("\n".join(found) or f"{count} entries, as they are stored")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

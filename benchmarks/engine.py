"""Rows: the CPU engine beside its peers on whole models, and on single ops over rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tuned
from benchmarks.generated import by_hand, generated
from benchmarks.harness import (
    OURS,
    Contender,
    Settings,
    compare,
    print_comparison,
    print_target,
)
from benchmarks.models import generated as models
from benchmarks.models import gpt2

TORCH, JAX, ORT = "PyTorch eager", "JAX jit", "ONNX Runtime"
TUNED = "PyTorch, malloc tuned"
UNBOUND = "mithril, weights given"
TOKENS = 128
PROMPT, DECODED = 16, 48
ADAMW = {"lr": 1e-4, "weight_decay": 1e-2}


# --- ResNet-18 ------------------------------------------------------------------------------------


class Resnet18(models.Resnet18):
    def __init__(self, batch: int) -> None:
        self.title = f"ResNet-18, images [{batch}, 3, 224, 224]"
        self.data_shape, self.target_shape = (batch, 3, 224, 224), (batch, 1000)
        super().__init__()


def resnet18_inference(settings: Settings) -> None:
    job = Resnet18(1)
    comparison = compare(
        {
            TORCH: partial(by_hand, job, "torch", False, False),
            ORT: partial(resnet18_ort, job),
            JAX: partial(by_hand, job, "jax", True, False),
            OURS: partial(resnet18_bound, job),
            UNBOUND: partial(generated, job, "cpu", False, False),
        },
        settings,
        tolerance=1e-4,
    )
    print_comparison(f"{job.title}: inference", comparison)
    print_target("against ONNX Runtime", comparison.ratio(ORT), 1.4, False, "x")


def resnet18_bound(job: Any, settings: Settings) -> Contender:
    import mithril as ml

    backend = ml.CpuBackend(threads=settings.threads)
    shapes = {job.data_key: list(job.data.shape)}
    pm = ml.compile(job.model(), backend, data_keys={job.data_key}, shapes=shapes, mode="eval")
    bound = pm.bind({**job.weights, **job.constants})
    return _ours(bound, {job.data_key: job.data}, job.output)


def resnet18_ort(job: Any, settings: Settings) -> Contender:
    import torch

    library = models.Torch()

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            named = {**job.weights, **job.constants}
            self.names = list(named)
            values = [library.array(value) for value in named.values()]
            self.values = torch.nn.ParameterList(
                torch.nn.Parameter(value, requires_grad=False) for value in values
            )

        def forward(self, x: Any) -> Any:
            return job.by_hand(library, dict(zip(self.names, self.values, strict=True)), x)

    return _by_ort(Module(), job.data, settings)


def resnet18_step(settings: Settings) -> None:
    job = Resnet18(8)
    children: list[tuned.Child] = []
    comparison = compare(
        {
            TORCH: partial(by_hand, job, "torch", False, True),
            TUNED: partial(tuned.resnet18_step, 8, children=children),
            OURS: partial(generated, job, "cpu", False, True),
        },
        settings,
        tolerance=1e-3,
    )
    for child in children:
        child.close()
    print_comparison(f"{job.title}: gradients and update", comparison)
    print_target("against PyTorch, malloc tuned", comparison.ratio(TUNED), 1.5, False, "x")


# --- GPT-2 ----------------------------------------------------------------------------------------


class Gpt2:
    """The 124M size on one sequence; values are equal on both sides."""

    def __init__(self) -> None:
        import mithril as ml

        self.sizes = (gpt2.LAYERS, gpt2.WIDTH, gpt2.HEADS, gpt2.VOCABULARY, gpt2.PLACES)
        shape = [1, TOKENS]
        self.shapes = {"tokens": shape, "places": shape}
        keys = {"tokens", "places"}
        backend = ml.CpuBackend()
        pm = ml.compile(gpt2.gpt2(*self.sizes), backend, data_keys=keys, shapes=self.shapes)
        values = gpt2.weights(list(pm.param_keys), pm.shapes)
        self.params = dict(zip(pm.param_keys, values, strict=True))
        tokens = np.random.default_rng(1).integers(0, gpt2.VOCABULARY, shape)
        self.data = {"tokens": tokens, "places": np.arange(TOKENS)[None]}
        self.target = np.roll(tokens[0], -1)

    def ours(self, bind: bool, settings: Settings) -> Contender:
        import mithril as ml

        model = gpt2.gpt2(*self.sizes)
        backend = ml.CpuBackend(threads=settings.threads)
        keys = set(self.data)
        pm = ml.compile(model, backend, data_keys=keys, shapes=self.shapes, inference=True)
        if bind:
            return _ours(pm.bind(self.params), self.data, "logits")
        return _ours(pm, self.data, "logits", self.params)

    def module(self, settings: Settings) -> Any:
        import torch

        torch.set_num_threads(settings.threads)
        module = gpt2.torch_model(*self.sizes).eval()
        with torch.no_grad():
            pairs = zip(module.parameters(), self.params.values(), strict=True)
            for parameter, value in pairs:
                parameter.copy_(torch.from_numpy(value))
        return module

    def torch(self, settings: Settings) -> Contender:
        import torch

        module, tokens = self.module(settings), torch.from_numpy(self.data["tokens"])

        def run() -> Any:
            with torch.inference_mode():
                return module(tokens)

        return Contender(run, lambda: {"y": run().numpy()})

    def ort(self, settings: Settings) -> Contender:
        return _by_ort(self.module(settings), self.data["tokens"], settings)

    # --- a step of AdamW: what comes out are the costs of two steps, the second after the first's
    # update

    def our_step(self, settings: Settings) -> Contender:
        import mithril as ml

        model = ml.Model()
        model |= gpt2.gpt2(*self.sizes)(tokens="tokens", places="places", logits="logits")
        model |= ml.Reshape((TOKENS, gpt2.VOCABULARY))(input="logits", output="rows")
        model.expose_keys("rows")
        train = ml.TrainModel(model)
        train.add_loss(ml.CrossEntropy(input_type="logits"), input="rows", target="target")
        optimizer = ml.optim.AdamW(**ADAMW)
        backend = ml.CpuBackend(threads=settings.threads)
        shapes = {**self.shapes, "target": [TOKENS]}
        pm = ml.compile(train, backend, data_keys=set(shapes), shapes=shapes, optimizer=optimizer)
        data = {**self.data, "target": self.target}
        params = dict(zip(pm.param_keys, self.params.values(), strict=True))
        now = [params, optimizer.init(params)]

        def run() -> Any:
            now[0], now[1], _, outputs = pm.step(now[0], now[1], data)
            return outputs["final_cost"]

        return Contender(run, lambda: {"costs": np.array([run(), run()])})

    def torch_step(self, settings: Settings) -> Contender:
        import torch

        module, tokens = self.module(settings), torch.from_numpy(self.data["tokens"])
        optimizer = torch.optim.AdamW(module.parameters(), fused=True, **ADAMW)
        target = torch.from_numpy(self.target)

        def run() -> Any:
            optimizer.zero_grad()
            cost = torch.nn.functional.cross_entropy(module(tokens)[0], target)
            cost.backward()
            optimizer.step()
            return cost.detach().numpy()

        return Contender(run, lambda: {"costs": np.array([run(), run()])})


class Gpt2Decoding(Gpt2):
    """One token after the other behind a prompt, with what was computed of earlier ones kept."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(2)
        self.tokens = rng.integers(0, gpt2.VOCABULARY, (1, PROMPT + DECODED))

    def ours(self, bind: bool, settings: Settings) -> Contender:
        import mithril as ml

        model = gpt2.gpt2(*self.sizes, cache_size=PROMPT + DECODED)
        backend = ml.CpuBackend(threads=settings.threads)
        shapes = {"tokens": [1, None], "places": [1, None]}
        pm = ml.compile(model, backend, data_keys=set(shapes), shapes=shapes, inference=True)
        params = dict(zip(pm.param_keys, self.params.values(), strict=True))
        pm, params = (pm.bind(params), {}) if bind else (pm, params)

        def call(first: int, end: int, state: Any) -> Any:
            data = {"tokens": self.tokens[:, first:end], "places": np.arange(first, end)[None]}
            return pm.evaluate(params, data, state=state, donate_state=True)

        prompt = call(0, PROMPT, pm.initial_state()).state

        def run() -> Any:
            result = call(PROMPT, PROMPT + 1, prompt)  # writes behind the prompt only
            for at in range(PROMPT + 1, PROMPT + DECODED):
                result = call(at, at + 1, result.state)
            return result.outputs["logits"]

        return Contender(run, lambda: {"y": run()})

    def torch(self, settings: Settings) -> Contender:
        import torch

        module, tokens = self.module(settings), torch.from_numpy(self.tokens)
        shape = (1, gpt2.HEADS, PROMPT + DECODED, gpt2.WIDTH // gpt2.HEADS)
        caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in range(gpt2.LAYERS)]
        with torch.inference_mode():
            module(tokens[:, :PROMPT], caches)

        def run() -> Any:
            with torch.inference_mode():
                for at in range(PROMPT, PROMPT + DECODED):
                    logits = module(tokens[:, at : at + 1], caches, at)
            return logits

        return Contender(run, lambda: {"y": run().numpy()})


def gpt2_decoding(settings: Settings) -> None:
    settings.check_time()
    job = Gpt2Decoding()
    comparison = compare(
        {
            TORCH: job.torch,
            OURS: partial(job.ours, True),
            UNBOUND: partial(job.ours, False),
        },
        settings,
        tolerance=1e-3,
    )
    title = f"GPT-2 124M, float32: {DECODED} tokens behind {PROMPT}, with a cache"
    print_comparison(title, comparison)
    for timing in comparison.timings:
        print(f"  {timing.name}: {DECODED / timing.median:.1f} tokens/s")
    print_target("against PyTorch eager", comparison.ratio(TORCH), 1.0, False, "x")


def gpt2_inference(settings: Settings) -> None:
    job = Gpt2()
    comparison = compare(
        {
            TORCH: job.torch,
            ORT: job.ort,
            OURS: partial(job.ours, True),
            UNBOUND: partial(job.ours, False),
        },
        settings,
        tolerance=1e-3,
    )
    print_comparison(f"GPT-2 124M, [1, {TOKENS}] to all logits: inference", comparison)
    print_target("against ONNX Runtime", comparison.ratio(ORT), 1.1, False, "x")


def gpt2_step(settings: Settings) -> None:
    settings.check_time()
    job = Gpt2()
    factories = {TORCH: job.torch_step, OURS: job.our_step}
    comparison = compare(factories, settings, tolerance=1e-3)
    print_comparison(f"GPT-2 124M, [1, {TOKENS}]: a step of AdamW", comparison)
    print_target("against PyTorch eager, fused AdamW", comparison.ratio(TORCH), 1.2, False, "x")


# --- ops over rows --------------------------------------------------------------------------------


def rows_of(title: str, shape: tuple[int, ...], kind: str, settings: Settings) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    comparison = compare(
        {
            TORCH: partial(torch_rows, kind, x),
            JAX: partial(jax_rows, kind, x),
            OURS: partial(our_rows, kind, x),
        },
        settings,
        tolerance=1e-5,
    )
    print_comparison(f"{title} over {list(shape)}", comparison)
    rate = comparison.of(OURS)
    if rate is not None:
        print(f"  {OURS} reads and writes {2e-9 * x.nbytes / rate.median:.1f} GB/s")


def our_rows(kind: str, x: np.ndarray, settings: Settings) -> Contender:
    import mithril as ml

    ops: dict[str, Callable[[], Any]] = {
        "softmax": lambda: ml.Softmax(axis=-1),
        "layer_norm": lambda: ml.LayerNorm(use_scale=False, use_bias=False, eps=1e-5),
        "gelu": lambda: ml.Gelu(),
        "gelu_tanh": lambda: ml.Gelu(approximate=True),
    }
    model = ml.Model()
    model |= ops[kind]()(input="x", output="y")
    model.expose_keys("y")
    backend = ml.CpuBackend(threads=settings.threads)
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": list(x.shape)}, inference=True)
    return _ours(pm, {"x": x}, "y")


def torch_rows(kind: str, x: np.ndarray, settings: Settings) -> Contender:
    import torch

    torch.set_num_threads(settings.threads)
    functions = {
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
        "gelu": torch.nn.functional.gelu,
        "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    }
    array, function = torch.from_numpy(x), functions[kind]

    def run() -> Any:
        with torch.inference_mode():
            return function(array)

    return Contender(run, lambda: {"y": run().numpy()})


def jax_rows(kind: str, x: np.ndarray, settings: Settings) -> Contender:
    import jax

    def norm(x: Any) -> Any:
        return jax.nn.standardize(x, axis=-1, epsilon=1e-5)

    functions = {
        "softmax": jax.nn.softmax,
        "layer_norm": norm,
        "gelu": partial(jax.nn.gelu, approximate=False),
        "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    }
    array, function = jax.device_put(x), jax.jit(functions[kind])
    return Contender(
        lambda: function(array).block_until_ready(), lambda: {"y": np.asarray(function(array))}
    )


# --- shared ---------------------------------------------------------------------------------------


def _ours(pm: Any, data: dict, output: str, params: dict | None = None) -> Contender:
    evaluate, params = pm.evaluate, params or {}
    return Contender(lambda: evaluate(params, data), lambda: {"y": evaluate(params, data)[output]})


def _by_ort(module: Any, data: np.ndarray, settings: Settings) -> Contender:
    """What PyTorch exports of a module, run by ONNX Runtime with its default optimisations."""
    settings.check_time()
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        example = (torch.from_numpy(data),)
        torch.onnx.export(module.eval(), example, path, dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(path, options)
    feed = {session.get_inputs()[0].name: data}
    return Contender(lambda: session.run(None, feed), lambda: {"y": session.run(None, feed)[0]})


ROWS: dict[str, Callable[[Settings], None]] = {
    "engine-resnet18": resnet18_inference,
    "engine-resnet18-step": resnet18_step,
    "engine-gpt2": gpt2_inference,
    "engine-gpt2-step": gpt2_step,
    "engine-gpt2-decode": gpt2_decoding,
    "engine-softmax": partial(rows_of, "softmax", (1536, 128), "softmax"),
    "engine-layer-norm": partial(rows_of, "layer norm", (128, 768), "layer_norm"),
    "engine-gelu": partial(rows_of, "GELU", (1024, 3072), "gelu"),
    "engine-gelu-tanh": partial(rows_of, "GELU by tanh", (1024, 3072), "gelu_tanh"),
    "engine-softmax-large": partial(rows_of, "softmax", (16384, 768), "softmax"),
    "engine-layer-norm-large": partial(rows_of, "layer norm", (16384, 768), "layer_norm"),
}

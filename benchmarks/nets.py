"""Whole models with equal weights on both sides, and the contenders that run them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Contender, Factory, Settings
from benchmarks.machine import peak_rate
from benchmarks.models import adam, gpt2, vit
from benchmarks.models import generated as models
from benchmarks.ort import request_of, session_of

TOKENS = 128
PROMPT, DECODED = 16, 48
ADAMW = {"lr": 1e-4, "weight_decay": 1e-2}


class Net:
    """A model composed of ops, and the same by hand in PyTorch."""

    title = ""
    output = "logits"
    data: dict[str, np.ndarray]  # of the composed model; the first is all that PyTorch's takes
    params: dict[str, np.ndarray]

    def model(self) -> Any:
        raise NotImplementedError

    def by_hand(self) -> Any:
        """PyTorch's module; its parameters are in the order of `params`."""
        raise NotImplementedError

    @property
    def shapes(self) -> dict[str, list]:
        return {name: list(value.shape) for name, value in self.data.items()}

    def draw_params(self) -> None:
        import mithril as ml

        keys = set(self.data)
        pm = ml.compile(self.model(), ml.CpuBackend(), data_keys=keys, shapes=self.shapes)
        values = gpt2.weights(list(pm.param_keys), pm.shapes)
        self.params = dict(zip(pm.param_keys, values, strict=True))

    def compiled(
        self, settings: Settings, bind: bool, weights: str | None, backend_name: str
    ) -> tuple[Any, dict]:
        """The physical model, and the parameters that it has still to be given."""
        import mithril as ml

        backend = ml.get_backend(backend_name, threads=settings.threads)
        shapes = self.shapes
        pm = ml.compile(self.model(), backend, data_keys=set(shapes), shapes=shapes, inference=True)
        return (pm.bind(self.params, weights=weights), {}) if bind else (pm, self.params)

    def ours(
        self,
        settings: Settings,
        bind: bool = True,
        weights: str | None = None,
        backend_name: str = "cpu",
    ) -> Contender:
        pm, params = self.compiled(settings, bind, weights, backend_name)
        evaluate, data, output = pm.evaluate, self.data, self.output
        return Contender(
            lambda: evaluate(params, data), lambda: {"y": evaluate(params, data)[output]}
        )

    @functools.cached_property
    def module(self) -> Any:
        import torch

        module = self.by_hand().eval()
        with torch.no_grad():
            for parameter, value in zip(module.parameters(), self.params.values(), strict=True):
                parameter.copy_(torch.from_numpy(value).reshape(parameter.shape))
        return module

    @property
    def input(self) -> np.ndarray:
        return next(iter(self.data.values()))

    def torch(
        self, settings: Settings, bfloat16: bool = False, compiled: bool = False
    ) -> Contender:
        if compiled:
            settings.check_time()
        import torch

        torch.set_num_threads(settings.threads)
        module, array = self.module, torch.from_numpy(self.input)
        if bfloat16:
            module = copy.deepcopy(module).to(torch.bfloat16)
            array = array.to(torch.bfloat16) if array.is_floating_point() else array
        if compiled:
            module = torch.compile(module, options={"freezing": True})

        def run() -> Any:
            with torch.no_grad() if compiled else torch.inference_mode():
                return module(array)

        return Contender(run, lambda: {"y": run().float().numpy()})

    def ort(self, settings: Settings) -> Contender:
        session, name = session_of(self.module, self.input, settings)
        feed = {name: self.input}
        return Contender(lambda: session.run(None, feed), lambda: {"y": session.run(None, feed)[0]})

    def openvino(self, settings: Settings) -> Contender:
        request, feed = request_of(self.module, self.input, settings), [self.input]
        return Contender(
            lambda: request.infer(feed, share_inputs=True, share_outputs=True),
            lambda: {"y": np.array(request.infer(feed)[0])},
        )


# --- what is measured -----------------------------------------------------------------------------


class Resnet(Net):
    """ResNet-18 or 50 with the statistics of a trained model; `job` has its steps."""

    def __init__(self, depth: int, batch: int = 1, size: int = 224) -> None:
        self.job = models.Resnet(depth, (batch, 3, size, size))
        self.title = self.job.title
        self.data = {self.job.data_key: self.job.data}
        self.params = {**self.job.weights, **self.job.constants}

    def model(self) -> Any:
        return self.job.model()

    def by_hand(self) -> Any:
        import torch

        job, names, library = self.job, list(self.params), models.Torch()

        class Module(torch.nn.Module):
            def __init__(self, values: Any) -> None:
                super().__init__()
                arrays = map(library.array, values)
                self.values = torch.nn.ParameterList(
                    torch.nn.Parameter(array, requires_grad=False) for array in arrays
                )

            def forward(self, x: Any) -> Any:
                return job.by_hand(library, dict(zip(names, self.values, strict=True)), x)

        return Module(self.params.values())


class Vit(Net):
    title = f"ViT-B/{vit.PATCH}, image [1, 3, {vit.SIZE}, {vit.SIZE}]"

    def __init__(self) -> None:
        self.sizes = (vit.SIZE, vit.PATCH, vit.LAYERS, vit.WIDTH, vit.HEADS, vit.CLASSES)
        shape = (1, 3, vit.SIZE, vit.SIZE)
        self.data = {"image": np.random.default_rng(1).standard_normal(shape, dtype=np.float32)}
        self.draw_params()

    def model(self) -> Any:
        return vit.vit(*self.sizes)

    def by_hand(self) -> Any:
        return vit.torch_model(*self.sizes)


class Gpt2(Net):
    """The 124M size on one sequence."""

    title = f"GPT-2 124M, [1, {TOKENS}] to all logits"

    def __init__(self) -> None:
        self.sizes = (gpt2.LAYERS, gpt2.WIDTH, gpt2.HEADS, gpt2.VOCABULARY, gpt2.PLACES)
        tokens = np.random.default_rng(1).integers(0, gpt2.VOCABULARY, (1, TOKENS))
        self.data = {"tokens": tokens, "places": np.arange(TOKENS)[None]}
        self.target = np.roll(tokens[0], -1)
        self.draw_params()

    def model(self) -> Any:
        return gpt2.gpt2(*self.sizes)

    def by_hand(self) -> Any:
        return gpt2.torch_model(*self.sizes)

    # --- a step of AdamW: what comes out are the costs of two steps, the second after the first's
    # update

    def our_step(self, settings: Settings, stream_gradients: bool = False) -> Contender:
        import mithril as ml

        optimizer = ml.optim.AdamW(**ADAMW)
        shapes = {**self.shapes, "target": [TOKENS]}
        pm = ml.compile(
            gpt2.training(TOKENS, *self.sizes),
            ml.CpuBackend(threads=settings.threads),
            data_keys=set(shapes),
            shapes=shapes,
            optimizer=optimizer,
            stream_gradients=stream_gradients,
        )
        data = {**self.data, "target": self.target}
        params = dict(zip(pm.param_keys, map(np.copy, self.params.values()), strict=True))
        now = [params, optimizer.init(params)]
        del params  # else these arrays live as long as `run` does

        def run() -> Any:
            now[0], now[1], _, outputs = pm.step(now[0], now[1], data)
            return outputs["final_cost"]

        return Contender(run, lambda: {"costs": np.array([run(), run()])})

    def torch_step(self, settings: Settings) -> Contender:
        import torch

        torch.set_num_threads(settings.threads)
        module, tokens = copy.deepcopy(self.module), torch.from_numpy(self.input)
        optimizer = torch.optim.AdamW(module.parameters(), fused=True, **ADAMW)
        target = torch.from_numpy(self.target)

        def run() -> Any:
            optimizer.zero_grad()
            cost = torch.nn.functional.cross_entropy(module(tokens)[0], target)
            cost.backward()
            optimizer.step()
            return cost.detach().numpy()

        return Contender(run, lambda: {"costs": np.array([run(), run()])})

    def jax_step(self, settings: Settings) -> Contender:
        import jax
        import jax.numpy as jnp

        forward = gpt2.jax_forward(gpt2.LAYERS, gpt2.HEADS)
        tokens, target = jax.device_put((self.input, self.target))

        def loss(weights: Any) -> Any:
            chosen = jax.nn.log_softmax(forward(weights, tokens)[0])
            return -jnp.take_along_axis(chosen, target[:, None], 1).mean()

        def update(state: Any) -> Any:
            cost, gradients = jax.value_and_grad(loss)(state[0])
            return adam.jax_update(state, gradients, ADAMW["lr"], ADAMW["weight_decay"]), cost

        step = jax.jit(update, donate_argnums=0)
        state = adam.jax_state([jnp.array(value) for value in self.params.values()])

        def run() -> Any:
            nonlocal state
            state, cost = jax.block_until_ready(step(state))
            return np.asarray(cost)

        return Contender(run, lambda: {"costs": np.array([run(), run()])})


class Gpt2Decoding(Gpt2):
    """One token after the other behind a prompt, with what was computed of earlier ones kept."""

    title = f"GPT-2 124M: {DECODED} tokens behind {PROMPT}, with a cache"

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(2)
        self.tokens = rng.integers(0, gpt2.VOCABULARY, (1, PROMPT + DECODED))

    def model(self) -> Any:
        return gpt2.gpt2(*self.sizes, cache_size=PROMPT + DECODED)

    @property
    def shapes(self) -> dict[str, list]:
        return {"tokens": [1, None], "places": [1, None]}

    def ours(
        self,
        settings: Settings,
        bind: bool = True,
        weights: str | None = None,
        backend_name: str = "cpu",
    ) -> Contender:
        pm, params = self.compiled(settings, bind, weights, backend_name)

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

    def torch(
        self, settings: Settings, bfloat16: bool = False, compiled: bool = False
    ) -> Contender:
        import torch

        torch.set_num_threads(settings.threads)
        dtype = torch.bfloat16 if bfloat16 else torch.float32
        module = copy.deepcopy(self.module).to(dtype) if bfloat16 else self.module
        tokens = torch.from_numpy(self.tokens)
        shape = (1, gpt2.HEADS, PROMPT + DECODED, gpt2.WIDTH // gpt2.HEADS)
        caches = [[torch.zeros(shape, dtype=dtype) for _ in "kv"] for _ in range(gpt2.LAYERS)]
        with torch.inference_mode():
            module(tokens[:, :PROMPT], caches)

        def run() -> Any:
            with torch.inference_mode():
                for at in range(PROMPT, PROMPT + DECODED):
                    logits = module(tokens[:, at : at + 1], caches, at)
            return logits

        return Contender(run, lambda: {"y": run().float().numpy()})


# --- what is printed of them ----------------------------------------------------------------------


def count_work(run: Callable[[], Any]) -> float:
    """Floating point operations of products and convolutions that PyTorch runs, as it counts."""
    import torch
    from torch.utils import flop_counter

    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    unknown_to_it = {
        attention: lambda *shapes, **_: flop_counter.sdpa_flop_count(*shapes[:3]),
        backward: lambda *shapes, **_: flop_counter.sdpa_backward_flop_count(*shapes[:4]),
    }
    with flop_counter.FlopCounterMode(display=False, custom_mapping=unknown_to_it) as counter:
        run()
    return float(counter.get_total_flops())


def print_shares(comparison: Comparison, by_torch: Factory, settings: Settings) -> None:
    """Each contender's share of the float32 peak; `by_torch` does the same work."""
    peak = peak_rate()
    try:
        work = count_work(by_torch(settings).run)
    except ImportError:
        return
    if peak is None:
        return
    peak *= 1e9 * settings.threads
    shares = (
        f"{timing.name} {100 * work / timing.median / peak:.0f} %" for timing in comparison.timings
    )
    print(f"  {work / 1e9:.1f} Gflop as PyTorch does them (convolutions as sums of products,")
    print(f"  also what nobody reads), of the measured peak of {peak / 1e9:.0f} Gflop/s:")
    print(f"  {', '.join(shares)}")


def print_tokens(comparison: Comparison) -> None:
    for timing in comparison.timings:
        print(f"  {timing.name}: {DECODED / timing.median:.1f} tokens/s")

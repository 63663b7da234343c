"""A multilayer perceptron with squared error: mithril, NumPy, PyTorch and JAX.

Every builder takes the same weights (`w0`, `b0`, ...: [out, in] and [out]) and data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Contender, Settings
from benchmarks.models.adam import BETAS, EPS, jax_state, jax_update
from benchmarks.ort import session_of

STEPS_COMPARED = 3
LEARNING_RATE = {"sgd": 1e-2, "adam": 1e-3}


@dataclass
class Mlp:
    """Sizes, weights and one batch."""

    sizes: tuple[int, ...]
    batch: int

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        self.weights: dict[str, np.ndarray] = {}
        for i, (fan_in, out) in enumerate(zip(self.sizes, self.sizes[1:], strict=False)):
            scale = (1 / fan_in) ** 0.5
            self.weights[f"w{i}"] = rng.uniform(-scale, scale, (out, fan_in)).astype(np.float32)
            self.weights[f"b{i}"] = rng.uniform(-scale, scale, out).astype(np.float32)
        self.x = rng.standard_normal((self.batch, self.sizes[0])).astype(np.float32)
        self.target = rng.standard_normal((self.batch, self.sizes[-1])).astype(np.float32)

    @property
    def layers(self) -> int:
        return len(self.sizes) - 1

    def copy(self) -> dict[str, np.ndarray]:
        return {name: value.copy() for name, value in self.weights.items()}


# --- mithril --------------------------------------------------------------------------------------


def model(mlp: Mlp) -> Any:
    import mithril as ml

    out = ml.Model(name="mlp")
    for i, size in enumerate(mlp.sizes[1:]):
        out |= ml.Linear(size)(
            input=f"a{i}" if i else "x", weight=f"w{i}", bias=f"b{i}", output=f"z{i}"
        )
        if i < mlp.layers - 1:
            out |= ml.Relu()(input=f"z{i}", output=f"a{i + 1}")
    out.expose_keys(output=f"z{mlp.layers - 1}")
    return out


def mithril_forward(mlp: Mlp, settings: Settings, backend_name: str = "cpu") -> Contender:
    import mithril as ml

    backend = ml.get_backend(backend_name, threads=settings.threads)
    pm = ml.compile(model(mlp), backend, data_keys={"x"}, shapes={"x": [None, mlp.sizes[0]]})
    params, data, evaluate = mlp.copy(), {"x": mlp.x}, pm.evaluate
    result = lambda: {"y": evaluate(params, data)["output"]}  # noqa: E731
    return Contender(lambda: evaluate(params, data), result)


def mithril_step(mlp: Mlp, optimizer: str, settings: Settings) -> Contender:
    import mithril as ml

    train = ml.TrainModel(model(mlp))
    train.add_loss(ml.SquaredError(), input="output", target="target")
    kinds = {"sgd": ml.optim.SGD, "adam": ml.optim.Adam}
    opt = kinds[optimizer](lr=LEARNING_RATE[optimizer])
    pm = ml.compile(
        train,
        ml.CpuBackend(threads=settings.threads),
        data_keys={"x", "target"},
        shapes={"x": [None, mlp.sizes[0]]},
        optimizer=opt,
    )
    data = {"x": mlp.x, "target": mlp.target}
    params = mlp.copy()
    opt_state, step = opt.init(params), pm.step

    def run() -> None:
        nonlocal params, opt_state
        params, opt_state, _, _ = step(params, opt_state, data)

    return Contender(run, lambda: after_steps(run, lambda: params))


def after_steps(run: Callable[[], Any], params: Callable[[], Any]) -> dict[str, np.ndarray]:
    """The parameters after a few steps, as NumPy arrays."""
    for _ in range(STEPS_COMPARED):
        run()
    return {name: np.array(value) for name, value in params().items()}


# --- NumPy ----------------------------------------------------------------------------------------


def numpy_forward(mlp: Mlp, settings: Settings) -> Contender:
    weights, x, last = mlp.copy(), mlp.x, mlp.layers - 1

    def run() -> np.ndarray:
        a = x
        for i in range(mlp.layers):
            a = a @ weights[f"w{i}"].T + weights[f"b{i}"]
            if i < last:
                a = np.maximum(a, 0)
        return a

    return Contender(run, lambda: {"y": run()})


def numpy_gradients(mlp: Mlp, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Backpropagation by hand."""
    inputs, a = [], mlp.x
    for i in range(mlp.layers):
        inputs.append(a)
        z = a @ weights[f"w{i}"].T + weights[f"b{i}"]
        a = np.maximum(z, 0) if i < mlp.layers - 1 else z
    delta = (2 / a.size) * (a - mlp.target)
    gradients = {}
    for i in reversed(range(mlp.layers)):
        gradients[f"w{i}"], gradients[f"b{i}"] = delta.T @ inputs[i], delta.sum(0)
        if i:
            delta = (delta @ weights[f"w{i}"]) * (inputs[i] > 0)
    return gradients


def numpy_step(mlp: Mlp, optimizer: str, settings: Settings) -> Contender:
    weights = mlp.copy()
    update = NumpyAdam(weights) if optimizer == "adam" else numpy_sgd

    def run() -> None:
        update(weights, numpy_gradients(mlp, weights))

    return Contender(run, lambda: after_steps(run, lambda: weights))


def numpy_sgd(weights: dict[str, np.ndarray], gradients: dict[str, np.ndarray]) -> None:
    for name, gradient in gradients.items():
        weights[name] -= LEARNING_RATE["sgd"] * gradient


class NumpyAdam:
    """Adam in place."""

    def __init__(self, weights: dict[str, np.ndarray]):
        self.m = {name: np.zeros_like(value) for name, value in weights.items()}
        self.v = {name: np.zeros_like(value) for name, value in weights.items()}
        self.t = 0

    def __call__(self, weights: dict[str, np.ndarray], gradients: dict[str, np.ndarray]) -> None:
        self.t += 1
        rate = LEARNING_RATE["adam"] / (1 - BETAS[0] ** self.t)
        root = (1 - BETAS[1] ** self.t) ** 0.5
        for name, g in gradients.items():
            m, v = self.m[name], self.v[name]
            m += (1 - BETAS[0]) * (g - m)
            v += (1 - BETAS[1]) * (g * g - v)
            weights[name] -= rate * m / (np.sqrt(v) / root + EPS)


# --- ONNX Runtime ---------------------------------------------------------------------------------


def ort_forward(mlp: Mlp, settings: Settings) -> Contender:
    """Its input and output are bound to memory once, which spares most of a small call."""
    session, name = session_of(torch_module(mlp, settings), mlp.x, settings)
    binding = session.io_binding()
    binding.bind_cpu_input(name, mlp.x)
    binding.bind_output(session.get_outputs()[0].name)

    def result() -> dict[str, np.ndarray]:
        session.run_with_iobinding(binding)
        return {"y": binding.copy_outputs_to_cpu()[0]}

    return Contender(lambda: session.run_with_iobinding(binding), result)


# --- PyTorch --------------------------------------------------------------------------------------


def torch_module(mlp: Mlp, settings: Settings) -> Any:
    import torch

    torch.set_num_threads(settings.threads)
    layers: list[Any] = []
    for i, (fan_in, out) in enumerate(zip(mlp.sizes, mlp.sizes[1:], strict=False)):
        linear = torch.nn.Linear(fan_in, out)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(mlp.weights[f"w{i}"]))
            linear.bias.copy_(torch.from_numpy(mlp.weights[f"b{i}"]))
        layers += [linear, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def _torch_weights(module: Any) -> dict[str, np.ndarray]:
    linears = [layer for layer in module if hasattr(layer, "weight")]
    named = {f"w{i}": layer.weight for i, layer in enumerate(linears)}
    named |= {f"b{i}": layer.bias for i, layer in enumerate(linears)}
    return {name: value.detach().numpy() for name, value in named.items()}


def torch_forward(mlp: Mlp, settings: Settings, compiled: bool = False) -> Contender:
    if compiled:
        settings.check_time()
    import torch

    module, x = torch_module(mlp, settings), torch.from_numpy(mlp.x)
    call = torch.compile(module) if compiled else module

    def run() -> Any:
        with torch.no_grad():
            return call(x)

    return Contender(run, lambda: {"y": run().numpy()})


def torch_step(
    mlp: Mlp, optimizer: str, settings: Settings, compiled: bool = False, fused: bool = False
) -> Contender:
    if compiled:
        settings.check_time()
    import torch

    module = torch_module(mlp, settings)
    x, target = torch.from_numpy(mlp.x), torch.from_numpy(mlp.target)
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    options = {"fused": True} if fused else {}
    opt = kinds[optimizer](module.parameters(), lr=LEARNING_RATE[optimizer], **options)

    def loss_of(x: Any, target: Any) -> Any:
        return torch.nn.functional.mse_loss(module(x), target)

    loss = torch.compile(loss_of) if compiled else loss_of
    update = torch.compile(opt.step) if compiled else opt.step

    def run() -> None:
        opt.zero_grad()
        loss(x, target).backward()
        update()

    return Contender(run, lambda: after_steps(run, lambda: _torch_weights(module)))


# --- JAX ------------------------------------------------------------------------------------------


def _jax_forward(mlp: Mlp) -> Callable[[Any, Any], Any]:
    import jax.numpy as jnp

    def forward(weights: Any, x: Any) -> Any:
        for i in range(mlp.layers):
            x = x @ weights[f"w{i}"].T + weights[f"b{i}"]
            if i < mlp.layers - 1:
                x = jnp.maximum(x, 0)
        return x

    return forward


def jax_forward(mlp: Mlp, settings: Settings) -> Contender:
    import jax

    weights, x = jax.device_put((mlp.copy(), mlp.x))
    forward = jax.jit(_jax_forward(mlp))
    return Contender(
        lambda: forward(weights, x).block_until_ready(),
        lambda: {"y": np.asarray(forward(weights, x))},
    )


def jax_step(mlp: Mlp, optimizer: str, settings: Settings) -> Contender:
    import jax
    import jax.numpy as jnp

    forward = _jax_forward(mlp)
    x, target = jax.device_put((mlp.x, mlp.target))

    def loss(weights: Any) -> Any:
        return jnp.mean((forward(weights, x) - target) ** 2)

    adam = partial(jax_update, rate=LEARNING_RATE["adam"])
    update = adam if optimizer == "adam" else _jax_sgd
    state = jax_state(jax.device_put(mlp.copy()))
    step = jax.jit(lambda state: update(state, jax.grad(loss)(state[0])), donate_argnums=0)

    def run() -> None:
        nonlocal state
        state = jax.block_until_ready(step(state))

    return Contender(run, lambda: after_steps(run, lambda: state[0]))


def _jax_sgd(state: Any, gradients: Any) -> Any:
    import jax

    weights, *rest = state
    rate = LEARNING_RATE["sgd"]
    return (jax.tree.map(lambda w, g: w - rate * g, weights, gradients), *rest)

"""One training step of `examples/digits.py`'s network (Adam), and the same by hand.

Weights are lists in the order in which PyTorch's module has its parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Contender, Settings
from benchmarks.models.adam import BETAS, EPS, jax_state, jax_update

RATE = 2e-3
NORM_EPS, NORM_MOMENTUM = 1e-5, 0.1
STEPS_COMPARED = 3
Weights = list[np.ndarray]


class Task:
    """The model of mithril, initial weights in PyTorch's shapes, and one batch."""

    def __init__(self, batch: int):
        import mithril as ml

        from examples import digits

        rng = np.random.default_rng(0)
        self.batch = batch
        self.images = rng.uniform(0, 1, (batch, 1, 8, 8)).astype(np.float32)
        self.labels = rng.integers(0, 10, batch)
        self.compile = lambda settings, backend_name="cpu": ml.compile(
            digits.training(digits.network()),
            ml.get_backend(backend_name, threads=settings.threads),
            data_keys={"image", "label"},
            shapes={"image": [None, 1, 8, 8]},
            optimizer=ml.optim.Adam(lr=RATE),
        )
        pm = self.compile(Settings())
        self.params = pm.get_parameters()
        self.state = pm.initial_state()
        self.weights = [
            value.reshape(-1) if value.shape[2:] == (1, 1) else value
            for value in self.params.values()
        ]


def after_steps(run: Callable[[], Any]) -> dict[str, np.ndarray]:
    """Logits of the last of a few steps (biases before a batch norm have no definite update)."""
    for _ in range(STEPS_COMPARED - 1):
        run()
    return {"logits": np.asarray(run())}


def mithril_step(task: Task, settings: Settings, backend_name: str = "cpu") -> Contender:
    import mithril as ml

    pm = task.compile(settings, backend_name)
    params = {name: value.copy() for name, value in task.params.items()}
    state, data = task.state, {"image": task.images, "label": task.labels}
    opt_state = ml.optim.Adam(lr=RATE).init(params)
    step = pm.step

    def run() -> Any:
        nonlocal params, opt_state, state
        params, opt_state, state, outputs = step(params, opt_state, data, state)
        return outputs["logits"]

    return Contender(run, lambda: after_steps(run))


# --- PyTorch --------------------------------------------------------------------------------------


def torch_step(task: Task, settings: Settings, compiled: bool = False) -> Contender:
    if compiled:
        settings.check_time()
    import torch
    from torch import nn

    torch.set_num_threads(settings.threads)
    module = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), task.weights, strict=True):
            parameter.copy_(torch.from_numpy(value))
    opt = torch.optim.Adam(module.parameters(), lr=RATE)
    images, labels = torch.from_numpy(task.images), torch.from_numpy(task.labels)

    def cost_of(images: Any, labels: Any) -> Any:
        logits = module(images)
        return nn.functional.cross_entropy(logits, labels), logits

    cost = torch.compile(cost_of) if compiled else cost_of
    update = torch.compile(opt.step) if compiled else opt.step

    def run() -> Any:
        opt.zero_grad()
        loss, logits = cost(images, labels)
        loss.backward()
        update()
        return logits.detach()

    return Contender(run, lambda: after_steps(run))


# --- JAX ------------------------------------------------------------------------------------------


def jax_step(task: Task, settings: Settings) -> Contender:
    import jax
    import jax.numpy as jnp

    def conv(x: Any, w: Any, b: Any) -> Any:
        out = jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )
        return out + b[:, None, None]

    def norm(x: Any, w: Any, b: Any) -> tuple[Any, tuple[Any, Any]]:
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
        scale = w * jax.lax.rsqrt(variance + NORM_EPS)
        x = (x - mean[:, None, None]) * scale[:, None, None] + b[:, None, None]
        count = x.shape[0] * x.shape[2] * x.shape[3]
        return x, (mean, variance * count / (count - 1))

    def loss(weights: Any, images: Any, labels: Any) -> Any:
        x, first = norm(conv(images, *weights[:2]), *weights[2:4])
        x, second = norm(conv(jnp.maximum(x, 0), *weights[4:6]), *weights[6:8])
        x = jax.lax.reduce_window(
            jnp.maximum(x, 0), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"
        )
        x = jnp.maximum(x.reshape(x.shape[0], -1) @ weights[8].T + weights[9], 0)
        logits = x @ weights[10].T + weights[11]
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
        return -picked.mean(), (logits, (*first, *second))

    def step(carried: Any, images: Any, labels: Any) -> Any:
        state, running = carried
        gradients, (logits, fresh) = jax.grad(loss, has_aux=True)(state[0], images, labels)
        running = [r + NORM_MOMENTUM * (f - r) for r, f in zip(running, fresh, strict=True)]
        return (jax_update(state, gradients, RATE), running), logits

    compiled = jax.jit(step, donate_argnums=0)
    running = [f(c, jnp.float32) for c in (16, 32) for f in (jnp.zeros, jnp.ones)]
    carried = (jax_state([jnp.array(w) for w in task.weights]), running)
    images, labels = jnp.array(task.images), jnp.array(task.labels)

    def run() -> Any:
        nonlocal carried
        carried, logits = jax.block_until_ready(compiled(carried, images, labels))
        return logits

    return Contender(run, lambda: after_steps(run))


# --- NumPy: channels last, convolution as a matrix product of gathered windows --------------------


def _columns(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    return windows.reshape(-1, x.shape[3] * 9)


def _conv_input_gradient(delta: np.ndarray, w: np.ndarray, shape: tuple) -> np.ndarray:
    n, h, width, c = shape
    taps = (delta @ w.reshape(len(w), -1)).reshape(n, h, width, c, 3, 3)
    out = np.zeros((n, h + 2, width + 2, c), np.float32)
    for i in range(3):
        for j in range(3):
            out[:, i : i + h, j : j + width] += taps[..., i, j]
    return out[:, 1:-1, 1:-1]


class _Norm:
    """Batch norm over rows, with what its gradient needs."""

    def __init__(self, x: np.ndarray, w: np.ndarray, b: np.ndarray, running: list[np.ndarray]):
        mean, variance = x.mean(0), x.var(0)
        self.scale = 1 / np.sqrt(variance + NORM_EPS)
        self.unit = (x - mean) * self.scale
        self.w, self.out = w, self.unit * w + b
        fresh = (mean, variance * (len(x) / (len(x) - 1)))
        for kept, new in zip(running, fresh, strict=True):
            kept += NORM_MOMENTUM * (new - kept)

    def gradients(self, delta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dw, db = (delta * self.unit).sum(0), delta.sum(0)
        n = len(delta)
        return (self.w * self.scale / n) * (n * delta - db - self.unit * dw), dw, db


def _numpy_gradients(
    weights: Weights, images: np.ndarray, labels: np.ndarray, running: list[list[np.ndarray]]
) -> tuple[np.ndarray, Weights]:
    w1, b1, g1, s1, w2, b2, g2, s2, w3, b3, w4, b4 = weights
    n = len(labels)
    columns1 = _columns(images.reshape(n, 8, 8, 1))
    norm1 = _Norm(columns1 @ w1.reshape(16, -1).T + b1, g1, s1, running[0])
    x1 = np.maximum(norm1.out, 0).reshape(n, 8, 8, 16)
    columns2 = _columns(x1)
    norm2 = _Norm(columns2 @ w2.reshape(32, -1).T + b2, g2, s2, running[1])
    x2 = np.maximum(norm2.out, 0).reshape(n, 4, 2, 4, 2, 32)
    windows = x2.transpose(0, 1, 3, 5, 2, 4).reshape(n, 4, 4, 32, 4)
    first = windows.argmax(-1)[..., None]
    pooled = np.take_along_axis(windows, first, -1)[..., 0]
    flat = pooled.transpose(0, 3, 1, 2).reshape(n, 512)
    hidden = np.maximum(flat @ w3.T + b3, 0)
    logits = hidden @ w4.T + b4

    delta = np.exp(logits - logits.max(1, keepdims=True))
    delta /= delta.sum(1, keepdims=True)
    delta[np.arange(n), labels] -= 1
    delta /= n
    dw4, db4 = delta.T @ hidden, delta.sum(0)
    delta = (delta @ w4) * (hidden > 0)
    dw3, db3 = delta.T @ flat, delta.sum(0)
    delta = (delta @ w3).reshape(n, 32, 4, 4).transpose(0, 2, 3, 1)
    spread = np.zeros((n, 4, 4, 32, 4), np.float32)
    np.put_along_axis(spread, first, delta[..., None], -1)
    delta = spread.reshape(n, 4, 4, 32, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(-1, 32)
    delta, dg2, ds2 = norm2.gradients(delta * (norm2.out > 0))
    dw2, db2 = (delta.T @ columns2).reshape(w2.shape), delta.sum(0)
    delta = _conv_input_gradient(delta, w2, x1.shape).reshape(-1, 16)
    delta, dg1, ds1 = norm1.gradients(delta * (norm1.out > 0))
    dw1, db1 = (delta.T @ columns1).reshape(w1.shape), delta.sum(0)
    return logits, [dw1, db1, dg1, ds1, dw2, db2, dg2, ds2, dw3, db3, dw4, db4]


def numpy_step(task: Task, settings: Settings) -> Contender:
    weights = [w.copy() for w in task.weights]
    moments = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]
    running = [[np.zeros(c, np.float32), np.ones(c, np.float32)] for c in (16, 32)]
    t = 0

    def run() -> np.ndarray:
        nonlocal t
        t += 1
        logits, gradients = _numpy_gradients(weights, task.images, task.labels, running)
        rate, root = RATE / (1 - BETAS[0] ** t), (1 - BETAS[1] ** t) ** 0.5
        for w, g, (m, v) in zip(weights, gradients, moments, strict=True):
            m += (1 - BETAS[0]) * (g - m)
            v += (1 - BETAS[1]) * (g * g - v)
            w -= rate * m / (np.sqrt(v) / root + EPS)
        return logits

    return Contender(run, lambda: after_steps(run))

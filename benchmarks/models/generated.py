"""Models twice: composed of ops, and by hand in the terms that PyTorch, JAX and MLX share.

The code by hand is what people write: functions of a dictionary of weights over each library's own
functions (`linear`, `gelu`, attention as the library has it). Their steps return what ours do: the
new weights, the cost and the model's output, as what is asked for changes what compilers fuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.models import resnet

RATE = 1e-3
PLACES, WIDTH, HEADS = 64, 128, 4


# --- libraries ------------------------------------------------------------------------------------


class Torch:
    def __init__(self) -> None:
        import torch

        self.lib = torch

    def array(self, values: np.ndarray) -> Any:
        return self.lib.from_numpy(values.copy())

    def numpy(self, array: Any) -> np.ndarray:
        return array.detach().numpy()

    def wait(self, result: Any) -> Any:
        return result

    def forward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(weights: Any, data: Any, target: Any) -> Any:
            with self.lib.no_grad():
                return function(weights, data)

        return run

    def step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        torch = self.lib

        def run(weights: Any, data: Any, target: Any) -> Any:
            leaves = {n: w.detach().requires_grad_(True) for n, w in weights.items()}
            y = function(leaves, data)
            cost = torch.nn.functional.mse_loss(y, target)
            gradients = torch.autograd.grad(cost, list(leaves.values()))
            with torch.no_grad():
                pairs = zip(weights.items(), gradients, strict=True)
                updated = {name: w - RATE * g for (name, w), g in pairs}
                return updated, (cost.detach(), y.detach())

        return run

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.lib.compile(function)

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        return self.lib.nn.functional.linear(x, w, b)

    def relu(self, x: Any) -> Any:
        return self.lib.relu(x)

    def gelu(self, x: Any) -> Any:
        return self.lib.nn.functional.gelu(x, approximate="tanh")

    def norm(self, x: Any, w: Any, b: Any) -> Any:
        return self.lib.nn.functional.layer_norm(x, x.shape[-1:], w, b)

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        return self.lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def split(self, x: Any) -> Any:
        return x.chunk(3, -1)

    def swap(self, x: Any) -> Any:
        return x.transpose(1, 2)

    def plain_conv(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        return self.lib.nn.functional.conv2d(x, w, None, stride, padding)

    def batch_norm(self, x: Any, mean: Any, variance: Any, w: Any, b: Any) -> Any:
        batch_norm = self.lib.nn.functional.batch_norm
        return batch_norm(x, mean, variance, w.flatten(), b.flatten(), eps=1e-5)

    def max_pool(self, x: Any) -> Any:
        return self.lib.nn.functional.max_pool2d(x, 3, 2, 1)

    def pooled(self, x: Any) -> Any:
        return x.mean((2, 3))


class Jax:
    def __init__(self) -> None:
        import jax

        self.lib = jax

    def array(self, values: np.ndarray) -> Any:
        return self.lib.device_put(values)

    def numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def wait(self, result: Any) -> Any:
        return self.lib.block_until_ready(result)

    def forward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda weights, data, target: function(weights, data)

    def step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        jax = self.lib

        def run(weights: Any, data: Any, target: Any) -> Any:
            def cost(w: Any) -> Any:
                y = function(w, data)
                return jax.numpy.mean((y - target) ** 2), y

            outputs, gradients = jax.value_and_grad(cost, has_aux=True)(weights)
            return {name: w - RATE * gradients[name] for name, w in weights.items()}, outputs

        return run

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.lib.jit(function)

    def linear(self, x: Any, w: Any, b: Any) -> Any:
        return x @ w.T + b

    def relu(self, x: Any) -> Any:
        return self.lib.nn.relu(x)

    def gelu(self, x: Any) -> Any:
        return self.lib.nn.gelu(x, approximate=True)

    def norm(self, x: Any, w: Any, b: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        variance = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * self.lib.lax.rsqrt(variance + 1e-5) * w + b

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        jnp, places = self.lib.numpy, q.shape[2]
        scores = q @ k.swapaxes(2, 3) / q.shape[-1] ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((places, places), bool)), scores, -jnp.inf)
        return self.lib.nn.softmax(scores, -1) @ v

    def split(self, x: Any) -> Any:
        return self.lib.numpy.split(x, 3, -1)

    def swap(self, x: Any) -> Any:
        return x.swapaxes(1, 2)

    def plain_conv(self, x: Any, w: Any, stride: int, padding: int) -> Any:
        sides = [(padding, padding)] * 2
        return self.lib.lax.conv_general_dilated(x, w, (stride, stride), sides)

    def batch_norm(self, x: Any, mean: Any, variance: Any, w: Any, b: Any) -> Any:
        mean, variance = mean[:, None, None], variance[:, None, None]
        return (x - mean) * self.lib.lax.rsqrt(variance + 1e-5) * w + b

    def max_pool(self, x: Any) -> Any:
        lax, sides = self.lib.lax, [(0, 0), (0, 0), (1, 1), (1, 1)]
        return lax.reduce_window(x, -np.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), sides)

    def pooled(self, x: Any) -> Any:
        return x.mean((2, 3))


class Mlx:
    def __init__(self) -> None:
        import mlx.core
        import mlx.nn

        self.lib, self.nn = mlx.core, mlx.nn

    def array(self, values: np.ndarray) -> Any:
        return self.lib.array(values)

    def numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def wait(self, result: Any) -> Any:
        self.lib.eval(result)
        return result

    forward = Jax.forward
    linear = Jax.linear

    def step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        mx = self.lib

        def run(weights: Any, data: Any, target: Any) -> Any:
            def cost(w: Any) -> Any:
                y = function(w, data)
                return mx.mean((y - target) ** 2), y

            outputs, gradients = mx.value_and_grad(cost)(weights)
            return {name: w - RATE * gradients[name] for name, w in weights.items()}, outputs

        return run

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.lib.compile(function)

    def relu(self, x: Any) -> Any:
        return self.nn.relu(x)

    def gelu(self, x: Any) -> Any:
        return self.nn.gelu_approx(x)

    def norm(self, x: Any, w: Any, b: Any) -> Any:
        return self.lib.fast.layer_norm(x, w, b, 1e-5)

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        scale = q.shape[-1] ** -0.5
        return self.lib.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask="causal")

    def split(self, x: Any) -> Any:
        return self.lib.split(x, 3, -1)

    def swap(self, x: Any) -> Any:
        return x.swapaxes(1, 2)


class Cpu:
    """The engine itself: there is nothing to write by hand."""

    def array(self, values: np.ndarray) -> np.ndarray:
        return values.copy()

    def numpy(self, array: np.ndarray) -> np.ndarray:
        return array

    def wait(self, result: Any) -> Any:
        return result


LIBRARIES: dict[str, Callable[[], Any]] = {"torch": Torch, "jax": Jax, "mlx": Mlx, "cpu": Cpu}


# --- models ---------------------------------------------------------------------------------------


class Job:
    """A model, its weights by the names that mithril gives them, and one batch."""

    title = ""
    data_key = "input"
    output = "output"
    weight_shapes: dict[str, tuple[int, ...]] = {}
    frameworks: tuple[str, ...] = ("torch", "jax", "mlx")
    only_compiled: tuple[str, ...] = ()  # where op by op would take minutes
    data_shape: tuple[int, ...] = ()
    target_shape: tuple[int, ...] = ()

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.constants: dict[str, np.ndarray] = {}  # parameters that no step changes
        self.weights = {
            name: (0.1 * rng.standard_normal(shape)).astype(np.float32)
            for name, shape in self.weight_shapes.items()
        }
        self.data = rng.standard_normal(self.data_shape).astype(np.float32)
        self.target = rng.standard_normal(self.target_shape).astype(np.float32)

    def model(self) -> Any:
        raise NotImplementedError

    def by_hand(self, lib: Any, w: Any, x: Any) -> Any:
        raise NotImplementedError

    def training_model(self) -> Any:
        import mithril as ml

        train = ml.TrainModel(self.model())
        train.add_loss(ml.SquaredError(), input=self.output, target="target")
        return train


class Mlp(Job):
    title = "MLP 64-128-128-10, batch 32"
    sizes = (64, 128, 128, 10)
    weight_shapes = {
        name: shape
        for i, (fan_in, out) in enumerate(zip(sizes, sizes[1:], strict=False))
        for name, shape in ((f"w{i}", (out, fan_in)), (f"b{i}", (out,)))
    }
    data_shape, target_shape = (32, 64), (32, 10)

    def model(self) -> Any:
        import mithril as ml

        out = ml.Model()
        for i, size in enumerate(self.sizes[1:]):
            source, result = (f"a{i}" if i else "input"), (f"z{i}" if i < 2 else "output")
            out |= ml.Linear(size)(input=source, weight=f"w{i}", bias=f"b{i}", output=result)
            if i < 2:
                out |= ml.Relu()(input=result, output=f"a{i + 1}")
        out.expose_keys("output")
        return out

    def by_hand(self, lib: Any, w: Any, x: Any) -> Any:
        for i in range(3):
            x = lib.linear(x, w[f"w{i}"], w[f"b{i}"])
            x = lib.relu(x) if i < 2 else x
        return x


class Gpt2Block(Job):
    title = f"GPT-2 block, width {WIDTH}, {HEADS} heads, [4, {PLACES}]"
    weight_shapes = {
        "n1": (WIDTH,), "m1": (WIDTH,), "wa": (3 * WIDTH, WIDTH), "ba": (3 * WIDTH,),
        "wp": (WIDTH, WIDTH), "bp": (WIDTH,), "n2": (WIDTH,), "m2": (WIDTH,),
        "wf": (4 * WIDTH, WIDTH), "bf": (4 * WIDTH,), "wo": (WIDTH, 4 * WIDTH), "bo": (WIDTH,),
    }  # fmt: skip
    data_shape = target_shape = (4, PLACES, WIDTH)

    def model(self) -> Any:
        import mithril as ml

        m = ml.Model()
        m |= ml.LayerNorm(eps=1e-5)(input="input", weight="n1", bias="m1", output="normed")
        m |= ml.Linear(3 * WIDTH)(input="normed", weight="wa", bias="ba", output="qkv")
        m |= ml.Split(3, axis=-1)(input="qkv", output="parts")
        for i, name in enumerate("qkv"):
            by_head = m.parts[i].reshape((4, PLACES, HEADS, WIDTH // HEADS))
            m |= ml.Transpose((0, 2, 1, 3))(input=by_head, output=f"head_{name}")
        m |= ml.ScaledDotProduct(is_causal=True)(
            query="head_q", key="head_k", value="head_v", output="mixed"
        )
        m |= ml.Transpose((0, 2, 1, 3))(input="mixed", output="by_place")
        joined = m.by_place.reshape((4, PLACES, WIDTH))
        m |= ml.Linear(WIDTH)(input=joined, weight="wp", bias="bp", output="attended")
        m |= ml.Add()(left="input", right="attended", output="middle")
        m |= ml.LayerNorm(eps=1e-5)(input="middle", weight="n2", bias="m2", output="again")
        m |= ml.Linear(4 * WIDTH)(input="again", weight="wf", bias="bf", output="wide")
        m |= ml.Gelu(approximate=True)(input="wide", output="active")
        m |= ml.Linear(WIDTH)(input="active", weight="wo", bias="bo", output="narrow")
        m |= ml.Add()(left="middle", right="narrow", output="output")
        m.expose_keys("output")
        return m

    def by_hand(self, lib: Any, w: Any, x: Any) -> Any:
        parts = lib.split(lib.linear(lib.norm(x, w["n1"], w["m1"]), w["wa"], w["ba"]))
        q, k, v = (lib.swap(p.reshape(4, PLACES, HEADS, WIDTH // HEADS)) for p in parts)
        mixed = lib.swap(lib.attend(q, k, v)).reshape(4, PLACES, WIDTH)
        x = x + lib.linear(mixed, w["wp"], w["bp"])
        wide = lib.gelu(lib.linear(lib.norm(x, w["n2"], w["m2"]), w["wf"], w["bf"]))
        return x + lib.linear(wide, w["wo"], w["bo"])


class Resnet(Job):
    """Statistics are those of a trained model and stay, also in steps (as in fine-tuning)."""

    frameworks, only_compiled = ("torch", "jax"), ("jax",)
    data_key, output = "image", "logits"

    def __init__(self, depth: int = 18, shape: tuple[int, ...] = (2, 3, 64, 64)) -> None:
        import mithril as ml

        self.depth = depth
        self.title = f"ResNet-{depth} with frozen statistics, images {list(shape)}"
        self.data_shape, self.target_shape = shape, (shape[0], 1000)
        pm = ml.compile(self.model(), ml.NumpyBackend(), shapes={"image": list(shape)}, mode="eval")
        self.weight_shapes = {n: tuple(pm.shapes[n]) for n in pm.trainable_keys if n != "image"}
        super().__init__()
        for name, value in self.weights.items():  # so that values keep their size on the way
            if value.ndim == 4 and value.shape[0] > 1:
                value *= 10 * (2 / value[0].size) ** 0.5
            elif value.ndim == 4 and name.startswith("weight"):
                value += 0.5
        rng = np.random.default_rng(1)
        for name in pm.param_keys:
            if name.startswith("running_"):
                values = rng.uniform(0.5, 1.5, pm.shapes[name]).astype(np.float32)
                self.constants[name] = values - ("mean" in name)

    def model(self) -> Any:
        return resnet.resnet(self.depth)

    def by_hand(self, lib: Any, w: Any, x: Any) -> Any:
        weights = (w[name] for name in self.weight_shapes)
        statistics = (w[name] for name in self.constants)

        def conv(x: Any, stride: int, padding: int) -> Any:
            x = lib.plain_conv(x, next(weights), stride, padding)
            mean, variance = next(statistics), next(statistics)
            return lib.batch_norm(x, mean, variance, next(weights), next(weights))

        x, before = lib.max_pool(lib.relu(conv(x, 2, 3))), resnet.WIDTHS[0]
        widening = resnet.WIDENING[self.depth]
        for stage, filters in enumerate(resnet.WIDTHS):
            for i in range(resnet.BLOCKS[self.depth][stage]):
                stride = 2 if stage and not i else 1
                inner = x
                for j, (_, size, step) in enumerate(resnet.convolutions(filters, stride, widening)):
                    inner = conv(lib.relu(inner) if j else inner, step, size // 2)
                around = conv(x, stride, 0) if filters * widening != before else x
                x, before = lib.relu(inner + around), filters * widening
        return lib.linear(lib.pooled(x), next(weights), next(weights))


MODELS: dict[str, type[Job]] = {
    "mlp": Mlp,
    "gpt2-block": Gpt2Block,
    "resnet18": Resnet,
}

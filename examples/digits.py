"""Handwritten digits: one convolutional network, trained here, run on every backend.

    make demo        # the own CPU engine and whatever else is installed
    make demo-all    # with PyTorch, JAX and MLX, and on the devices that are there

Trains on scikit-learn's 1,797 images of 8x8 pixels, then holds every backend against a module
written by hand in PyTorch with the same weights (without PyTorch: against central differences).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mithril as ml
import numpy as np

from examples import pictures

SEEDS = (0, 1, 2)
EPOCHS = 12
BATCH = 64
OUT = Path("out")

Arrays = dict[str, Any]
Reference = tuple[Any, Arrays]  # logits and gradients


def network() -> ml.Model:
    """Two convolutions with batch norm, pooling, two linear layers; logits for ten digits."""
    model = ml.Model(name="digits")
    model |= ml.Conv2d(filters=16, kernel_size=3, padding="same", name="conv_1")(
        input="image", output="conv_1_out"
    )
    model += ml.BatchNorm2D(mode=None, name="norm_1")
    model += ml.Relu()
    model += ml.Conv2d(filters=32, kernel_size=3, padding="same", name="conv_2")
    model += ml.BatchNorm2D(mode=None, name="norm_2")
    model += ml.Relu()
    model += ml.MaxPool2d(kernel_size=2)
    model += ml.Flatten()
    model += ml.Linear(64, name="hidden")
    model += ml.Relu()
    model += ml.Linear(10, name="head")(output="logits")
    model.expose_keys("logits")
    return model


def training(model: ml.Model) -> ml.TrainModel:
    train = ml.TrainModel(model)
    train.add_loss(ml.CrossEntropy(), input="logits", target="label")
    return train


def load() -> tuple[Arrays, Arrays]:
    """A fixed split: 1,437 images to train on, 360 to test on, pixels between 0 and 1."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    order = np.random.default_rng(42).permutation(len(images))
    test, rest = order[:360], order[360:]

    def pick(rows: np.ndarray) -> Arrays:
        return {"image": images[rows], "label": digits.target[rows].astype(np.int64)}

    return pick(rest), pick(test)


def batches(data: Arrays, seed: int) -> Iterator[Arrays]:
    order = np.random.default_rng(seed).permutation(len(data["label"]))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        rows = order[start : start + BATCH]
        yield {key: value[rows] for key, value in data.items()}


def progress(text: str, done: float) -> None:
    if sys.stdout.isatty():
        bar = "#" * round(30 * done)
        print(f"\r{text} [{bar:<30}]", end="" if done < 1 else "\n", flush=True)
    elif done >= 1:
        print(text)


def fit(
    backend: ml.Backend, data: Arrays, seed: int, epochs: int
) -> tuple[Arrays, Arrays, list[float]]:
    """Trains from the initial parameters of `seed`; returns parameters, state and losses."""
    optimizer = ml.optim.Adam(lr=2e-3)
    pm = ml.compile(
        training(network()),
        backend,
        data_keys={"image", "label"},
        shapes={"image": [None, 1, 8, 8]},
        optimizer=optimizer,
    )
    params, state = pm.randomize_params(seed), pm.initial_state(seed)
    opt_state = optimizer.init(params)
    losses: list[float] = []
    for epoch in range(epochs):
        for batch in batches(data, seed=1000 * seed + epoch):
            params, opt_state, state, outputs = pm.step(params, opt_state, batch, state)
            losses.append(float(np.asarray(outputs["final_cost"])))
        text = f"  seed {seed}, epoch {epoch + 1:2}/{epochs}, loss {np.mean(losses[-22:]):.4f}"
        progress(text, (epoch + 1) / epochs)
    return params, state, losses


def accuracy(backend: ml.Backend, params: Arrays, state: Arrays, data: Arrays) -> float:
    pm = ml.compile(network(), backend, data_keys={"image"}, shapes={"image": [None, 1, 8, 8]})
    running = {key: value for key, value in state.items() if key != "rng_key"}
    logits = pm.evaluate({**params, **running}, {"image": data["image"]})["logits"]
    return float(np.mean(np.argmax(np.asarray(logits), axis=1) == data["label"]))


# --- one row per backend ------------------------------------------------------------------------


def backends() -> Iterator[tuple[str, Any]]:
    """(name, backend or the reason why it is missing)."""
    for kind in ("Cpu", "Numpy", "C", "OpenCL", "Cuda", "GGML", "Torch", "Jax", "Mlx"):
        name = f"{kind}Backend"
        try:
            yield name, getattr(ml, name)()
        except (ImportError, RuntimeError) as error:
            yield name, error


def placed(backend: ml.Backend, arrays: Arrays) -> Arrays:
    """The arrays as the backend has them: in the memory of a device, where it runs on one."""
    if isinstance(backend, ml.OpenCLBackend | ml.CudaBackend):
        on_device: Arrays = backend.to_device(arrays)
        return on_device
    return {key: backend.array(value) for key, value in arrays.items()}


def numpy_of(backend: ml.Backend, arrays: Arrays) -> Arrays:
    return {key: np.asarray(backend.to_numpy(value)) for key, value in arrays.items()}


def compare(
    backend: ml.Backend,
    params: Arrays,
    state: Arrays,
    batch: Arrays,
    reference: Reference,
    steps: int = 20,
) -> tuple[float, float, float, Arrays, Arrays]:
    """Trains; returns step time, differences of logits and gradients from `reference`, and the
    parameters and the state after the last step."""
    optimizer = ml.optim.Adam(lr=2e-3)
    pm = ml.compile(
        training(network()),
        backend,
        data_keys={"image", "label"},
        shapes={"image": [None, 1, 8, 8]},
        optimizer=optimizer,
    )
    own, own_state = placed(backend, params), placed(backend, state)
    first = pm.evaluate(own, batch, output_gradients=True, state=own_state)
    logits = np.asarray(backend.to_numpy(first.outputs["logits"]))
    gradients = numpy_of(backend, first.gradients)
    wanted_logits, wanted = reference
    far = max(np.abs(gradients[key] - wanted[key]).max() for key in wanted)
    opt_state, times = optimizer.init(own), []
    for _ in range(steps):
        start = time.perf_counter()
        own, opt_state, own_state, outputs = pm.step(own, opt_state, batch, own_state)
        float(np.asarray(backend.to_numpy(outputs["final_cost"])))
        times.append(time.perf_counter() - start)
    return float(np.median(times)), np.abs(logits - wanted_logits).max(), far, own, own_state


def torch_reference(params: Arrays, batch: Arrays) -> Reference:
    """Logits and gradients of the same network in torch.nn, in training mode."""
    import torch
    from torch import nn

    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 16, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    ).double()
    ours = [np.asarray(value, np.float64) for value in params.values()]
    theirs = list(net.parameters())
    order = match(ours, [tuple(p.shape) for p in theirs])
    with torch.no_grad():
        for parameter, index in zip(theirs, order, strict=True):
            parameter.copy_(torch.from_numpy(ours[index]).reshape(parameter.shape))
    logits = net(torch.from_numpy(batch["image"]).double())
    nn.functional.cross_entropy(logits, torch.from_numpy(batch["label"])).backward()
    names = list(params)
    gradients = {
        names[i]: p.grad.numpy().reshape(ours[i].shape) for p, i in zip(theirs, order, strict=True)
    }
    return logits.detach().numpy(), gradients


def match(arrays: list[Any], shapes: list[Any]) -> list[int]:
    """For each of torch's shapes our array of that many elements, in order of appearance."""
    left, out = list(range(len(arrays))), []
    for shape in shapes:
        sizes = int(np.prod(shape))
        index = next(i for i in left if arrays[i].size == sizes)
        left.remove(index)
        out.append(index)
    return out


def difference_reference(params: Arrays, state: Arrays, batch: Arrays) -> Reference:
    """Without PyTorch: the CPU engine in float64, its gradients checked by central differences."""
    backend = ml.CpuBackend(dtype=ml.float64)
    pm = ml.compile(
        training(network()),
        backend,
        data_keys={"image", "label"},
        shapes={"image": [None, 1, 8, 8]},
    )
    wide = {k: np.asarray(v, np.float64) for k, v in params.items()}
    wide_state = {k: v if k == "rng_key" else np.asarray(v, np.float64) for k, v in state.items()}
    result = pm.evaluate(wide, batch, output_gradients=True, state=wide_state)
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(10):
        direction = {k: rng.standard_normal(v.shape) for k, v in wide.items()}
        cost = []
        for sign in (1, -1):
            moved = {k: v + sign * 1e-6 * direction[k] for k, v in wide.items()}
            outputs = pm.evaluate(moved, batch, state=wide_state).outputs
            cost.append(float(outputs["final_cost"]))
        along = sum(float((result.gradients[k] * direction[k]).sum()) for k in wide)
        worst = max(worst, abs((cost[0] - cost[1]) / 2e-6 - along))
    print(f"  gradients against central differences in 10 directions: {worst:.1e}")
    return result.outputs["logits"], dict(result.gradients)


def main() -> None:
    OUT.mkdir(exist_ok=True)
    train_data, test_data = load()
    cpu = ml.CpuBackend()
    print(f"mithril: {cpu!r}, NumPy {np.__version__}")
    print(f"Training on {len(train_data['label'])} images, testing on {len(test_data['label'])}.")
    start, curves, scores = time.perf_counter(), [], []
    for seed in SEEDS:
        params, state, losses = fit(cpu, train_data, seed, EPOCHS)
        scores.append(accuracy(cpu, params, state, test_data))
        curves.append(losses)
        print(f"  seed {seed}: test accuracy {100 * scores[-1]:.2f} %")
    print(f"Three seeds in {time.perf_counter() - start:.1f} s on the own engine.\n")

    # From here on with fresh parameters, on every backend.
    pm = ml.compile(
        training(network()), cpu, data_keys={"image", "label"}, shapes={"image": [None, 1, 8, 8]}
    )
    fresh, fresh_state = pm.randomize_params(0), pm.initial_state(0)
    batch = next(batches(train_data, seed=7))
    try:
        reference, source = torch_reference(fresh, batch), "torch.nn in float64"
    except ImportError:
        reference, source = difference_reference(fresh, fresh_state, batch), "float64 engine"
    print(f"20 steps from the same parameters; differences from {source}:")
    print(f"{'backend':<14}{'accuracy':>10}{'step':>12}{'logits':>10}{'gradients':>11}  device")
    for name, backend in backends():
        if isinstance(backend, Exception):
            print(f"{name:<14}  not here: {str(backend).splitlines()[0]}")
            continue
        seconds, logits, gradients, own, own_state = compare(
            backend, fresh, fresh_state, batch, reference
        )
        score = accuracy(backend, own, own_state, test_data)
        print(
            f"{name:<14}{100 * score:>8.2f} %{1e3 * seconds:>9.2f} ms{logits:>10.1e}"
            f"{gradients:>11.1e}  {backend.get_device()}"
        )

    print("\nThe trained network, moved from backend to backend (evaluation logits):")
    move(params, state, test_data)
    pictures.learning_curve(curves, OUT / "digits_loss.svg")
    picture = network()
    picture.set_shapes(image=["n", 1, 8, 8])
    picture.plot(file_path=OUT / "digits_model.svg")
    print(f"\nSaved {OUT / 'digits_loss.svg'} and {OUT / 'digits_model.svg'}.")
    print("""
Next:
  source .venv/bin/activate         enter the environment
  python -m examples.digits         run this again
  python -c "import mithril as ml; help(ml.compile)"
Try: another number of filters in network(); backend = ml.JaxBackend() in fit(); and
  python -c "import examples.digits as d; d.network().summary(shapes=True)\"""")
    if min(scores) < 0.98:
        raise SystemExit(f"test accuracy {min(scores):.4f} is below 0.98")


def move(params: Arrays, state: Arrays, data: Arrays) -> None:
    running = {key: value for key, value in state.items() if key != "rng_key"}
    arrays = {key: np.asarray(value) for key, value in {**params, **running}.items()}
    first = None
    for name, backend in backends():
        if isinstance(backend, Exception):
            continue
        pm = ml.compile(network(), backend, data_keys={"image"}, shapes={"image": [None, 1, 8, 8]})
        own = placed(backend, arrays)
        logits = backend.to_numpy(pm.evaluate(own, {"image": data["image"]})["logits"])
        arrays = numpy_of(backend, own)
        first = logits if first is None else first
        print(f"  {name:<14} largest difference {np.abs(logits - first).max():.1e}")


if __name__ == "__main__":
    main()

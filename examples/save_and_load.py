"""Stops a training, saves it, and goes on with it on another backend as if nothing had been.

`python -m examples.save_and_load` prints:

    in one go          : 60 steps, cost 0.0075
    stopped after 30   : body act head and 4 arrays in the file
    loaded on NumPy    : 60 steps, cost 0.0075
    the same parameters: True
"""

import tempfile
from pathlib import Path
from typing import Any

import mithril as ml
import numpy as np

ADAM = ml.optim.Adam(lr=0.02)
Arrays = dict[str, Any]


def network() -> ml.Model:
    model = ml.Model(name="net")
    model |= ml.Linear(16, name="body")(input="x", weight="w_body", bias="b_body")
    model += ml.Tanh(name="act")
    model += ml.Linear(1, name="head")(weight="w_head", bias="b_head", output="y")
    model.set_shapes(x=["batch", 2])
    return model


def compiled(model: ml.Model, backend: ml.Backend) -> ml.PhysicalModel:
    training = ml.TrainModel(model)
    training.add_loss(ml.SquaredError(), input="y", target="target", reduce_steps=[ml.Mean()])
    return ml.compile(training, backend, data_keys={"x", "target"}, optimizer=ADAM)


def train(pm: Any, params: Arrays, opt_state: Arrays, data: Arrays, steps: int) -> tuple[Any, ...]:
    for _ in range(steps):
        params, opt_state, _, outputs = pm.step(params, opt_state, data)
    return params, opt_state, float(outputs["final_cost"])


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    x = np.random.default_rng(0).uniform(-1, 1, (64, 2)).astype("float32")
    data = {"x": x, "target": x[:, :1] * x[:, 1:]}
    pm = compiled(network(), ml.CpuBackend())
    params = pm.randomize_params(seed=0)
    opt_state = ADAM.init(params)
    whole, _, cost = train(pm, params, opt_state, data, 60)
    print(f"in one go          : 60 steps, cost {cost:.4f}")
    params, opt_state, _ = train(pm, params, opt_state, data, 30)
    network().save(folder / "net.mithril", params)
    ml.formats.write_safetensors(folder / "adam.safetensors", opt_state)
    model, params = ml.load(folder / "net.mithril")
    opt_state = ml.formats.read_safetensors(folder / "adam.safetensors", nested=True)
    print("stopped after 30   :", *model.submodels, f"and {len(params)} arrays in the file")
    pm = compiled(model, ml.NumpyBackend())
    params, opt_state, cost = train(pm, params, opt_state, data, 30)
    print(f"loaded on NumPy    : {opt_state['step']} steps, cost {cost:.4f}")
    print("the same parameters:", all(np.allclose(params[n], whole[n], atol=1e-4) for n in whole))


if __name__ == "__main__":
    main()

"""Models that are exported as C, their data, and what builds and runs the folders."""

import json
import os
import subprocess
from pathlib import Path

import mithril as ml
import ml_dtypes
import numpy as np

STRICT = "-O2 -Wall -Wextra -Werror -pedantic"


def mlp():
    model = ml.Model(name="mlp")
    model |= ml.Linear(32, name="first")(input="x", output="h")
    model |= ml.Gelu()(input="h", output="a")
    model |= ml.Linear(10, name="head")(input="a", output="y")
    model.expose_keys("y")
    return model


def cnn():
    model = ml.Model(name="cnn")
    model |= ml.Conv2d(filters=8, kernel_size=3, padding="same", name="conv")(input="x", output="c")
    model |= ml.BatchNorm2D(mode=None, name="norm")(input="c", output="n")
    model += ml.Relu()
    model += ml.MaxPool2d(kernel_size=2)
    model += ml.Flatten()
    model += ml.Linear(10, name="head")(output="y")
    model.expose_keys("y")
    return model


def gpt_block(width=16):
    model = ml.Model(name="block")
    model |= ml.LayerNorm(name="norm_1")(input="x", output="n")
    for role in ("query", "key", "value"):
        model |= ml.Linear(width, name=role)(input="n", output=role)
    model |= ml.ScaledDotProduct(is_causal=True)("query", "key", "value", output="mixed")
    model |= ml.Linear(width, name="out")(input="mixed", output="attended")
    model |= ml.Add()(left="x", right="attended", output="h")
    model |= ml.LayerNorm(name="norm_2")(input="h", output="m")
    model |= ml.Linear(4 * width, name="up")(input="m", output="u")
    model |= ml.Gelu()(input="u", output="a")
    model |= ml.Linear(width, name="down")(input="a", output="d")
    model |= ml.Add()(left="h", right="d", output="y")
    model.expose_keys("y")
    return model


def lstm():
    model = ml.Model(name="lstm")
    model |= ml.LSTM(6, name="lstm")(input="x", output="h")
    model |= ml.Linear(3, name="head")(input="h", output="y")
    model.expose_keys("y")
    return model


MODELS = {
    "mlp": (mlp, [8, 16]),
    "cnn": (cnn, [4, 3, 8, 8]),
    "gpt_block": (gpt_block, [2, 5, 16]),
    "lstm": (lstm, [2, 7, 4]),
}


def training(model):
    """The model with a squared error against "target"."""
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="target", reduce_steps=[ml.Mean()])
    return train


def of_torch(title, torch):
    """The model of the same title: a module whose parameters are in our order."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width=16):
            super().__init__()
            self.norm_1 = nn.LayerNorm(width)
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
            self.norm_2 = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            n = self.norm_1(x)
            mixed = nn.functional.scaled_dot_product_attention(
                self.query(n), self.key(n), self.value(n), is_causal=True
            )
            h = x + self.out(mixed)
            return h + self.down(nn.functional.gelu(self.up(self.norm_2(h))))

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 3)

        def forward(self, x):
            return self.head(self.lstm(x)[0])

    if title == "mlp":
        return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 10))
    if title == "cnn":
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(128, 10),
        )  # fmt: skip
    return {"gpt_block": Block, "lstm": Recurrent}[title]()


def in_their_order(title, params):
    """PyTorch's LSTM has both matrices before both biases."""
    values = list(params)
    if title == "lstm":
        values[1:3] = values[2], values[1]
    return values


def drawn(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# --- folders --------------------------------------------------------------------------------------


def built(folder, compiler="cc", flags=STRICT, **variables):
    """The folder, its library and example made."""
    options = [f"CC={compiler}", f"CFLAGS={flags}", *(f"{k}={v}" for k, v in variables.items())]
    done = subprocess.run(
        ["make", "-s", "-C", str(folder), "clean", "all", *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Path(folder)


def layout(folder):
    return json.loads(next(Path(folder).glob("*.json")).read_text())


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def write_inputs(folder, arrays):
    """Inputs by name, as the example reads them; several of one make several calls."""
    for one in layout(folder)["inputs"]:
        given = arrays[one["name"]]
        calls = given if isinstance(given, list) else [given]
        data = [np.ascontiguousarray(x, numpy_dtype(one["dtype"])) for x in calls]
        assert all(list(x.shape) == one["shape"] for x in data)
        (Path(folder) / f"{one['field']}.bin").write_bytes(b"".join(x.tobytes() for x in data))


def run(folder, calls=1, before=()):
    """Runs the example without anything of this process's environment."""
    name = layout(folder)["name"]
    command = [*before, f"./{name}_example", ".", str(calls)]
    # The example keeps its memory until it ends.
    env = {"PATH": os.defpath, "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return outputs(folder)


def outputs(folder):
    """What the example wrote, by name."""
    return {
        one["name"]: np.fromfile(Path(folder) / f"{one['field']}.bin", numpy_dtype(one["dtype"]))
        .reshape(one["shape"])
        for one in layout(folder)["outputs"]
    }  # fmt: skip


def state(folder):
    """What training updated, by kind and name."""
    data = (Path(folder) / "state.bin").read_bytes()
    return {
        (one["kind"], one.get("name", "")): np.frombuffer(
            data, numpy_dtype(one["dtype"]), int(np.prod(one["shape"])), one["offset"]
        ).reshape(one["shape"])
        for one in layout(folder)["state"]
    }

"""A transformer of blocks in blocks, checked against NumPy.

`python -m examples.nested_transformer` prints:

    block_1   : norm_1 attention Add_0 norm_2 mlp Add_1
    attention : query key value core out
    mlp inside: ['batch', 'time', 64]
    26 parameters, such as block_1_attention_query_weight
    agrees with NumPy, on the CPU engine and on the NumPy backend
"""

import mithril as ml
import numpy as np

WIDTH = 16


def attention() -> ml.Model:
    model = ml.Model(name="attention")
    for role in ("query", "key", "value"):
        model |= ml.Linear(WIDTH, use_bias=False, name=role)(input="x", output=role)
    core = ml.ScaledDotProduct(is_causal=True, name="core")
    model |= core("query", "key", "value", output="mixed")
    model |= ml.Linear(WIDTH, name="out")(input="mixed", output="output")
    return model


def mlp() -> ml.Model:
    model = ml.Model(name="mlp")
    model += ml.Linear(4 * WIDTH, name="up")(input="x")
    model += ml.Relu()(output="hidden")
    return model + ml.Linear(WIDTH, name="down")(output="output")


def block(name: str) -> ml.Model:
    model = ml.Model(name=name)
    model |= ml.LayerNorm(name="norm_1")(input="x", output="normal")
    model |= attention()(x="normal", output="attended")
    model |= ml.Add()(left="x", right="attended", output="h")
    model |= ml.LayerNorm(name="norm_2")(input="h", output="normal_h")
    model |= mlp()(x="normal_h", output="thought")
    model |= ml.Add()(left="h", right="thought", output="output")
    return model


def block_by_hand(p: dict[str, np.ndarray], at: str, x: np.ndarray) -> np.ndarray:
    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return np.asarray(x * p[f"{at}_{name}_weight"] + p[f"{at}_{name}_bias"])

    n, seen = norm(x, "norm_1"), np.tri(x.shape[1], dtype=bool)
    q, k, v = (n @ p[f"{at}_attention_{r}_weight"].T for r in ("query", "key", "value"))
    weights = np.exp(np.where(seen, q @ k.transpose(0, 2, 1) / np.sqrt(WIDTH), -np.inf))
    mixed = weights / weights.sum(-1, keepdims=True) @ v
    x = x + mixed @ p[f"{at}_attention_out_weight"].T + p[f"{at}_attention_out_bias"]
    up = np.maximum(norm(x, "norm_2") @ p[f"{at}_mlp_up_weight"].T + p[f"{at}_mlp_up_bias"], 0)
    return np.asarray(x + up @ p[f"{at}_mlp_down_weight"].T + p[f"{at}_mlp_down_bias"])


def main() -> None:
    encoder = ml.Model(name="encoder")
    encoder |= block("block_0")(x="x", output="h")
    encoder |= block("block_1")(x="h", output="y")
    encoder.set_shapes(x=["batch", "time", WIDTH])
    print("block_1   :", *encoder.get_submodel("block_1").submodels)
    print("attention :", *encoder.get_submodel("block_1.attention").submodels)
    print("mlp inside:", encoder.get_submodel("block_1.mlp").shapes["hidden"])

    x = np.random.default_rng(0).standard_normal((2, 5, WIDTH)).astype("float32")
    for backend in (ml.CpuBackend(), ml.NumpyBackend()):
        pm = ml.compile(encoder, backend, data_keys={"x"}, use_short_namings=False)
        p = pm.randomize_params(seed=0)
        y = block_by_hand(p, "block_1", block_by_hand(p, "block_0", x))
        np.testing.assert_allclose(pm.evaluate(p, {"x": x})["y"], y, rtol=1e-4, atol=1e-5)
    print(f"{len(p)} parameters, such as {next(n for n in p if 'block_1_attention' in n)}")
    print("agrees with NumPy, on the CPU engine and on the NumPy backend")


if __name__ == "__main__":
    main()

"""An autoencoder whose way back is its way in, transposed: one weight, trained in both uses.

`python -m examples.share_weights` prints:

    untied: 40 parameters, error 0.0007
    tied  : 24 parameters, error 0.0007
    the best that one plane can do (principal components): 0.0007
"""

import mithril as ml
import numpy as np

WIDTH, CODE = 8, 2


def autoencoder(tied: bool) -> ml.Model:
    model = ml.Model()
    model |= ml.Linear(CODE, use_bias=False, name="encoder")(input="x", weight="w", output="code")
    back = model.w.T if tied else ml.IOKey("w_back")
    model |= ml.Linear(WIDTH, name="decoder")(input="code", weight=back, bias="b", output="y")
    return model


def points() -> np.ndarray:
    """Points near a plane of eight dimensions."""
    rng = np.random.default_rng(0)
    plane = rng.standard_normal((256, CODE)) @ rng.standard_normal((CODE, WIDTH))
    noise = 0.03 * rng.standard_normal((256, WIDTH))
    return (plane + noise).astype("float32")


def trained(tied: bool, x: np.ndarray) -> tuple[int, float]:
    training = ml.TrainModel(autoencoder(tied))
    optimizer = ml.optim.Adam(lr=0.02)
    training.add_loss(ml.SquaredError(), input="y", target="x", reduce_steps=[ml.Mean()])
    pm = ml.compile(
        training,
        ml.CpuBackend(),
        data_keys={"x"},
        shapes={"x": x.shape},
        optimizer=optimizer,
    )
    params = pm.randomize_params(seed=1)
    opt_state = optimizer.init(params)
    for _ in range(2000):
        params, opt_state, _, outputs = pm.step(params, opt_state, {"x": x})
    count = sum(value.size for value in params.values())
    return count, float(outputs["final_cost"])


def main() -> None:
    x = points()
    for tied in (False, True):
        count, error = trained(tied, x)
        print(f"{'tied' if tied else 'untied':<6}: {count} parameters, error {error:.4f}")
    rest = np.linalg.svd(x - x.mean(0), compute_uv=False)[CODE:]
    best = (rest**2).sum() / x.size
    print(f"the best that one plane can do (principal components): {best:.4f}")


if __name__ == "__main__":
    main()

"""Points of many dimensions on a plane, with neighbours together (t-SNE).

`python -m mithril.examples.tsne` prints how many points have a nearest neighbour of their group.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import mithril as ml


class Embedding(NamedTuple):
    """Coordinates [n, 2], and the divergence before and after."""

    points: np.ndarray
    before: float
    after: float


def embed(x: np.ndarray, perplexity: float = 10.0, steps: int = 400, seed: int = 0) -> Embedding:
    """Places points [n, d] on a plane by Adam, from small random coordinates."""
    model = ml.Model()
    tsne = ml.models.TSNE(2, "points", perplexity=perplexity, calculate_p_joint=True)
    model |= tsne(input="x", coords="coords", norm=2.0, output="divergence")
    model.expose_keys("divergence")
    shapes = {"x": list(x.shape), "coords": [len(x), 2]}
    backend = ml.CpuBackend(dtype=ml.float64)
    pm = ml.compile(model, backend, data_keys={"x"}, shapes=shapes)
    optimizer = ml.optim.Adam(lr=0.1)
    params = {"coords": 1e-2 * np.random.default_rng(seed).standard_normal((len(x), 2))}
    state = optimizer.init(params)
    divergences = []
    for _ in range(steps):
        outputs, gradients = pm.evaluate(
            params, {"x": x}, output_gradients={"divergence": np.array(1.0)}
        )
        divergences.append(float(outputs["divergence"]))
        params, state = optimizer.update(params, gradients, state)
    return Embedding(params["coords"], divergences[0], divergences[-1])


def groups(count: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three groups of points in ten dimensions, and the group of each."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(3), count)
    return 3 * np.eye(10)[group] + 0.5 * rng.standard_normal((3 * count, 10)), group


def share_of_neighbours(points: np.ndarray, group: np.ndarray) -> float:
    """The share of points whose nearest neighbour is of their group."""
    distances = ((points[:, None] - points[None]) ** 2).sum(-1)
    np.fill_diagonal(distances, np.inf)
    return float((group[distances.argmin(1)] == group).mean())


def main() -> float:
    x, group = groups()
    found = embed(x)
    share = share_of_neighbours(found.points, group)
    print(f"neighbours of one group: {share:.0%}")
    return share


if __name__ == "__main__":
    main()

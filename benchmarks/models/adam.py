"""Adam (Kingma and Ba, arXiv:1412.6980) by hand for JAX, with decoupled decay of weights."""

from typing import Any

BETAS, EPS = (0.9, 0.999), 1e-8


def jax_state(weights: Any) -> Any:
    """Weights (a tree, which the state takes over), both moments and the count of steps."""
    import jax
    import jax.numpy as jnp

    zeros = (jax.tree.map(jnp.zeros_like, weights) for _ in range(2))
    return (weights, *zeros, jnp.float32(0))


def jax_update(state: Any, gradients: Any, rate: float, decay: float = 0.0) -> Any:
    import jax
    import jax.numpy as jnp

    weights, m, v, t = state
    t = t + 1
    m = jax.tree.map(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, m, gradients)
    v = jax.tree.map(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, v, gradients)
    unbiased, root = rate / (1 - BETAS[0] ** t), jnp.sqrt(1 - BETAS[1] ** t)

    def moved(w: Any, m: Any, v: Any) -> Any:
        return (1 - rate * decay) * w - unbiased * m / (jnp.sqrt(v) / root + EPS)

    return jax.tree.map(moved, weights, m, v), m, v, t

"""The next token by its logits: the likeliest, or drawn with a temperature, `top_k` and `top_p`."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

from mithril.base.checks import checked_size
from mithril.base.numpy import np
from mithril.errors import ArgumentError, OptionError, shown


@dataclass
class Sampler:
    """Chooses tokens by their logits."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    seed: int | None

    def __post_init__(self) -> None:
        options = {"top_k": self.top_k, "top_p": self.top_p, "seed": self.seed}
        alone = [key for key, value in options.items() if value is not None]
        if self.temperature is None and alone:
            raise OptionError(
                f"generate: {alone[0]} is for tokens that are drawn",
                hint="give temperature=1.0, or leave it out",
            )
        if self.temperature is not None:
            _number("temperature", self.temperature, float("inf"))
        if self.top_k is not None:
            checked_size("generate: top_k", self.top_k)
        if self.top_p is not None:
            _number("top_p", self.top_p, 1.0)
        if self.seed is not None:
            checked_size("generate: seed", self.seed, 0)
        self._rng = np.random.default_rng(self.seed)

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """Logits float64 [b, vocabulary] to tokens int64 [b]."""
        if self.temperature is None:
            return logits.argmax(-1)
        sums = self.probabilities(logits).cumsum(-1)
        drawn = self._rng.random((len(sums), 1)) * sums[:, -1:]
        return (sums <= drawn).sum(-1)

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        most = logits.max(-1, keepdims=True)
        with np.errstate(over="ignore", invalid="ignore"):  # little beside the temperature, or Inf
            logits = np.where(logits == most, 0.0, (logits - most) / self.temperature)
        if self.top_k is not None and self.top_k < logits.shape[-1]:
            least = np.partition(logits, -self.top_k, -1)[:, -self.top_k, None]
            logits = np.where(logits < least, -np.inf, logits)
        powers = np.exp(logits)  # of 0 and less
        chances = powers / powers.sum(-1, keepdims=True)
        return chances if self.top_p is None else self._nucleus(chances)

    def _nucleus(self, chances: np.ndarray) -> np.ndarray:
        """Leaves out the unlikeliest tokens, which have at most 1 - top_p together."""
        order = chances.argsort(-1, kind="stable")
        rising = np.take_along_axis(chances, order, -1)
        is_out = rising.cumsum(-1) <= 1 - self.top_p  # type: ignore[operator]
        is_out[:, -1] = False
        out = np.zeros_like(chances)
        np.put_along_axis(out, order, np.where(is_out, 0.0, rising), -1)
        return out / out.sum(-1, keepdims=True)


def _number(key: str, value: Any, most: float) -> None:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not 0 < value <= most or value == float("inf"):
        to = f"of at most {most:g}" if most < float("inf") else "of finite size"
        raise ArgumentError(f"generate: {key} requires a positive number {to}, got {shown(value)}")


__all__ = ["Sampler"]

"""The report of `verify`: a row for each backend, and in it the first node that diverges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mithril.testing.distances import Distance


@dataclass(frozen=True)
class Divergence:
    """The first node, in topological order (backward: against it), that is off."""

    direction: str  # "forward", "backward"
    node: str  # its path: "net.first"
    op: str
    ulps: float
    problem: str
    line: str = ""  # of the emitted program; "" where there is none
    location: str = ""  # of the user's code

    def __str__(self) -> str:
        steps = "" if math.isinf(self.ulps) else f", {self.ulps:.0f} ULPs"
        what = f"{self.node}: " if self.node else ""
        lines = [f"{self.direction} diverges first at {what}{self.op}{steps}: {self.problem}"]
        lines += [f"  at {self.location}"] if self.location else []
        lines += [f"  emitted: {line}" for line in self.line.splitlines()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Verified:
    """One backend's row: true when all agrees."""

    backend: str
    device: str
    nodes: int = 0  # compared, forward
    output_ulps: float = 0.0  # the largest distance of an output
    gradient_ulps: float = 0.0  # and of a gradient
    divergences: tuple[Divergence, ...] = ()
    error: str = ""  # what it raised

    def __bool__(self) -> bool:
        return not (self.divergences or self.error)

    def __str__(self) -> str:
        counts = (
            f"{self.nodes} nodes, outputs within {self.output_ulps:.0f} ULPs,"
            f" gradients within {self.gradient_ulps:.0f}"
        )
        found = [self.error] if self.error else [str(d) for d in self.divergences]
        said = "\n".join(found).replace("\n", "\n    ") or "agrees"
        return f"  {self.backend}: {said}" + ("" if self.error or found else f" ({counts})")


@dataclass(frozen=True)
class Verification:
    """The result of `verify`: true when every backend agrees with the reference."""

    model: str
    seed: int
    rows: list[Verified] = field(default_factory=list)

    @property
    def first(self) -> Divergence | Any:
        """The first divergence of the first backend that has one."""
        return next((d for row in self.rows for d in row.divergences), None)

    def __bool__(self) -> bool:
        return all(self.rows)

    def __str__(self) -> str:
        agree = sum(map(bool, self.rows))
        head = f"{self.model}: {agree} of {len(self.rows)} agree (seed {self.seed})"
        return "\n".join([head, *map(str, self.rows)])

    __repr__ = __str__


def of_the_whole(direction: str, found: Mapping[str, Distance]) -> Divergence | None:
    """Returns a divergence of the whole model where each node by itself agrees, or None."""
    kind = "output" if direction == "forward" else "gradient of"
    for name, d in found.items():
        if d.problem:
            problem = f"{d.problem}; each node by itself agrees"
            return Divergence(direction, "", f"{kind} '{name}'", d.ulps, problem)
    return None


__all__ = ["Divergence", "Verification", "Verified", "of_the_whole"]

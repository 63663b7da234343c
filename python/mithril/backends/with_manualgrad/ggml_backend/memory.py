"""Places the tensors of a graph in one arena: each where nothing that is still read lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .graph import struct
from .library import MOST_SOURCES

ALIGNMENT = 64


def root(tensor: int) -> int:
    """The tensor whose memory a tensor looks at."""
    return struct(tensor).view_src or tensor


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan(
    nodes: list[int],
    sizes: Mapping[int, int],
    kept: Iterable[int],
    reads: Mapping[int, Iterable[int]],
) -> tuple[dict[int, int], int]:
    """The offsets of tensors and the bytes of all.

    Parameters
    ----------
    nodes : in the order in which they run
    sizes : bytes of each tensor that the arena holds
    kept : tensors that are read after the last node
    reads : what nodes read beside their sources
    """
    first, last = _lives(nodes, sizes, kept, reads)
    arena, offsets = _Free(), {}
    dying: dict[int, list[int]] = {}
    for tensor, at in last.items():
        dying.setdefault(at, []).append(tensor)
    for at, node in enumerate(nodes):
        own = root(node)
        if first.get(own) == at:
            offsets[own] = arena.take(aligned(sizes[own]))
        for tensor in dying.get(at, ()):
            arena.give(offsets[tensor], aligned(sizes[tensor]))
    return offsets, arena.end


def _lives(nodes, sizes, kept, reads) -> tuple[dict[int, int], dict[int, int]]:
    """When each tensor of the arena is written first and read last."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, node in enumerate(nodes):
        found = struct(node)
        sources = [found.src[i] for i in range(MOST_SOURCES) if found.src[i]]
        for tensor in (node, *sources, *reads.get(node, ())):
            own = root(tensor)
            if own in sizes:
                first.setdefault(own, at)
                last[own] = at
    last.update({root(tensor): len(nodes) for tensor in kept if root(tensor) in sizes})
    return first, last


class _Free:
    """The free parts of an arena that grows at its end."""

    def __init__(self) -> None:
        self.end = 0
        self._blocks: dict[int, int] = {}  # offset -> size

    def take(self, size: int) -> int:
        """The smallest part that is large enough."""
        fitting = [(n, at) for at, n in self._blocks.items() if n >= size]
        if not fitting:
            return self._grown(size)
        found, at = min(fitting)
        del self._blocks[at]
        if found > size:
            self._blocks[at + size] = found - size
        return at

    def _grown(self, size: int) -> int:
        """At the end, over what is free there."""
        at = next((at for at, n in self._blocks.items() if at + n == self.end), self.end)
        self._blocks.pop(at, None)
        self.end = at + size
        return at

    def give(self, at: int, size: int) -> None:
        """Makes a part free, in one piece with its neighbours."""
        before = next((b for b, n in self._blocks.items() if b + n == at), None)
        if before is not None:
            size += self._blocks.pop(before)
            at = before
        size += self._blocks.pop(at + size, 0)
        self._blocks[at] = size

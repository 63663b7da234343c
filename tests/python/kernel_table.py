"""The table of kernels for CUDA: what NVRTC and ptxas made of them, by family and architecture.

It is printed at the end of a run, and of `make test` (scripts/run_tests.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class Usage:
    """What ptxas says of some kernels on one architecture: the most registers and bytes of stack of
    one thread, and the bytes of spills of all of them."""

    kernels: int = 0
    registers: int = 0
    spills: int = 0
    stack: int = 0

    def add(self, other: Usage) -> None:
        self.kernels += other.kernels
        self.registers = max(self.registers, other.registers)
        self.spills += other.spills
        self.stack = max(self.stack, other.stack)

    def __str__(self) -> str:
        return f"{self.kernels:>6}{self.registers:>5}{self.spills:>6}"


class KernelTable:
    """Families of kernels by architecture.

    >>> table = KernelTable()
    >>> table.note("products", 80, [Usage(1, 90, 0, 0), Usage(1, 40, 8, 16)])
    >>> print(table)
    kernels for CUDA by NVRTC and ptxas: number, most registers, bytes of spills
                                                  sm_80
    products                               2   90     8
    all                                    2   90     8
    """

    def __init__(self) -> None:
        self.rows: dict[str, dict[int, Usage]] = {}

    def note(self, family: str, architecture: int, found: Iterable[Usage]) -> None:
        usage = self.rows.setdefault(family, {}).setdefault(architecture, Usage())
        for one in found:
            usage.add(one)

    def merge(self, other: KernelTable) -> None:
        for family, row in other.rows.items():
            for architecture, usage in row.items():
                self.note(family, architecture, [usage])

    def __str__(self) -> str:
        architectures = sorted({key for row in self.rows.values() for key in row})
        whole = {key: Usage() for key in architectures}
        lines = ["kernels for CUDA by NVRTC and ptxas: number, most registers, bytes of spills"]
        lines.append(" " * 34 + "".join(f"  {f'sm_{key}':>17}" for key in architectures))
        for family, row in sorted(self.rows.items()):
            for key, usage in row.items():
                whole[key].add(usage)
            lines.append(_line(family, row, architectures))
        return "\n".join([*lines, _line("all", whole, architectures)])

    # --- files ------------------------------------------------------------------------------------

    def to_json(self) -> str:
        rows = self.rows.items()
        return json.dumps({f: {key: asdict(usage) for key, usage in r.items()} for f, r in rows})

    @staticmethod
    def of_json(text: str) -> KernelTable:
        table = KernelTable()
        for family, row in json.loads(text).items():
            for key, usage in row.items():
                table.note(family, int(key), [Usage(**usage)])
        return table

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{self}\n")


def _line(family: str, row: dict[int, Usage], architectures: list[int]) -> str:
    cells = (f"  {row.get(key, '')!s:>17}" for key in architectures)
    return f"{family:<34}{''.join(cells)}".rstrip()

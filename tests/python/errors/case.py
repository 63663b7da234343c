"""Scripts that fail, with the facts that their errors must show. Data for test_scripts.py."""

from __future__ import annotations

from dataclasses import dataclass

PREAMBLE = """\
import mithril as ml
import numpy as np
from mithril import IOKey, Tensor

model = ml.Model()
"""


@dataclass(frozen=True)
class Case:
    """One script.

    Parameters
    ----------
    source : its lines after the preamble; lines that the error must name end in ``#1``, ``#2`` …
    error, code : class and code of the error
    shows : texts that the message must contain, such as both shapes
    fix : what the hint says, as replacements of the source; with them the script runs
    """

    name: str
    source: str
    error: str
    code: str
    shows: tuple[str, ...] = ()
    fix: tuple[tuple[str, str], ...] = ()

    @property
    def script(self) -> str:
        return PREAMBLE + self.source.strip() + "\n"

    @property
    def places(self) -> list[int]:
        """The lines that carry a marker."""
        lines = self.script.splitlines()
        return [n for n, line in enumerate(lines, 1) if line.rstrip()[-2:-1] == "#"]

    @property
    def fixed(self) -> str:
        script = self.script
        for old, new in self.fix:
            assert old in script, (self.name, old)
            script = script.replace(old, new)
        return script

"""A bar of progress on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from typing import Any, Self

_WIDTH = 30


class Progress:
    """Tells on `stream`, when that is a terminal, which of `total` steps is at work."""

    def __init__(self, total: int, stream: Any = None) -> None:
        self._total, self._done = total, 0
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = bool(getattr(self._stream, "isatty", lambda: False)())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def report(self, name: str, failed: int) -> None:
        """Step `name` begins; so many failed before it."""
        if self._is_shown:
            full = _WIDTH * self._done // max(self._total, 1)
            bar = "#" * full + "." * (_WIDTH - full)
            counts = f"{self._done}/{self._total}" + (f", {failed} failed" if failed else "")
            self._stream.write(f"\r\x1b[K[{bar}] {counts}  {name}")
            self._stream.flush()
        self._done += 1

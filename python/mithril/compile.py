"""`ml.compile` under the path that it has as a module, which can be called as the function can."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

from mithril.physical.compile import Keys, compile  # noqa: A004

__all__ = ["Keys", "compile"]


class _Module(types.ModuleType):
    """`import mithril.compile` must not turn `ml.compile` into something that cannot be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return compile(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(compile)


sys.modules[__name__].__class__ = _Module

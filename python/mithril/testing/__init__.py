"""Checking models and backends against an independent oracle.

Importing this package loads nothing: names are resolved when they are first used.
"""

import importlib

_LAZY = {
    "run_backend_tests": "mithril.testing.backend_tests",
    **dict.fromkeys(("verify", "Verification", "Divergence"), "mithril.testing.verification"),
    "assert_gradients": "mithril.testing.assertions",
    "assert_same_on_all_backends": "mithril.testing.assertions",
    **dict.fromkeys(("BackendReport", "Row"), "mithril.testing._report"),
}


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module 'mithril.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


__all__ = list(_LAZY)

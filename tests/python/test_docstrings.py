"""The examples in docstrings run, and print what they show."""

import doctest
import importlib.util
import pkgutil

import mithril
import pytest

# Backends whose examples need their framework.
OPTIONAL = ("torch", "jax", "mlx", *(() if importlib.util.find_spec("ggml") else ("ggml",)))


def modules() -> list[str]:
    found = pkgutil.walk_packages(mithril.__path__, "mithril.")
    names = ["mithril", *(info.name for info in found)]
    skipped = ("__main__", "generate", "_core")
    return [n for n in names if not n.endswith(skipped) and not any(o in n for o in OPTIONAL)]


@pytest.mark.parametrize("name", modules())
def test_examples_of(name):
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert results.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    count = sum(
        bool(test.examples)
        for name in modules()
        for test in finder.find(importlib.import_module(name))
    )
    assert count >= 35
    print(f"{count} docstrings with examples")

"""The base of the parts of `PhysicalModel`: each part is a class of public methods on one topic,
and what they do is done by functions of the compilation."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mithril.physical.compilation import Compilation
    from mithril.physical.fast_path import FastPath
    from mithril.physical.key_facts import KeyFacts


class Face:
    """Holds what a model compiled for a backend is made of."""

    backend: Any
    inference: bool
    jit: bool
    trainable_keys: tuple[str, ...]
    param_keys: tuple[str, ...]
    data_keys: tuple[str, ...]
    state_keys: tuple[str, ...]
    input_keys: set[str]
    output_keys: list[str]
    __signature__: inspect.Signature
    _compilation: Compilation
    _key_facts: KeyFacts
    _fast_path: FastPath


__all__ = ["Face"]

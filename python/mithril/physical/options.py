"""The options of `compile`, once they are checked: one record for the engine and for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mithril import _core

Pairs = list[tuple[Any, Any]]  # of a key and what is said of it


@dataclass
class CompileOptions:
    """The options of one compiled model. Keys are names, or wires of the snapshot."""

    backend: Any
    # --- of the graph, for the engine ---
    data_keys: list[Any] = field(default_factory=list)
    trainable_keys: list[Any] = field(default_factory=list)
    discard_keys: list[Any] = field(default_factory=list)
    constants: Pairs = field(default_factory=list)
    shapes: Pairs = field(default_factory=list)
    types: Pairs = field(default_factory=list)
    dtypes: Pairs = field(default_factory=list)
    fetch: Pairs = field(default_factory=list)  # further outputs: name, wire
    element_kinds: list[Any] = field(default_factory=list)  # wire, place in a list, dtype
    train: bool = False
    inference: bool = False
    strict: bool = False
    safe_names: bool = True
    short_names: bool = True
    path_names: bool = False
    names_of_part: bool = False
    drops_discarded: bool = False
    safe_shapes: bool = True
    promote_mixed: bool = True
    report: bool = False
    passes_off: tuple[str, ...] = ()
    # --- of programs and calls ---
    autodiff: str = "engine"
    jit: bool = False
    jit_is_asked: bool = False  # by compile, and not the backend's default
    jit_options: dict[str, Any] = field(default_factory=dict)
    file_path: str | None = None
    strict_dtypes: bool = False
    optimizer: Any = None
    loss_scale: Any = None  # of training
    static_shapes: bool = False
    exact_conv: bool = False
    canonical: bool = False
    weights: str = ""  # the format of constants that products multiply by; "": as they are
    quantize: str = ""  # the same of parameters that come with a call
    check_nan: str = ""  # "nan", "inf": what is looked for
    stream_gradients: bool = False
    memory_limit: int | None = None  # bytes
    gradient_checkpointing: bool = False
    static_inference: bool = False  # of emitted source; plans fold constants in any case
    predicted: tuple[str, ...] | None = None  # outputs that are none of training alone; None: all
    frozen: tuple[str, ...] = ()  # parameters without a gradient
    recorder: Any = field(default_factory=_core.Recorder)  # of every program that is made by them

    def for_engine(self, **said: Any) -> dict[str, Any]:
        """Returns the options as the engine's compile takes them, among those of programs, which it
        does not read; `said` overrides the record."""
        return {**vars(self), "item_shapes": [], "values": [], "await_values": False, **said}


__all__ = ["CompileOptions", "Pairs"]

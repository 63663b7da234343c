"""The elements of a picture: boxes of submodels, inputs and outputs, wires, clusters."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MOST_CHARACTERS = 40  # of a name in a picture
_PRODUCED = (2, 3)  # kinds of keys (model::KeyKind): outputs, shown or latent
_BIDIRECTIONAL = set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass
class Box:
    """`lines`: a title, then details. `kind`: "op", "model", "input" or "output"."""

    kind: str
    lines: list[str]
    cluster: int


@dataclass
class Wire:
    """From one box to those that read it; `label` is its shape."""

    source: int
    targets: list[int] = field(default_factory=list)
    label: str = ""


@dataclass
class Cluster:
    """A nested model that is drawn open. The first one is the model itself."""

    title: str
    kind: str
    parent: int


@dataclass
class Diagram:
    boxes: list[Box] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    clusters: list[Cluster] = field(default_factory=list)


def diagram_of(model: Any, depth: int | None = None) -> Diagram:
    """The diagram of a model, nested models opened `depth` levels deep (None: all)."""
    return _Reader(model._node, depth).read()


def clean(text: str, most: int = MOST_CHARACTERS) -> str:
    """Removes control characters and changes of direction from text, and limits its length."""
    if len(text) <= most and text.isascii() and text.isprintable():
        return text
    safe = "".join("\ufffd" if _is_unsafe(c) else c for c in text[: most + 1])
    return safe if len(safe) <= most else safe[: most - 1] + "…"


def _is_unsafe(character: str) -> bool:
    code = ord(character)
    is_no_character = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    category = unicodedata.category(character)
    return is_no_character or category in ("Cc", "Cs", "Zl", "Zp") or character in _BIDIRECTIONAL


@dataclass
class _Signal:
    """A wire through all levels, before it is known what reads it."""

    wire: Any
    name: str
    source: int = -1
    keys: list[tuple[int, str]] = field(default_factory=list)  # (box, its key) that read it


class _Reader:
    def __init__(self, root: Any, depth: int | None):
        self.root = root
        self.depth = depth
        self.diagram = Diagram()
        self.signals: list[_Signal] = []

    def read(self) -> Diagram:
        known: dict[str, int] = {}
        self._open(known)
        shapes = self._shapes()
        self._add_inputs(known, shapes)
        for signal, shape in zip(self.signals, shapes, strict=True):
            if signal.source >= 0 and signal.keys:
                readers = list(dict.fromkeys(box for box, _ in signal.keys))
                self.diagram.wires.append(Wire(signal.source, readers, shape))
        self._add_outputs(known, shapes)
        return self.diagram

    # --- the tree, one open model at a time
    def _open(self, known: dict[str, int]) -> None:
        title = self.root.name or self.root.class_name
        self.diagram.clusters.append(Cluster(clean(title), self.root.class_name, -1))
        if self.root.op is not None:
            self._add_alone(known)
            return
        pending = [(self.root, 0, 0, known)]
        while pending:
            node, cluster, level, wires = pending.pop(0)
            for child, name in zip(node.submodels, node.submodel_names, strict=True):
                wiring = [(key, self._signal(wires, wire)) for key, wire in node.wiring(child)]
                if child.op is not None or (self.depth is not None and level >= self.depth):
                    self._add_box(child, name, cluster, wiring)
                    continue
                self.diagram.clusters.append(Cluster(clean(name), child.class_name, cluster))
                inside = len(self.diagram.clusters) - 1
                pending.append((child, inside, level + 1, dict(wiring)))

    def _add_alone(self, known: dict[str, int]) -> None:
        """A model that is one op: its own keys are its wires."""
        wiring = []
        for key in self.root.external_keys:
            wire = self.root.connection(key)
            known[key] = len(self.signals)
            self.signals.append(_Signal(wire, key))
            wiring.append((key, known[key]))
        self._add_box(self.root, self.root.name or self.root.class_name, 0, wiring)

    def _signal(self, wires: dict[str, int], wire: Any) -> int:
        name = wire.key_name
        if name not in wires:
            wires[name] = len(self.signals)
            self.signals.append(_Signal(wire, name))
        return wires[name]

    def _add_box(self, node: Any, name: str, cluster: int, wiring: list[tuple[str, int]]) -> None:
        lines = [clean(name)]
        if clean(node.class_name) != lines[0]:
            lines.append(clean(node.class_name))
        at = len(self.diagram.boxes)
        self.diagram.boxes.append(Box("op" if node.op is not None else "model", lines, cluster))
        for key, number in wiring:
            signal = self.signals[number]
            if node.kind(key) in _PRODUCED:
                signal.source = at
            else:
                signal.keys.append((at, key))

    # --- what comes in and goes out
    def _shapes(self) -> list[str]:
        found = self.root.shapes([signal.wire for signal in self.signals])
        return [_shape_text(representations) for representations in found]

    def _add_inputs(self, known: dict[str, int], shapes: list[str]) -> None:
        """Parameters are lines of the boxes that read them, other inputs are boxes."""
        names = {number: name for name, number in known.items()}
        inside: dict[int, list[str]] = {}  # closed model -> shapes of its parameters
        for number, signal in enumerate(self.signals):
            if signal.source >= 0 or not signal.keys or self.root.is_valued(signal.wire):
                continue
            own = names.get(number, signal.name)
            if not self.root.differentiable(signal.wire):
                signal.source = len(self.diagram.boxes)
                name = signal.keys[0][1] if own.startswith("$") else own
                self.diagram.boxes.append(Box("input", [clean(name)], 0))
                continue
            for box, key in signal.keys:
                if self.diagram.boxes[box].kind == "model":
                    inside.setdefault(box, []).append(shapes[number])
                    continue
                text = key if _is_same(own, key) else f"{key} = {own}"
                self.diagram.boxes[box].lines.append(f"{clean(text)} {shapes[number]}".strip())
        for box, found in inside.items():
            self.diagram.boxes[box].lines.append(_count_text(found))

    def _add_outputs(self, known: dict[str, int], shapes: list[str]) -> None:
        by_source = {wire.source: wire for wire in self.diagram.wires}
        for key in self.root.output_keys:
            number = known.get(key)
            if number is None or self.signals[number].source < 0:
                continue
            source = self.signals[number].source
            at = len(self.diagram.boxes)
            self.diagram.boxes.append(Box("output", [clean(key)], 0))
            wire = by_source.get(source)
            if wire is not None and self.signals[number].keys and wire.label == shapes[number]:
                wire.targets.append(at)
            else:
                self.diagram.wires.append(Wire(source, [at], shapes[number]))


def _is_same(name: str, key: str) -> bool:
    """Tells whether a wire's name adds nothing to the key: "$3", "weight", "weight_3"."""
    return name.startswith("$") or name == key or name.rpartition("_")[0] == key


def _count_text(shapes: list[str]) -> str:
    """Returns the number of parameters of a closed model as text, "> " where shapes are open."""
    total, is_open = 0, False
    for shape in shapes:
        sizes = shape.strip("[]").split(", ") if shape != "[]" else []
        if all(size.isdigit() for size in sizes):
            total += math.prod(map(int, sizes))
        else:
            is_open = True
    return f"{'> ' if is_open else ''}{total:,} parameters"


def _shape_text(representations: list[list[Any]]) -> str:
    """ "[N, 4]": sizes, names of the user's, "?" and "..." for what is open."""
    if not representations:
        return ""
    return "[" + ", ".join(_item_texts(representations[0])) + "]"


def _item_texts(shape: list[Any]) -> Iterator[str]:
    for item in shape:
        if isinstance(item, tuple):
            yield "..."
        else:
            yield clean(str(item))


__all__ = ["Box", "Cluster", "Diagram", "Wire", "clean", "diagram_of"]

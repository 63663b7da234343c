"""Pictures of models: what is drawn (diagram), where it lies (layers, place), and as which text
(svg, dot, mermaid). Nothing but the standard library is used, and nothing recurses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mithril.base.checks import checked_size
from mithril.base.files import path_of, write_text
from mithril.errors import ArgumentError, shown

_FORMATS = {"svg": ".svg", "mermaid": ".mmd", "dot": ".dot"}


class Picture(str):
    """The text of a picture; a notebook shows it, if it is SVG."""

    format_name: str

    def _repr_svg_(self) -> str | None:
        return str(self) if self.format_name == "svg" else None

    def __repr__(self) -> str:
        return f"<Picture: {self.format_name}, {len(self):,} characters>"


def plot(
    model: Any, format: str | None = None, file_path: Any = None, depth: int | None = None
) -> Picture:
    """A picture of a model as text (`Model.plot` tells more)."""
    from mithril.drawing.diagram import diagram_of

    if file_path is not None:
        file_path = path_of("plot: file_path", file_path)
    chosen = _format(format, file_path)
    if depth is not None:
        checked_size("plot: depth", depth, 0)
    picture = Picture(_render(diagram_of(model, depth), chosen))
    picture.format_name = chosen
    if file_path is not None:
        path = Path(file_path)
        if not path.parent.is_dir():
            raise ArgumentError(f"plot: the folder of file_path does not exist: {path.parent}")
        write_text("plot: file_path", file_path, picture)
    return picture


def _format(format: Any, file_path: Any) -> str:
    if format is None and file_path is not None:
        suffix = Path(file_path).suffix.lower()
        format = next((name for name, end in _FORMATS.items() if end == suffix), None)
    chosen = "svg" if format is None else format
    if not isinstance(chosen, str) or chosen not in _FORMATS:
        raise ArgumentError(f'plot: format requires "svg", "mermaid" or "dot", got {shown(chosen)}')
    return chosen


def _render(diagram: Any, format: str) -> str:
    if format == "svg":
        from mithril.drawing.svg import svg

        return svg(diagram)
    if format == "dot":
        from mithril.drawing.dot import dot

        return dot(diagram)
    from mithril.drawing.mermaid import mermaid

    return mermaid(diagram)


__all__ = ["Picture", "plot"]

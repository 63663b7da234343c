"""A placed diagram as SVG text: one element, no style sheet, no script, no reference outside."""

from __future__ import annotations

from xml.sax.saxutils import escape

from mithril.drawing.diagram import Box, Diagram
from mithril.drawing.place import (
    FONT,
    LINE,
    SMALL,
    Line,
    Point,
    Rectangle,
    cluster_title,
    place,
)

# Fill and border of each kind of box.
_COLORS = {
    "op": ("#eef4fb", "#2a6fbb"),
    "model": ("#fdf3e4", "#c07a1c"),
    "input": ("#eef8f0", "#3f8f5a"),
    "output": ("#fbeeee", "#b84a4a"),
}
_CLUSTERS = ("#fbfbfd", "#f4f4f9")  # by depth
_INK, _GRAY, _WIRE = "#1c2733", "#5b6875", "#7b8794"


def svg(diagram: Diagram) -> str:
    placement = place(diagram)
    width, height = round(placement.width + 0.5), round(placement.height + 0.5)
    depth = _depths(diagram)
    body = [
        *(_frame(placement.clusters[at], depth[at]) for at in range(1, len(diagram.clusters))),
        *map(_line, placement.lines),
        *(_label(point, diagram.wires[wire].label) for wire, point in placement.labels.items()),
        *(
            _title(placement.clusters[at], cluster_title(diagram.clusters[at]))
            for at in range(1, len(diagram.clusters))
        ),
        *(
            _box(box, rectangle)
            for box, rectangle in zip(diagram.boxes, placement.boxes, strict=True)
        ),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif"'
        f' font-size="{FONT:g}" fill="{_INK}">'
    )
    background = f'<rect width="{width}" height="{height}" fill="white"/>'
    name = f"<title>{escape(diagram.clusters[0].title)}</title>"
    return "\n".join([head, name, background, *body, "</svg>", ""])


def _depths(diagram: Diagram) -> list[int]:
    depths: list[int] = []
    for cluster in diagram.clusters:  # parents come first
        depths.append(0 if cluster.parent < 0 else depths[cluster.parent] + 1)
    return depths


def _frame(at: Rectangle, depth: int) -> str:
    return (
        f'<rect x="{at.x:.1f}" y="{at.y:.1f}" width="{at.width:.1f}" height="{at.height:.1f}"'
        f' rx="8" fill="{_CLUSTERS[depth % 2]}" stroke="#c3c9d4"/>'
    )


def _title(at: Rectangle, title: str) -> str:
    return _text((at.x + 8, at.y + 16), title, "")


def _label(at: Point, text: str) -> str:
    return _text(at, text, f' font-size="{SMALL:g}"')


def _text(at: Point, text: str, more: str) -> str:
    """On a halo, drawn by itself: not every viewer knows `paint-order`."""
    place = f'x="{at[0]:.1f}" y="{at[1]:.1f}"{more}'
    halo = f'<text {place} stroke="white" stroke-width="3" fill="white">{escape(text)}</text>'
    return f'{halo}<text {place} fill="{_GRAY}">{escape(text)}</text>'


def _line(line: Line) -> str:
    path = f"M{_pair(line.points[0])}"
    for i, (start, end) in enumerate(zip(line.points, line.points[1:], strict=False)):
        upright = i % 2 == 0 or abs(start[0] - end[0]) < 0.5
        middle = (start[1] + end[1]) / 2
        curve = f"C{_pair((start[0], middle))} {_pair((end[0], middle))} {_pair(end)}"
        path += f"L{_pair(end)}" if upright else curve
    wire = f'<path d="{path}" fill="none" stroke="{_WIRE}"/>'
    if not line.ends_at_box:
        return wire
    x, y = line.points[-1]
    tip = f"M{_pair((x - 3.5, y - 6))}L{_pair((x + 3.5, y - 6))}L{_pair((x, y))}Z"
    return f'{wire}<path d="{tip}" fill="{_WIRE}"/>'


def _pair(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"


def _box(box: Box, at: Rectangle) -> str:
    fill, border = _COLORS[box.kind]
    radius = at.height / 2 if box.kind in ("input", "output") else 5
    middle = at.x + at.width / 2
    texts = "".join(
        f'<text x="{middle:.1f}" y="{at.y + LINE * (i + 1):.1f}" text-anchor="middle"'
        + (f' font-size="{SMALL:g}" fill="{_GRAY}"' if i > 0 else "")
        + f">{escape(line)}</text>"
        for i, line in enumerate(box.lines)
    )
    return (
        f'<rect x="{at.x:.1f}" y="{at.y:.1f}" width="{at.width:.1f}" height="{at.height:.1f}"'
        f' rx="{radius:g}" fill="{fill}" stroke="{border}"/>{texts}'
    )


__all__ = ["svg"]

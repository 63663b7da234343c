"""Small SVG pictures for the examples: a learning curve and the boxes of a model."""

from __future__ import annotations

from html import escape
from pathlib import Path

COLORS = ("#2a6fbb", "#c8553d", "#4f9d69")


def _document(width: int, height: int, body: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">'
    )
    return "\n".join(
        [head, f'<rect width="{width}" height="{height}" fill="white"/>', *body, "</svg>\n"]
    )


def learning_curve(curves: list[list[float]], path: Path) -> None:
    """Loss by step, one line a seed, on a logarithmic axis."""
    import math

    width, height, left, bottom = 640, 360, 60, 40
    steps = max(len(curve) for curve in curves)
    logs = [[math.log10(max(loss, 1e-6)) for loss in curve] for curve in curves]
    low = math.floor(min(min(curve) for curve in logs))
    high = math.ceil(max(max(curve) for curve in logs))
    x = lambda i: left + (width - left - 20) * i / max(steps - 1, 1)  # noqa: E731
    y = lambda v: 20 + (height - 20 - bottom) * (high - v) / max(high - low, 1)  # noqa: E731
    body = []
    for tick in range(low, high + 1):
        body.append(
            f'<line x1="{left}" x2="{width - 20}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" '
            'stroke="#ddd"/>'
        )
        body.append(f'<text x="8" y="{y(tick) + 4:.1f}">1e{tick}</text>')
    for number, curve in enumerate(logs):
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(curve))
        color = COLORS[number % len(COLORS)]
        body.append(f'<polyline points="{points}" fill="none" stroke="{color}"/>')
        body.append(
            f'<text x="{width - 90}" y="{40 + 16 * number}" fill="{color}">seed {number}</text>'
        )
    body.append(f'<text x="{width // 2}" y="{height - 10}">step (loss, {steps} steps)</text>')
    path.write_text(_document(width, height, body))


def model_picture(model, path: Path) -> None:
    """The submodels from top to bottom, with the shapes of what flows between them."""
    shapes = model.shapes
    rows = []
    for submodel, name in model.get_unique_submodel_names().items():
        wires = model.dag[submodel]
        output = next((w for key, w in wires.items() if key == "output"), None)
        shape = shapes.get(output.key) if output is not None else None
        text = "" if shape is None else str(["?" if d is None else d for d in shape])
        rows.append((name, type(submodel).__name__, text))
    body, top = [], 20
    for name, kind, text in rows:
        body.append(
            f'<rect x="40" y="{top}" width="220" height="34" rx="6" fill="#eef4fb" '
            'stroke="#2a6fbb"/>'
        )
        body.append(f'<text x="52" y="{top + 21}">{escape(name)}</text>')
        body.append(
            f'<text x="250" y="{top + 21}" text-anchor="end" fill="#777">{escape(kind)}</text>'
        )
        body.append(f'<text x="275" y="{top + 48}" fill="#555">{escape(text)}</text>')
        body.append(f'<line x1="150" x2="150" y1="{top + 34}" y2="{top + 54}" stroke="#2a6fbb"/>')
        top += 54
    path.write_text(_document(480, top + 10, body))

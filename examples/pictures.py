"""Small SVG pictures for the examples: a learning curve."""

from __future__ import annotations

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

    def x(step: int) -> float:
        return left + (width - left - 20) * step / max(steps - 1, 1)

    def y(value: float) -> float:
        return 20 + (height - 20 - bottom) * (high - value) / max(high - low, 1)

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

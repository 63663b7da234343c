"""`mithril bench --plot`: what was measured, as a PNG by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mithril.errors import UnsupportedError


def drawing_library() -> Any:
    """matplotlib, which draws without a screen.

    Raises
    ------
    UnsupportedError : it is not installed
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UnsupportedError(
            f"--plot: matplotlib is not installed ({error})", hint="pip install matplotlib"
        ) from error
    matplotlib.use("agg")
    return matplotlib


def draw(results: Sequence[dict[str, Any]], tables: dict[str, str], path: Path) -> None:
    """One chart for each table: a group of bars for each model, a bar for each backend.

    Parameters
    ----------
    tables : kind of a figure ("inference", "train", "memory") -> title
    path : of the PNG
    """
    drawing_library()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2 * len(tables)), layout="constrained")
    axes = figure.subplots(len(tables), 1, squeeze=False)[:, 0]
    for chart, (kind, title) in zip(axes, tables.items(), strict=True):
        _chart(chart, results, kind)
        chart.set_title(title)
    figure.savefig(path, format="png", dpi=120)


def _chart(chart: Any, results: Sequence[dict[str, Any]], kind: str) -> None:
    measured = [result for result in results if kind in result]
    models = list(dict.fromkeys(result["model"] for result in measured))
    backends = list(dict.fromkeys(result["backend"] for result in measured))
    width = 0.8 / max(len(backends), 1)
    for i, backend in enumerate(backends):
        own = [result for result in measured if result["backend"] == backend]
        rates = [result[kind] for result in own]
        heights = [rate["median"] for rate in rates]
        spread = [
            [rate["median"] - rate["low"] for rate in rates],
            [rate["high"] - rate["median"] for rate in rates],
        ]
        left = (len(backends) - 1) / 2
        places = [models.index(result["model"]) + (i - left) * width for result in own]
        chart.bar(places, heights, width, yerr=spread, label=backend, capsize=2)
    chart.set_xticks(range(len(models)), models)
    if backends:
        chart.legend()


__all__ = ["draw", "drawing_library"]

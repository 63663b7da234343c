"""`mithril bench MODEL …`: how fast models run on each backend of this machine."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mithril.cli import _bench_plot
from mithril.cli._bench_run import MODELS
from mithril.cli._names import backends_of
from mithril.errors import UnsupportedError

# Of the guide that the tables follow: model -> backend -> images/s, iterations/s, GB.
_GUIDE: dict[str, dict[str, tuple[float | None, ...]]] = {
    "resnet18": {
        "jax": (1200, 85, 1.2), "torch": (1100, 80, 1.5), "mlx": (180, 15, 0.9),
        "numpy": (20, 0.8, 0.8), "ggml": (50, None, 0.5),
    },
    "resnet50": {
        "jax": (480, 32, 3.5), "torch": (450, 28, 4.2), "mlx": (70, 6, 2.8),
        "numpy": (5, 0.2, 2.3), "ggml": (18, None, 1.4),
    },
    "vit_b_16": {
        "jax": (180, 12, 8.6), "torch": (160, 10, 9.8), "mlx": (25, 2, 6.5),
        "numpy": (1, 0.05, 5.2), "ggml": (5, None, 3.1),
    },
}  # fmt: skip
_TABLES = {
    "inference": ("Inference speed (images/second)", 0),
    "train": ("Training speed (iterations/second)", 1),
    "memory": ("Memory, most of a process (GB)", 2),
}
_SECONDS = 3600.0  # for one process, at most


def run(arguments: Sequence[str]) -> int:
    """Prints the tables, or JSON; returns 1 where a backend failed, 2 for wrong arguments."""
    options = _parser().parse_args(list(arguments))
    backends = backends_of(options.backends)
    problem = backends if isinstance(backends, str) else _cannot_plot(options.plot)
    if problem:
        print(f"mithril bench: {problem}", file=sys.stderr)
        return 2
    found = [_in_its_own_process({"backend": name}) for name in backends]
    absent = [r for r in found if r.get("absent") and options.backends == "all"]
    if not options.mixed_devices and _on_several_devices(found):
        return 2
    here = [r["backend"] for r in found if r not in absent]
    results = [_measured(_task(name, model, options)) for model in options.models for name in here]
    print(json.dumps(results, indent=1) if options.json else _text(results, absent, options))
    if options.plot is not None:
        _bench_plot.draw(
            results, {kind: _TABLES[kind][0] for kind in _asked(options)}, options.plot
        )
    return int(any("error" in result for result in results))


def _on_several_devices(found: Sequence[dict[str, Any]]) -> bool:
    """Tells whether the results are from several kinds of devices; if so, prints which."""
    made = [result for result in found if "device" in result]
    if len({result["device"].partition(":")[0] for result in made}) < 2:
        return False
    told = ", ".join(f"{result['backend']} on {result['device']}" for result in made)
    print(f"mithril bench: backends compute on several devices: {told}", file=sys.stderr)
    print("  help: --mixed-devices compares them all the same", file=sys.stderr)
    return True


def _measured(task: dict[str, Any]) -> dict[str, Any]:
    """Returns the result of a measurement in its own process; prints what is measured."""
    print(f"measuring {task['model']} on {task['backend']} …", file=sys.stderr, flush=True)
    return _in_its_own_process(task)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("mithril bench", description=__doc__)
    parser.add_argument("models", nargs="+", choices=sorted(MODELS), metavar="MODEL",
                        help=", ".join(sorted(MODELS)))  # fmt: skip
    parser.add_argument("--backends", default="all", help="names by comma, or all (default)")
    parser.add_argument("--train", action="store_true", help="steps of training, too")
    parser.add_argument("--memory", action="store_true", help="memory of the processes, too")
    parser.add_argument("--batch", type=_count, default=1, help="images at once (default: 1)")
    parser.add_argument("--warm-up", type=_count, default=2, help="calls before (default: 2)")
    parser.add_argument("--repeats", type=_count, default=10, help="calls timed (default: 10)")
    parser.add_argument("--seconds", type=_count, default=60,
                        help="for each number, of fewer calls then (default: 60)")  # fmt: skip
    parser.add_argument("--mixed-devices", action="store_true", help="compare across devices")
    parser.add_argument("--plot", type=Path, metavar="FILE.png",
                        help="draw the results, too (needs matplotlib)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="results as JSON")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _cannot_plot(path: Path | None) -> str:
    """Says before measuring why no plot could be drawn at `path`; "" where one can."""
    if path is None:
        return ""
    if path.suffix.lower() != ".png":
        return f"--plot: a name that ends in .png is required, got {str(path)!r}"
    if not path.parent.is_dir():
        return f"--plot: there is no folder {path.parent}"
    try:
        _bench_plot.drawing_library()
    except UnsupportedError as error:
        return str(error)
    return ""


def _task(backend: str, model: str, options: Any) -> dict[str, Any]:
    return {
        "backend": backend,
        "model": model,
        "train": options.train,
        "batch": options.batch,
        "warm_up": options.warm_up,
        "repeats": options.repeats,
        "seconds": options.seconds,
    }


def _in_its_own_process(task: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "mithril.cli._bench_run", json.dumps(task)]
    named: dict[str, Any] = {key: task[key] for key in ("backend", "model", "batch") if key in task}
    try:
        out = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return {**named, "error": f"took longer than {_SECONDS:.0f} s"}
    lines = out.stdout.strip().splitlines()
    if out.returncode or not lines:
        said = (out.stderr.strip().splitlines() or [f"ended with status {out.returncode}"])[-1]
        return {**named, "error": said}
    return {**named, **json.loads(lines[-1])}


# --- text ----------------------------------------------------------------------------------------


def _text(results: list[dict[str, Any]], absent: list[dict[str, Any]], options: Any) -> str:
    parts = [_table(kind, results, options.repeats) for kind in _asked(options)]
    parts.append(_footnote(options))
    parts += [f"{r['backend']} {r['model']}: {r['error']}" for r in results if "error" in r]
    parts += [f"{r['backend']} is not here: {r['error']}" for r in absent]
    return "\n\n".join(parts)


def _footnote(options: Any) -> str:
    """Describes how the numbers were measured."""
    images = "1 image" if options.batch == 1 else f"{options.batch} images"
    return (
        f"{images} at once, a process for each row; medians of {options.repeats} calls after"
        f" {options.warm_up}, and the slowest and quickest of them; of fewer, as noted, where"
        f" {options.seconds} s were over"
    )


def _asked(options: Any) -> list[str]:
    train = ["train"] if options.train else []
    return ["inference", *train, *(["memory"] if options.memory else [])]


def _spread(found: dict[str, Any], repeats: int) -> str:
    """Slowest to quickest; of how many calls, where their time was over before all were timed."""
    calls = found.get("repeats", repeats)
    few = "" if calls >= repeats else f" ({calls} call{'s' if calls > 1 else ''})"
    return f"{found['low']:.3g} to {found['high']:.3g}{few}"


def _table(kind: str, results: list[dict[str, Any]], repeats: int) -> str:
    title, place = _TABLES[kind]
    rows = [("model", "backend", "device", "here", "spread", "original guide, on its machines")]
    for result in results:
        found = result.get(kind)
        guide = _GUIDE.get(result["model"], {}).get(result["backend"], (None,) * 3)[place]
        here = "-" if found is None else f"{found['median']:.3g}"
        spread = "-" if found is None else _spread(found, repeats)
        rows.append((result["model"], result["backend"], result.get("device", "-"), here, spread,
                     "-" if guide is None else f"{guide:g}"))  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([title, *lines])

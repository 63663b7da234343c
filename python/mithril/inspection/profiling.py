"""Profiles of what runs in a block, with times and rates: `PhysicalModel.profile`."""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mithril import _core
from mithril.backends.with_manualgrad.device_backend import DeviceBackend
from mithril.base.files import path_of, write_text
from mithril.errors import ArgumentError
from mithril.physical.compilation import compilation_of
from mithril.types import Dtype

_WIDEST = 44


@dataclass(frozen=True)
class ProfileRow:
    """All runs of one kernel for one place in the model.

    `bytes` are those that it reads and writes, of all runs; `flops` additions and multiplications
    as the textbook counts them (0: not known); `ops` elements times instructions of a fused loop.
    """

    kernel: str
    path: str
    count: int
    seconds: float
    bytes: int
    flops: float
    ops: float
    peak: float | None  # operations in a second that its threads can do at best, as measured
    has_steps: bool  # a loop or a branch: its time has that of its steps in it
    peak_bandwidth: float | None = None  # bytes in a second that a device moves at best

    @property
    def rate(self) -> float | None:
        """Operations in a second: `flops`, for loops `ops`."""
        work = self.flops or self.ops
        return work / self.seconds if work and self.seconds else None

    @property
    def bandwidth(self) -> float | None:
        """Bytes in a second."""
        return self.bytes / self.seconds if self.seconds else None

    @property
    def of_peak(self) -> float | None:
        """`rate` as a fraction of `peak`."""
        return self.rate / self.peak if self.rate and self.peak else None

    @property
    def of_peak_bandwidth(self) -> float | None:
        """`bandwidth` as a fraction of `peak_bandwidth`; caches may give more than 1."""
        known, peak = self.bandwidth, self.peak_bandwidth
        return known / peak if known and peak else None


@dataclass(frozen=True)
class _Step:
    """A step of a plan, as the engine recorded it."""

    kernel: str
    path: str
    dtype: Dtype | None
    shape: tuple[int, ...] | None
    bytes: int
    work: float
    is_flops: bool
    has_steps: bool
    threads: int  # 0: a device did it
    count: int
    nanoseconds: int

    def row(self, peak: float | None, peak_bandwidth: float | None) -> ProfileRow:
        work = self.work * self.count
        return ProfileRow(
            self.kernel,
            self.path,
            self.count,
            1e-9 * self.nanoseconds,
            self.bytes * self.count,
            work if self.is_flops else 0.0,
            0.0 if self.is_flops else work,
            peak if self.work else None,
            self.has_steps,
            peak_bandwidth,
        )

    def arguments(self, nanoseconds: int, peak: float | None) -> dict[str, Any]:
        """Returns the arguments of a trace event; flops per nanosecond are Gflop per second."""
        out: dict[str, Any] = {"path": self.path, "bytes": self.bytes, "threads": self.threads}
        if self.shape is not None:
            out["result"] = f"{self.dtype}{list(self.shape)}"
        time = max(nanoseconds, 1)
        out["GB/s"] = round(self.bytes / time, 3)
        if self.work:
            out["flops" if self.is_flops else "ops"] = self.work
            out["GFLOP/s" if self.is_flops else "Gop/s"] = round(self.work / time, 3)
        if self.work and peak:
            out["% of peak"] = round(100e9 * self.work / time / peak, 2)
        return out


@dataclass(frozen=True)
class _Call:
    name: str
    thread: int
    start: int
    nanoseconds: int


class Profile:
    """A recording of a compiled model; made by `PhysicalModel.profile`, used by `with`.

    After the block `rows` has what ran by kernel and path, the most expensive first, `calls` the
    seconds of each call, and `print` shows a table.
    """

    def __init__(self, physical: Any, path: Any):
        if path is not None:
            path_of("profile: path", path)
        self._physical = physical
        self._path = path
        self._recorder = compilation_of(physical).options.recorder
        self._calls: list[_Call] = []
        self._steps: list[_Step] = []
        self._events: list[tuple[int, int, int, int]] = []
        self._peaks: list[float | None] = []
        self._peak_bandwidths: list[float | None] = []
        self._begin = 0
        self.dropped = 0  # events that the trace has not, for there were too many

    def __enter__(self) -> Profile:
        if not self._recorder.start():
            raise ArgumentError("profile: this model is being profiled already")
        self._begin = time.perf_counter_ns()
        self._calls = []
        for name in ("evaluate", "step"):
            setattr(self._physical, name, self._timed(name, getattr(self._physical, name)))
        return self

    def __exit__(self, *_: Any) -> None:
        for name in ("evaluate", "step"):
            delattr(self._physical, name)
        recorded = self._recorder.stop()
        self.dropped = recorded["dropped"]
        self._steps = [_Step(*row, *rest) for row, *rest in recorded["steps"]]
        self._events = recorded["events"]
        self._peaks = self._peak_bandwidths = [None] * len(self._steps)  # a device may fail
        backend = self._physical.backend
        self._peaks, self._peak_bandwidths = (
            [of(backend, step) for step in self._steps] for of in (_peak, _peak_bandwidth)
        )
        if self._path is not None:
            write_text("profile: path", self._path, json.dumps(self.trace()))

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the method for this one model, in place of the class's, while it is profiled."""
        waits = not self._physical.backend.runs_plans

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter_ns()
            result = function(*args, **kwargs)
            if waits:
                _wait(self._physical.backend, result)
            elapsed = time.perf_counter_ns() - start
            what = name if kwargs.get("output_gradients") in (None, False) else "gradient"
            self._calls.append(_Call(what, threading.get_native_id(), start, elapsed))
            return result

        return call

    @property
    def rows(self) -> list[ProfileRow]:
        """Lists all that ran by kernel and path, the most expensive first."""
        groups: dict[tuple, list[ProfileRow]] = {}
        for step, *peaks in zip(self._steps, self._peaks, self._peak_bandwidths, strict=True):
            row = step.row(*peaks)
            key = (row.kernel, row.path, row.peak, row.peak_bandwidth, row.has_steps)
            groups.setdefault(key, []).append(row)
        return sorted(map(_merged, groups.values()), key=lambda row: -row.seconds)

    @property
    def calls(self) -> list[tuple[str, float]]:
        """Lists ("evaluate", "gradient" or "step", seconds) of each call in order of its end."""
        return [(call.name, 1e-9 * call.nanoseconds) for call in self._calls]

    def trace(self) -> dict[str, Any]:
        """Returns the events in the form that chrome://tracing and Perfetto read."""
        pid = os.getpid()
        events = [
            self._event(pid, "call", call.name, call.thread, call.start, call.nanoseconds, {})
            for call in self._calls
        ]
        for number, thread, start, nanoseconds in self._events:
            step, peak = self._steps[number], self._peaks[number]
            arguments = step.arguments(nanoseconds, peak)
            events.append(
                self._event(pid, "step", step.kernel, thread, start, nanoseconds, arguments)
            )
        events.sort(key=lambda event: (event["ts"], -event["dur"]))
        name = {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "ts": 0}
        name["args"] = {"name": f"mithril {self._physical.backend!r}"}
        return {
            "traceEvents": [name, *events],
            "displayTimeUnit": "ms",
            "otherData": {"dropped events": self.dropped},
        }

    def _event(
        self, pid: int, kind: str, name: str, thread: int, start: int, duration: int, arguments: Any
    ) -> dict[str, Any]:
        out = {"ph": "X", "cat": kind, "name": name, "pid": pid, "tid": thread}
        microseconds = {"ts": (start - self._begin) / 1000, "dur": duration / 1000}
        return {**out, **microseconds, "args": arguments}

    def __str__(self) -> str:
        each = [seconds for _, seconds in self.calls]
        head = f"{len(each)} calls, {1e3 * sum(each):.3f} ms"
        rows = self.rows
        if not rows:
            return head
        own = sum(row.seconds for row in rows if not row.has_steps)
        lines = [
            f"{'kernel':<{_WIDEST}} {'model':<24} {'count':>7} {'ms':>10} {'%':>6} {'GB/s':>8}"
            f" {'% of max':>8} {'Gop/s':>8} {'% of peak':>9}"
        ]
        lines += [_line(row, own) for row in rows]
        loops = any(row.has_steps for row in rows)
        note = "; rows in [] have the time of their own steps in them" if loops else ""
        return "\n".join([head, *lines, f"steps: {1e3 * own:.3f} ms{note}"])

    __repr__ = __str__  # what an interactive session shows


def _line(row: ProfileRow, total: float) -> str:
    name = f"[{row.kernel}]" if row.has_steps else row.kernel
    share = "" if row.has_steps or not total else f"{100 * row.seconds / total:.1f}"
    return (
        f"{_short(name, _WIDEST):<{_WIDEST}} {_short(row.path, 24):<24} {row.count:>7}"
        f" {1e3 * row.seconds:>10.3f} {share:>6} {_number(row.bandwidth, 1e9):>8}"
        f" {_number(row.of_peak_bandwidth, 0.01):>8} {_number(row.rate, 1e9):>8}"
        f" {_number(row.of_peak, 0.01):>9}"
    )


def _number(value: float | None, unit: float) -> str:
    return "" if value is None else f"{value / unit:.2f}"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _merged(rows: list[ProfileRow]) -> ProfileRow:
    first = rows[0]
    return ProfileRow(
        first.kernel,
        first.path,
        sum(row.count for row in rows),
        sum(row.seconds for row in rows),
        sum(row.bytes for row in rows),
        sum(row.flops for row in rows),
        sum(row.ops for row in rows),
        first.peak,
        first.has_steps,
        first.peak_bandwidth,
    )


def _wait(backend: Any, result: Any) -> None:
    """Waits until the arrays of a result are there: frameworks may compute them later."""
    for value in result.values() if isinstance(result, dict) else result:
        if isinstance(value, dict | tuple):
            _wait(backend, value)
        elif hasattr(value, "dtype"):
            backend.block_until_ready(value)


def _peak(backend: Any, step: _Step) -> float | None:
    if not step.work:
        return None
    if isinstance(backend, DeviceBackend):
        return None if step.threads else backend.operation_peaks.get(step.dtype)
    return _measured(backend._pool, step.threads, step.dtype == Dtype.float64)


def _peak_bandwidth(backend: Any, step: _Step) -> float | None:
    is_of_device = isinstance(backend, DeviceBackend) and not step.threads
    return backend.device_peak()["bandwidth"] if is_of_device else None


@functools.cache
def _measured(pool: Any, threads: int, is_double: bool) -> float:
    """Measures the peak once for each number of threads and either type: about 5 ms."""
    return _core.cpu_peak(pool, threads, is_double)


__all__ = ["Profile", "ProfileRow"]

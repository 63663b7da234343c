"""Recordings of compiled models: what ran, in a table and as a trace."""

# Covers: mithril/inspection/profiling.py

import json
import threading

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.errors import ArgumentError, SignatureError
from mithril.inspection import profiling as _profiling

device = pytest.mark.device


def network(backend=None, outputs=("y", "cost"), **options):
    model = ml.Model(name="net")
    model |= ml.Linear(64, name="first")(input="x", output="h")
    model |= ml.Relu(name="act")(input="h", output="a")
    model |= ml.Linear(8, use_bias=False, name="head")(input="a", output="y")
    model |= ml.Mean(name="mean")(input="y", output="cost")
    model.expose_keys(*outputs)
    backend = backend or ml.CpuBackend(threads=1)
    return ml.compile(model, backend, shapes={"x": ["n", 32]}, data_keys={"x"}, **options)


def data(pm, rows=16):
    return {"x": pm.backend.ones((rows, 32))}


def by_kernel(profile):
    return {(row.kernel, row.path): row for row in profile.rows}


@device
def test_rows_have_what_ran():
    pm = network()
    params = pm.get_parameters()
    pm.evaluate(params, data(pm))
    with pm.profile() as profile:
        for _ in range(3):
            pm.evaluate(params, data(pm))
    pm.evaluate(params, data(pm))  # not in the block
    rows = by_kernel(profile)
    first, head = rows["gemm+add+relu", "net.first"], rows["gemm", "net.head"]
    assert (first.count, head.count) == (3, 3)
    assert first.flops == 3 * 2 * 16 * 32 * 64
    assert head.flops == 3 * 2 * 16 * 64 * 8
    assert first.bytes == 3 * 4 * (16 * 32 + 32 * 64 + 64 + 16 * 64)
    for row in profile.rows:
        assert 0 < row.seconds < 10
        assert row.bandwidth == row.bytes / row.seconds
    assert first.rate == first.flops / first.seconds
    assert first.of_peak == first.rate / first.peak
    assert [row.seconds for row in profile.rows] == sorted(
        (row.seconds for row in profile.rows), reverse=True
    )
    assert [name for name, _ in profile.calls] == ["evaluate"] * 3


@device
def test_gradients_steps_and_fetches_are_recorded_too():
    pm = network(outputs=["cost"], optimizer=ml.optim.SGD(0.1))
    params = pm.get_parameters()
    state = pm._compilation.options.optimizer.init(params)
    with pm.profile() as profile:
        pm.evaluate(params, data(pm), output_gradients=True)
        pm.step(params, state, data(pm))
        pm.evaluate(params, data(pm), fetch=["h"])
    assert [name for name, _ in profile.calls] == ["gradient", "step", "evaluate"]
    products = [r.count for r in profile.rows if r.kernel[:4] == "gemm" and r.path == "net.first"]
    assert sum(products) >= 3
    bound = pm.bind(params)
    with pm.profile() as profile:
        bound.evaluate({}, data(pm))
    assert profile.rows == []  # another model
    with bound.profile() as profile:
        bound.evaluate({}, data(pm))
    assert profile.rows


@device
def test_a_trace_is_what_the_browsers_read(tmp_path):
    pm = network()
    params = pm.get_parameters()
    path = tmp_path / "trace.json"
    with pm.profile(path) as profile:
        pm.evaluate(params, data(pm))
        assert not path.exists()
        pm.evaluate(params, data(pm))
    trace = json.loads(path.read_text())
    assert trace == json.loads(json.dumps(profile.trace()))
    name, *events = trace["traceEvents"]
    assert name["ph"] == "M" and "CpuBackend" in name["args"]["name"]
    assert {event["ph"] for event in events} == {"X"}
    calls = [event for event in events if event["cat"] == "call"]
    steps = [event for event in events if event["cat"] == "step"]
    assert len(calls) == 2 and len(steps) % 2 == 0
    for event in events:
        assert event["ts"] >= 0 and event["dur"] >= 0
        assert event["pid"] == name["pid"]
        assert event["tid"] == threading.get_native_id()
    for step in steps:  # each inside of its call
        assert any(
            call["ts"] <= step["ts"] and step["ts"] + step["dur"] <= call["ts"] + call["dur"]
            for call in calls
        )
    product = next(step for step in steps if step["args"]["path"] == "net.first")
    assert product["args"]["flops"] == 2 * 16 * 32 * 64
    rate = product["args"]["flops"] / (1000 * product["dur"])
    assert product["args"]["GFLOP/s"] == pytest.approx(rate, rel=0.01, abs=0.001)
    assert {"bytes", "GB/s", "% of peak", "threads", "result"} <= set(product["args"])
    assert product["args"]["result"] == "float32[16, 64]"


@device
def test_loops_are_not_counted_twice():
    body = ml.Model()
    body |= ml.MatrixMultiply()(left="h", right="w", output="h_next")
    body.expose_keys("h_next")
    model = ml.Model(name="net")
    model |= ml.Scan(body, carry={"h": "h_next"}, length=5, name="loop")(h="h", w="w", h_next="y")
    model.expose_keys("y")
    shapes = {"h": [4, 8], "w": [8, 8]}
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys=set(shapes))
    with pm.profile() as profile:
        pm.evaluate({}, {"h": np.ones((4, 8), np.float32), "w": np.eye(8, dtype=np.float32)})
    (loop,) = [row for row in profile.rows if row.has_steps]
    (product,) = [row for row in profile.rows if row.kernel == "gemm"]
    assert loop.kernel == "scan" and loop.count == 1
    assert product.count == 5 and product.flops == 5 * 2 * 4 * 8 * 8
    assert product.seconds <= loop.seconds
    assert "[scan]" in str(profile)
    assert f"steps: {1e3 * product.seconds:.3f} ms" in str(profile)


@device
def test_threads_record_side_by_side():
    pm = network()
    params, x = pm.get_parameters(), data(pm)
    expected = pm.evaluate(params, x)["y"]
    wrong = []

    def work():
        for _ in range(20):
            if not np.array_equal(pm.evaluate(params, x)["y"], expected):
                wrong.append(1)

    with pm.profile() as profile:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
    assert by_kernel(profile)["gemm+add+relu", "net.first"].count == 80
    events = [e for e in profile.trace()["traceEvents"] if e["ph"] == "X"]
    assert len({event["tid"] for event in events}) == 4


@device
def test_one_recording_at_a_time_and_none_is_left_behind():
    pm = network()
    params = pm.get_parameters()
    with pm.profile() as profile:
        with pytest.raises(ArgumentError, match="being profiled already"), pm.profile():
            pass
        pm.evaluate(params, data(pm))
    assert len(profile.calls) == 1
    with pytest.raises(ZeroDivisionError), pm.profile() as failed:
        pm.evaluate(params, data(pm))
        raise ZeroDivisionError
    assert len(failed.calls) == 1 and failed.rows  # what ran so far is there
    assert "evaluate" not in vars(pm) and "step" not in vars(pm)
    with pm.profile() as again:
        pass
    assert again.rows == [] and str(again) == "0 calls, 0.000 ms"


@device
def test_a_path_is_looked_at_first(tmp_path):
    pm = network()
    with pytest.raises(SignatureError, match="profile: path"):
        pm.profile(3)
    with pytest.raises(ArgumentError, match="profile: path"):
        pm.profile("")
    with pytest.raises(FileNotFoundError), pm.profile(tmp_path / "none" / "trace.json"):
        pass
    with pm.profile() as profile:
        pass
    assert profile.rows == []


@device
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rate_is_held_against_the_peak_of_its_type_and_threads(dtype, monkeypatch):
    asked = []
    monkeypatch.setattr(_profiling, "_measured", lambda *which: asked.append(which) or 4e9)
    backend = ml.CpuBackend(dtype=dtype, threads=2)
    pm = network(backend)
    params = pm.get_parameters()
    with pm.profile() as profile:
        pm.evaluate(params, data(pm, rows=4096))
    assert {pool for pool, *_ in asked} == {backend._pool}
    assert {threads for _, threads, _ in asked} == {1, 2}
    assert {is_double for *_, is_double in asked} == {dtype == "float64"}
    row = profile.rows[0]
    assert row.of_peak == row.rate / 4e9


@device
def test_a_peak_is_measured_once(monkeypatch):
    measured = []
    monkeypatch.setattr(_core, "cpu_peak", lambda *which: measured.append(which) or 1e9)
    pm = network(ml.CpuBackend(threads=1))
    params = pm.get_parameters()
    for _ in range(2):
        with pm.profile() as profile:
            pm.evaluate(params, data(pm))
    assert [row.peak for row in profile.rows if row.rate] == [1e9] * len(profile.rows)
    assert len(measured) == 1


@device
def test_the_table_is_for_people():
    pm = network()
    params = pm.get_parameters()
    with pm.profile() as profile:
        pm.evaluate(params, data(pm))
    text = str(profile)
    assert text.startswith("1 calls, ")
    assert "% of peak" in text and "net.first" in text and "add+relu" in text
    assert repr(profile) == text


def test_other_backends_have_an_event_for_each_call(backend_name, tmp_path):
    if backend_name in ("cpu", "c"):
        pytest.skip("plans have rows")
    pm = network(ml.get_backend(backend_name))
    params = pm.get_parameters()
    with pm.profile(tmp_path / "trace.json") as profile:
        pm.evaluate(params, data(pm))
        pm.evaluate(params, data(pm), output_gradients={"cost": pm.backend.ones(())})
    assert profile.rows == []
    assert [name for name, _ in profile.calls] == ["evaluate", "gradient"]
    assert all(seconds > 0 for _, seconds in profile.calls)
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [event["cat"] for event in events] == ["call", "call"]

"""Steps of a plan as one graph of CUDA: from the third run on whose operands lie where they were.

That a run launches a graph is seen by letting cuGraphLaunch fail.
"""

import os
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest
from backends.device_cases import injecting, live_objects
from backends.plan_cases import every_model, same, training_on
from emulated_cuda import NO_CUDA, is_used
from formats.c_cases import MODELS, drawn
from mithril import _core
from mithril.errors import DataIndexError, DeviceNotAvailable

pytestmark = [pytest.mark.device, pytest.mark.skipif(bool(NO_CUDA), reason=NO_CUDA)]


@pytest.fixture
def inject():
    yield from injecting(_core.cuda_functions())


def launches_a_graph(backend, call):
    """Tells whether one of twenty calls does. Memory is given back when somebody waits."""
    for _ in range(20):
        backend.block_until_ready()
        if _launches_a_graph(call):
            return True
    return False


def _launches_a_graph(call):
    _core.device_inject_failure("cuGraphLaunch", 1, 201)
    try:
        call()
    except DeviceNotAvailable as error:
        assert "cuGraphLaunch failed with" in str(error)
        return True
    finally:
        _core.device_inject_failure("cuGraphLaunch", 0, 0)
    return False


def on(backend, title, **options):
    make, shape = MODELS[title]
    return ml.compile(
        make(), backend, data_keys={"x"}, shapes={"x": shape}, deterministic="portable", **options
    )


@every_model
def test_values_are_those_of_steps(title):
    """Other data at the same places, of the host and of the device."""
    engine, device = on(ml.CpuBackend(), title), on(ml.CudaBackend(), title)
    shape, params = MODELS[title][1], engine.get_parameters()
    stays = device.backend.to_device(params)
    for given in (params, stays):
        for run in range(6):
            x = drawn(shape, run)
            got = device.evaluate(given, {"x": x})
            same({key: np.asarray(y) for key, y in got.items()}, engine.evaluate(params, {"x": x}))
    x = device.backend.to_device(drawn(shape))
    assert launches_a_graph(device.backend, lambda: device.evaluate(stays, {"x": x}))


@every_model
def test_training_is_that_of_the_engine(title):
    """Arrays that a step reads and those that it writes change places."""
    optimizer = ml.optim.AdamW(lr=1e-2)
    runs = []
    for backend in (ml.CpuBackend(), ml.CudaBackend()):
        pm, data = training_on(backend, title, optimizer)
        params = pm.get_parameters()
        arrays = params, optimizer.init(params), data, pm.initial_state()
        if isinstance(backend, ml.CudaBackend):
            arrays = backend.to_device(arrays)
        params, opt_state, data, state = arrays
        for _ in range(12):
            params, opt_state, state, outputs = pm.step(params, opt_state, data, state)
            backend.block_until_ready()
        runs.append({key: np.asarray(value) for key, value in {**params, **outputs}.items()})
    same(*runs)
    assert launches_a_graph(backend, lambda: pm.step(params, opt_state, data, state))


def test_an_index_out_of_bounds_is_reported_by_each_run():
    model = ml.Model()
    model |= ml.Embedding(num_embeddings=4, dim=2)(input="x", output="h")
    model |= ml.Softmax()(input="h", output="s")
    model |= ml.Linear(3)(input="s", output="y")
    backend = ml.CudaBackend()
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [3]})
    params = backend.to_device(pm.get_parameters())
    good = pm.evaluate(params, {"x": np.array([0, 3, 1])})["y"].tolist()
    for _ in range(5):
        with pytest.raises(DataIndexError, match="4"):
            pm.evaluate(params, {"x": np.array([0, 4, 1])})["y"].tolist()
        assert pm.evaluate(params, {"x": np.array([0, 3, 1])})["y"].tolist() == good


GRAPHS = ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"]


@pytest.mark.parametrize("symbol", GRAPHS)
@pytest.mark.parametrize("status", [2, 900])
def test_what_cannot_be_recorded_is_launched_step_by_step(symbol, status, inject):
    backend = ml.CudaBackend()
    pm, other = on(backend, "mlp"), on(backend, "lstm")
    x = backend.to_device(drawn(MODELS["mlp"][1]))
    params = backend.to_device(pm.get_parameters())
    want = np.asarray(pm.evaluate(params, {"x": x})["y"])
    before = live_objects()
    inject(symbol, 1, status)
    for _ in range(8):
        backend.block_until_ready()
        np.testing.assert_array_equal(np.asarray(pm.evaluate(params, {"x": x})["y"]), want)
    assert not launches_a_graph(backend, lambda: pm.evaluate(params, {"x": x}))
    assert live_objects() <= before + 1  # the stream that records
    params = backend.to_device(other.get_parameters())  # others are recorded all the same
    x = backend.to_device(drawn(MODELS["lstm"][1]))
    assert launches_a_graph(backend, lambda: other.evaluate(params, {"x": x}))


def test_graphs_go_with_their_model():
    backend = ml.CudaBackend()
    x = backend.to_device(drawn(MODELS["mlp"][1]))
    before = live_objects()

    def run():
        pm = on(backend, "mlp")
        params = backend.to_device(pm.get_parameters())
        assert launches_a_graph(backend, lambda: pm.evaluate(params, {"x": x}))

    run()
    assert live_objects() <= before + 2  # the arena, and the stream that records


def test_a_profile_tells_of_steps():
    backend = ml.CudaBackend()
    pm = on(backend, "mlp")
    params, x = backend.to_device((pm.get_parameters(), drawn(MODELS["mlp"][1])))
    rows = set()
    for _ in range(4):
        with pm.profile() as profile:
            for _ in range(3):
                pm.evaluate(params, {"x": x})
        rows.add(len(profile.rows))
    assert len(rows) == 1 and rows.pop() > 1


def test_the_variable_turns_them_off():
    code = """
import mithril as ml
from backends.test_cuda_graphs import MODELS, drawn, launches_a_graph, on
backend = ml.CudaBackend()
pm = on(backend, "mlp")
params, x = backend.to_device((pm.get_parameters(), drawn(MODELS["mlp"][1])))
print(launches_a_graph(backend, lambda: pm.evaluate(params, {"x": x})))
"""
    for value, wanted in (("1", "True"), ("0", "False")):
        env = {**os.environ, "MITHRIL_CUDA_GRAPHS": value}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env
        )
        assert done.stdout.split() == [wanted], done.stderr


# --- memory that is kept for later runs ---------------------------------------------------------


def test_memory_comes_back_at_its_place():
    backend = ml.CudaBackend()
    pm = on(backend, "mlp")
    params, x = backend.to_device((pm.get_parameters(), drawn(MODELS["mlp"][1])))
    pm.evaluate(params, {"x": x})
    before = backend.get_memory_info()
    kept = backend.to_device(np.zeros(100_000, np.float32))
    during = backend.get_memory_info()
    grown = during["device_used_bytes"] - before["device_used_bytes"]
    assert 400_000 <= grown < 401_000
    assert during["device_peak_bytes"] >= during["device_used_bytes"]
    assert during["device_limit_bytes"] == backend.device_info["memory"]
    assert during["device_used"] == during["device_used_bytes"] / 2**20
    del kept
    assert backend.get_memory_info()["device_used_bytes"] == before["device_used_bytes"]
    _core.device_inject_failure("cuMemAllocFromPoolAsync", 1, 201)
    backend.to_device(np.ones(100_000, np.float32))  # in the memory that is kept
    backend.empty_cache()
    with pytest.raises(DeviceNotAvailable, match="cuMemAllocFromPoolAsync failed with"):
        backend.to_device(np.ones(100_000, np.float32))


@pytest.mark.skipif(not is_used(), reason="the size is that of the emulator's memory")
def test_what_is_kept_goes_where_memory_is_short():
    backend = ml.CudaBackend()
    backend.empty_cache()
    for count in (50_000_000, 220_000_000):  # 200 and 880 MB of 1,074 MB
        found = backend.to_device(np.ones(count, np.float32))
        assert float(found[count - 1 : count].to_numpy()[0]) == 1.0
        del found
    backend.empty_cache()

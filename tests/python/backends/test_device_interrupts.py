# Covers: backends/device/executable.cc backends/device/driver.cc bindings/native_program.cc
# Covers: bindings/device_array.cc
"""Ctrl-C while a device computes, and threads that use one device at once.

Each case runs in a process of its own, which ends by a limit on time where it hangs. Limits on
waiting are ten times the contract's 200 ms."""

import pytest
from backends.test_cuda_backend import NO_CUDA
from backends.test_opencl_backend import WHY as NO_OPENCL
from test_interrupts import run

pytestmark = pytest.mark.device


def without(reason):
    return pytest.mark.skipif(bool(reason), reason=reason or "")


# By name: how a process makes the backend, and sizes of products that take it a while together.
on_each_device = pytest.mark.parametrize(
    ("backend", "size", "count"),
    [
        pytest.param("ml.OpenCLBackend('cpu')", 512, 500, id="opencl", marks=without(NO_OPENCL)),
        pytest.param("ml.CudaBackend()", 64, 500, id="cuda", marks=without(NO_CUDA)),
    ],
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of what the processes compile."""
    monkeypatch.setenv("MITHRIL_CACHE_DIR", str(tmp_path))


def products(backend, size, count):
    return f"""
backend = {backend}
model = ml.Model()
model |= ml.MatrixMultiply()(left="a", right="b", output="v0")
for _ in range({count}):
    model += ml.MatrixMultiply()(right="b")
pm = ml.compile(model, backend, inference=True, data_keys={{"a", "b"}}, mode="eval")
rng = np.random.default_rng(0)
draw = lambda: rng.normal(size=({size}, {size}), scale={size}**-0.5).astype(np.float32)
data = {{"a": draw(), "b": draw()}}
"""


@on_each_device
@pytest.mark.parametrize("profiled", [False, True])
def test_an_interrupt_stops_a_run(backend, size, count, profiled):
    """The second one: by the first the process knows how fast the device is."""
    first, wait, same = run(
        products(backend, size, count)
        + f"""
import contextlib
start = time.perf_counter()
want = list(pm.evaluate({{}}, data).values())[0].copy()
print(time.perf_counter() - start)
with pm.profile() if {profiled} else contextlib.nullcontext():
    print(interrupt(0.2, lambda: [pm.evaluate({{}}, data) for _ in range(4)]))
print(np.array_equal(list(pm.evaluate({{}}, data).values())[0], want))
"""
    )
    assert same == "True", first
    assert float(wait) < 2


LOOP = """
bigger = ml.Model.create(next_x=ml.IOKey("x") + ml.IOKey("one"))
is_small = ml.Model.create(go=ml.IOKey("x") < ml.IOKey("limit"))
model = ml.Model()
model |= ml.While(is_small, bigger, carry={"x": "next_x"})(
    x="x", one="one", limit="limit", next_x="y"
)
model.expose_keys("y")
model.set_shapes(x=[], one=[], limit=[])
pm = ml.compile(model, backend, inference=True)
def upto(limit):
    return pm.evaluate({}, {k: np.array(v, "f4") for k, v in
                            {"x": 0.0, "one": 1.0, "limit": limit}.items()})["y"]
"""


@on_each_device
@pytest.mark.parametrize("profiled", [False, True])
def test_an_interrupt_stops_a_loop_that_has_no_end(backend, size, count, profiled):
    few, wait, again = run(
        f"backend = {backend}"
        + LOOP
        + f"""
import contextlib
print(upto(5.0))
with pm.profile() if {profiled} else contextlib.nullcontext():
    print(interrupt(0.3, lambda: upto(np.inf)))
print(upto(7.0))
""",
        timeout=60,
    )
    assert (few, again) == ("5.0", "7.0")
    assert float(wait) < 2


@on_each_device
def test_an_interrupt_stops_a_loop_before_its_end(backend, size, count):
    """One that would end by itself after some seconds."""
    (wait,) = run(
        f"backend = {backend}"
        + LOOP
        + """
upto(5.0)
print(interrupt(0.3, lambda: upto(1e6)))
""",
        timeout=60,
    )
    assert float(wait) < 2


# A thread computes for as long as the main one works; it polls for signals while it has the device.
BESIDE = """
is_over = threading.Event()
def beside():
    while not is_over.is_set():
        pm.evaluate({}, data)
pm.evaluate({}, data)
thread = threading.Thread(target=beside)
thread.start()
"""
OVER = """
is_over.set()
thread.join()
print("over")
"""
FEW = {"opencl": (256, 60), "cuda": (32, 20)}


def few(backend):
    return products(backend, *FEW["cuda" if "Cuda" in backend else "opencl"])


@on_each_device
def test_steps_that_copy_beside_another_thread(backend, size, count):
    """What a step overwrites is its data, too, so that it computes in a copy."""
    assert run(
        few(backend)
        + """
train = ml.Model()
train |= ml.Multiply()(left="w", right="x", output="y")
train = ml.TrainModel(train)
train.add_loss(ml.SquaredError(), input="y", target="t", reduce_steps=[ml.Mean()])
optimizer = ml.optim.SGD(lr=0.0)
shapes = {"w": [1000], "x": [1000], "t": [1000]}
step = ml.compile(train, backend, optimizer=optimizer, data_keys={"x", "t"}, shapes=shapes,
                  trainable_keys={"w"}, stream_gradients=True)
w = backend.to_device(np.arange(1000, dtype=np.float32))
target = backend.to_device(np.ones(1000, np.float32))
"""
        + BESIDE
        + """
until = time.monotonic() + 3
while time.monotonic() < until:
    params = {"w": w}
    got = step.step(params, optimizer.init(params), {"x": w, "t": target})
print(np.array_equal(w, np.arange(1000)), np.array_equal(got.params["w"], np.arange(1000)))
"""
        + OVER,
        timeout=100,
    ) == ["True True", "over"]


@on_each_device
def test_arrays_beside_another_thread(backend, size, count):
    """Whatever else waits for the device lets the thread have the interpreter."""
    assert run(
        few(backend)
        + BESIDE
        + """
import copy, pickle
want = np.arange(12, dtype=np.float32).reshape(3, 4)
until = time.monotonic() + 3
while time.monotonic() < until:
    x = backend.to_device(want)
    y = x[1:] + 1
    assert np.array_equal(y.to_numpy(), want[1:] + 1) and float(x[0, 1]) == 1.0
    assert "dtype=float32" in repr(x) and f"{x[0, 0]:.1f}" == "0.0"
    assert np.array_equal(copy.copy(x), want) and x.tolist() == want.tolist()
    assert np.array_equal(pickle.loads(pickle.dumps(want)), want)
    assert np.array_equal(np.from_dlpack(x, device="cpu"), want)
    shared = backend.from_dlpack(x)
    del x, y
    assert np.array_equal(shared, want)
    del shared
    backend.empty_cache(), backend.get_memory_info(), backend.has_exact_bits
    backend.block_until_ready()
"""
        + OVER,
        timeout=100,
    ) == ["over"]

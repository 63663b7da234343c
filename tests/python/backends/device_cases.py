"""What backends whose plans run on a device are asked, beside plan_cases.py: products, what they
say of themselves, pickles, leaks, forks.

`backend` makes the backend that is tested; `both` is that of plan_cases.py.
"""

import gc
import multiprocessing
import os
import pickle

import mithril as ml
import numpy as np
import pytest
from backends.plan_cases import same
from emulated_cuda import NO_CUDA, is_used
from formats.c_cases import MODELS, drawn
from mithril import _core
from mithril.errors import ArgumentError, MithrilError, OutOfMemoryError

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def needs_library(name):
    """A mark for tests of a library of CUDA, `product_library` or `convolution_library`: the
    emulator has both, the machine of a GPU may have none."""
    is_there = bool(NO_CUDA) or is_used() or getattr(ml.CudaBackend(), name) is not None
    return pytest.mark.skipif(not is_there, reason=f"no {name} beside this driver")


def relu(backend):
    return ml.compile(ml.Relu(), backend(), shapes={"input": [3]})


def assert_relu_runs(pm):
    assert pm.evaluate({}, {"input": [-1.0, 2.0, 3.0]})["output"].tolist() == [0.0, 2.0, 3.0]


def mlp(backend):
    return ml.compile(MODELS["mlp"][0](), backend(), data_keys={"x"}, shapes={"x": [8, 16]})


def check_products(both, shape, transposed):
    m, k, n = shape
    model = ml.Model()
    if transposed:
        model |= ml.Transpose()(input="b", output="right")
    model |= ml.MatrixMultiply()(left="a", right="right" if transposed else "b", output="y")
    model.expose_keys("y")
    data = {"a": drawn([2, m, k]), "b": drawn([n, k] if transposed else [k, n], 1)}
    shapes = {key: list(value.shape) for key, value in data.items()}
    for dtype in ("float32", "float64"):
        engine, device = both(model, dtype, data_keys={"a", "b"}, shapes=shapes)
        cast = {key: value.astype(dtype) for key, value in data.items()}
        same(device.evaluate({}, cast), engine.evaluate({}, cast))


ROWS = {
    "softmax": (lambda: ml.Softmax(), [7, 1237]),
    "softmax of several blocks": (lambda: ml.Softmax(), [3, 9001]),
    "softmax of a row that nothing keeps": (lambda: ml.Softmax(), [2, 20_000]),
    "layer norm": (lambda: ml.LayerNorm(), [5, 1024]),
    "extremes": (lambda: ml.Max(axis=-1), [6, 500]),
    "smallest": (lambda: ml.Min(axis=-1), [6, 4100]),
    "product": (lambda: ml.Prod(axis=-1), [4, 300]),
    "two axes": (lambda: ml.Sum(axis=(1, 2)), [4, 37, 41]),
    "place": (lambda: ml.ArgMax(axis=-1), [4, 777]),
    "running sum": (lambda: ml.CumSum(axis=-1), [4, 700]),
    "columns": (lambda: ml.Sum(axis=0), [700, 90]),
}


def alone(part):
    model = ml.Model()
    model |= part(input="x", output="y")
    return model


def check_rows(both, title, dtype):
    """Values and gradients of one op along long rows, with numbers that are not finite."""
    make, shape = ROWS[title]
    pair = both(alone(make()), dtype, trainable_keys={"x"}, shapes={"x": shape})
    params = dict(pair[0].get_parameters())
    x = drawn(shape)
    x.flat[3], x.flat[-2:] = -0.0, (np.inf, np.nan)
    params["x"] = x.astype(params["x"].dtype)
    values = [pm.evaluate(params, {})["y"] for pm in pair]
    runs = [{"y": value} for value in values]
    if dtype in str(values[0].dtype):
        cotangents = {"y": drawn(values[0].shape, 1)}
        for run, pm in zip(runs, pair, strict=True):
            run.update(pm.evaluate(params, {}, output_gradients=cotangents).gradients)
    same(*({key: np.asarray(value, np.float64) for key, value in run.items()} for run in runs))


def check_what_it_says_of_itself(backend):
    pm = mlp(backend)
    assert pm.memory_plan()["evaluate"].inputs == 8 * 16 * 4
    assert "mlp.first" in str(pm.explain())
    x = drawn([8, 16])
    with pm.profile() as profile:
        pm.evaluate(pm.get_parameters(), {"x": x})
    assert profile.rows
    info = pm.backend.device_info
    assert info["memory"] > 0 and info["name"] in repr(pm.backend)
    assert pm.backend.has_exact_bits
    assert pm.backend.capabilities.autodiff == "engine"
    y, few = (m.evaluate({}, {"x": x}) for m in (
        pm.bind(pm.get_parameters()), pm.bind(pm.get_parameters(), weights="int16")))  # fmt: skip
    for name, value in y.items():
        np.testing.assert_allclose(few[name], value, rtol=1e-3, atol=1e-3)


def check_what_falls_back_is_told(backend, told):
    """And counted: one product and an exponential between two steps of linear algebra."""
    model = ml.Model()
    model |= ml.Cholesky()(input="x", output="l")
    model |= ml.MatrixMultiply()(left="l", right="l", output="p")
    model |= ml.Exponential()(input="p", output="e")
    model |= ml.Determinant()(input="e", output="y")
    on_device, programs = backend(), []
    native = on_device._native_program

    def noted(*arguments, **options):
        programs.append(native(*arguments, **options))
        return programs[-1]

    on_device._native_program = noted
    pm = ml.compile(model, on_device, data_keys={"x"}, shapes={"x": [4, 4]})
    found = pm.explain()
    assert told in str(found)
    kinds = [op for step in found.steps if step.is_on_host for op, _ in step.members]
    assert sorted(kinds) == ["cholesky", "det"] and found.host_steps == 2
    assert str(found).endswith(f"2 of {len(found.steps)} steps on the host")
    # As the executor of plans counts them.
    assert programs[0].source(programs[0].sizes({}))["host_steps"] == 2
    none = relu(backend).explain()
    assert none.host_steps == 0 and "on the host" not in str(none)
    engine = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [4, 4]})
    assert engine.explain().host_steps == 0


def check_a_memory_limit(backend):
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="a", right="b", output="h")
    model |= ml.MatrixMultiply()(left="h", right="b", output="y")
    model.expose_keys("y")
    shapes = {"a": [64, 64], "b": [64, 64]}
    data = {key: drawn(shape) for key, shape in shapes.items()}
    for limited, options in (
        (backend(memory_limit=1000), {}),
        (backend(memory_limit="1GB"), {"memory_limit": 1000}),
    ):
        pm = ml.compile(model, limited, data_keys={"a", "b"}, shapes=shapes, **options)
        with pytest.raises(OutOfMemoryError, match="memory_limit"):
            pm.evaluate({}, data)
    with pytest.raises(ArgumentError, match=f"{backend.__name__}: memory_limit"):
        backend(memory_limit="much")
    pm = ml.compile(model, backend(memory_limit="1GB"), data_keys={"a", "b"}, shapes=shapes)
    pm.evaluate({}, data)


def check_a_memory_limit_of_arrays(backend):
    """It counts what the process uses of the device."""
    free = backend()
    live_objects()  # what only cycles hold is not in use
    free.empty_cache()
    used = free._device.used_bytes
    limited = backend(memory_limit=used + 100_000)
    kept = limited.to_device(drawn([10_000]))
    for data in (drawn([100_000]), {"a": drawn([10]), "b": [drawn([20_000])]}, drawn([16_000])):
        with pytest.raises(OutOfMemoryError) as raised:
            limited.to_device(data)
        assert f"and memory_limit is {used + 100_000} bytes" in str(raised.value)
        assert "to_device of " in str(raised.value) and "drop arrays" in str(raised.value)
    assert free._device.used_bytes <= used + 41_000
    np.testing.assert_array_equal(limited.to_device(drawn([10_000], 1)), drawn([10_000], 1))
    assert (kept + kept).tolist() == (2 * drawn([10_000])).tolist()
    del kept
    limited.to_device(drawn([20_000]))
    free.to_device(drawn([100_000]))


def doubling():
    """A loop whose condition the host reads, and whose result is copied out of a spare place."""
    bigger = ml.Model.create(next_x=ml.IOKey("x") * ml.IOKey("factor"))
    is_small = ml.Model.create(go=ml.IOKey("x") < ml.IOKey("limit"))
    model = ml.Model()
    model |= ml.While(is_small, bigger, carry={"x": "next_x"})(
        x="x", factor="factor", limit="limit", next_x="y"
    )
    model.expose_keys("y")
    model.set_shapes(x=[], factor=[], limit=[])
    return model


def doubled(pm, limit):
    numbers = {"x": 1.0, "factor": 2.0, "limit": limit}
    return pm.evaluate({}, {key: np.array(value, "f4") for key, value in numbers.items()})["y"]


def check_pickles(backend):
    pm = mlp(backend)
    copy = pickle.loads(pickle.dumps(pm))
    data = {"x": drawn([8, 16])}
    same(copy.evaluate(pm.get_parameters(), data), pm.evaluate(pm.get_parameters(), data))


def live_objects():
    """Counts what is held on devices, without what only a cycle of Python objects holds: what one
    collection finalizes may hold what the next one finds."""
    while True:
        before = _core.device_live_objects()
        gc.collect()
        gc.collect()
        if _core.device_live_objects() == before:
            return before


def check_nothing_leaks(backend):
    def once():
        assert_relu_runs(relu(backend))

    once()
    before = live_objects()
    for _ in range(5):
        once()
    assert live_objects() == before


def injecting(symbols):
    """For fixtures: lets the nth call of a function fail; nothing stays behind."""
    yield _core.device_inject_failure
    for symbol in symbols:
        _core.device_inject_failure(symbol, 1, 0)


def linear_softmax():
    model = ml.Model()
    model |= ml.Linear(3)(input="x", output="h")
    model |= ml.Softmax()(input="h", output="y")
    return model


def _in_child(pm, found):
    try:
        assert_relu_runs(pm)
        found.put("it ran")
    except MithrilError as error:
        found.put(str(error))


def check_a_fork_is_told(backend):
    pm = relu(backend)
    assert_relu_runs(pm)
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(pm, found))
    child.start()
    said = found.get()
    child.join(20)
    assert "was forked from one that uses the device" in said
    assert_relu_runs(pm)

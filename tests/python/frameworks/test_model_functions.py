"""`as_function` under the transformations of each framework, and the text that it runs."""

# Covers: mithril/physical/model_function.py

import gc
import inspect
import linecache
import sys
import traceback
import weakref

import mithril as ml
import numpy as np
import pytest

X = np.linspace(-1.0, 1.0, 6, dtype=np.float32).reshape(2, 3)


def layers():
    model = ml.Model()
    model |= ml.Linear(4)(input="x", weight="w", bias="b", output="h")
    model |= ml.Tanh()(input="h", output="y")
    model |= ml.Mean()(input="y", output="cost")
    model.expose_keys("y", "cost")
    return model


def loop():
    """Runs a region of its own: a function beside `evaluate`."""
    step = ml.Model()
    step |= ml.Add()(left="carry", right="item", output="sum")
    step |= ml.Tanh()(input="sum", output="next")
    step.expose_keys("next")
    return step


def compiled(name, model=None, **options):
    options = {"data_keys": {"x"}, "shapes": {"x": [2, 3]}} | options
    return ml.compile(model or layers(), ml.get_backend(name), **options)


def arguments(pm):
    rng = np.random.default_rng(0)
    params = {key: rng.standard_normal(pm.shapes[key]) for key in pm.param_keys}
    native = {key: pm.backend.array(value) for key, value in params.items()}
    return params, native, {"x": pm.backend.array(X)}


def by_hand(params):
    y = np.tanh(X @ params["w"].T + params["b"])
    slope = (1 - y**2) / y.size
    return {"y": y, "cost": y.mean()}, {"w": slope.T @ X, "b": slope.sum(0)}


def same(backend, got, wanted):
    assert set(got) == set(wanted)
    for key, value in wanted.items():
        np.testing.assert_allclose(backend.to_numpy(got[key]), value, rtol=1e-4, atol=1e-6)


@pytest.fixture(params=["torch", "jax", "mlx"])
def name(request):
    pytest.importorskip({"mlx": "mlx.core"}.get(request.param, request.param))
    return request.param


def compiler(name):
    if name == "torch":
        import torch

        return lambda f: torch.compile(f, backend="aot_eager", fullgraph=True)
    if name == "jax":
        import jax

        return jax.jit
    import mlx.core as mx

    return mx.compile


def differentiator(name):
    if name == "torch":
        import torch

        return torch.func.grad
    if name == "jax":
        import jax

        return jax.grad
    import mlx.core as mx

    return mx.grad


def test_compilers_take_it(name):
    pm = compiled(name)
    params, native, data = arguments(pm)
    same(pm.backend, compiler(name)(pm.as_function())(native, data), by_hand(params)[0])


def test_it_is_differentiated(name):
    pm = compiled(name)
    params, native, data = arguments(pm)
    cost = pm.as_function(outputs="cost")
    found = differentiator(name)(lambda p: cost(p, data)["cost"])(native)
    same(pm.backend, found, by_hand(params)[1])


def test_it_is_mapped_over_batches(name):
    import importlib

    pm = compiled(name)
    params, native, data = arguments(pm)
    vmap = {"torch": "torch.func", "jax": "jax", "mlx": "mlx.core"}[name]
    function = pm.as_function(outputs=["y"])
    mapped = importlib.import_module(vmap).vmap(lambda x: function(native, {"x": x})["y"])
    many = np.stack([X, X[::-1]])
    got = pm.backend.to_numpy(mapped(pm.backend.array(many)))
    wanted = np.tanh(many @ params["w"].T + params["b"])
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


def test_one_name_is_one_output(name):
    pm = compiled(name)
    _, native, data = arguments(pm)
    assert list(pm.as_function(outputs="y")(native, data)) == ["y"]
    with pytest.raises(ml.errors.KeyNotFound, match="no output named 'z'"):
        pm.as_function(outputs="z")


def test_torch_exports_it():
    torch = pytest.importorskip("torch")
    pm = compiled("torch")
    params, native, data = arguments(pm)
    function = pm.as_function()

    class Module(torch.nn.Module):
        def forward(self, params, data):
            return function(params, data)

    exported = torch.export.export(Module(), (native, data))
    same(pm.backend, exported.module()(native, data), by_hand(params)[0])


def test_torch_compiles_functions_of_regions():
    torch = pytest.importorskip("torch")
    model = ml.Model()
    model |= ml.Scan(loop(), carry={"carry": "next"}, xs=["item"])(
        carry="start", item="x", next="y"
    )
    pm = ml.compile(model, ml.TorchBackend(), shapes={"x": [5, 3], "start": [3]},
                    data_keys={"x", "start"})  # fmt: skip
    x = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
    data = {"x": torch.tensor(x), "start": torch.zeros(3)}
    wanted = np.zeros(3)
    for row in x:
        wanted = np.tanh(wanted + row)
    got = compiler("torch")(pm.as_function())({}, data)
    np.testing.assert_allclose(next(iter(got.values())).numpy(), wanted, rtol=1e-5)


def test_text_is_shown_while_it_lives(name):
    modules = set(sys.modules)
    pm = compiled(name)
    function = pm._compilation.program.forward.function
    file = function.__code__.co_filename
    assert inspect.getsource(function).startswith("def evaluate(")
    with pytest.raises(Exception) as raised:  # noqa: PT011 - a framework's own
        function(object(), object(), object())
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert any(frame.filename == file and "ops." in (frame.line or "") for frame in frames)
    linecache.checkcache()
    assert linecache.getlines(file)
    assert not {found for found in set(sys.modules) - modules if "mithril_emitted" in found}
    alive = weakref.ref(function)
    del pm, function, raised, frames
    gc.collect()
    assert alive() is None
    assert not linecache.getlines(file)


def test_compiling_keeps_nothing_alive():
    torch = pytest.importorskip("torch")
    pm = compiled("torch")
    _, native, data = arguments(pm)
    torch.compile(pm.as_function(), backend="eager")(native, data)
    alive = weakref.ref(pm._compilation.program.forward.function)
    del pm
    torch.compiler.reset()
    gc.collect()
    assert alive() is None


def test_files_that_are_written_run_under_compilers(tmp_path):
    pytest.importorskip("torch")
    pm = compiled("torch", file_path=str(tmp_path / "emitted.py"))
    params, native, data = arguments(pm)
    same(pm.backend, compiler("torch")(pm.as_function())(native, data), by_hand(params)[0])
    assert inspect.getsourcefile(pm._compilation.program.forward.function) == str(
        tmp_path / "emitted.py"
    )


# --- JAX compiles unless it is told otherwise ---------------------------------------------------


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


def trained():
    model = ml.TrainModel(layers())
    model.add_loss(ml.SquaredError(), input="y", target="t")
    return model


def test_jax_compiles_by_default(jax):
    assert compiled("jax").jit
    assert not compiled("jax", jit=False).jit
    assert not ml.compile(layers(), ml.JaxBackend(jit_compile=False)).jit


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_jax_gives_the_same_compiled(jax, dtype):
    optimizer = ml.optim.Adam(lr=0.1)
    results = []
    for jit in ("auto", False):
        pm = ml.compile(trained(), ml.JaxBackend(dtype=dtype), data_keys={"x", "t"},
                        shapes={"x": [2, 3]}, optimizer=optimizer, jit=jit)  # fmt: skip
        params = pm.randomize_params(1)
        data = {"x": X, "t": np.zeros((2, 4))}
        outputs, gradients = pm.evaluate(params, data, output_gradients=True)
        step = pm.step(params, optimizer.init(params), data)
        again = pm.step(*step[:2], data)
        results.append([pm.evaluate(params, data), outputs, gradients, *again[:2], again.outputs])
    flat = [jax.tree.leaves(found) for found in results]
    for got, wanted in zip(*flat, strict=True):
        assert getattr(got, "dtype", int) == getattr(wanted, "dtype", int)
        tolerance = 1e-5 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def test_jax_compiles_once_for_shapes(jax, caplog):
    traces = []

    class Counted(ml.JaxBackend):
        def _jit(self, function, **options):
            def counted(*arguments):
                traces.append(len(arguments))
                return function(*arguments)

            return super()._jit(counted, **options)

    pm = ml.compile(layers(), Counted(), data_keys={"x"}, shapes={"x": [None, 3]})
    params = pm.randomize_params(0)
    for _ in range(3):
        for rows in (2, 5):
            assert pm.evaluate(params, {"x": np.ones((rows, 3))})["y"].shape == (rows, 4)
    assert len(traces) == 2


def test_results_of_jax_that_are_no_arrays_stay_what_they_are(jax):
    model = ml.Model()
    model |= ml.Shape()(input="x", output="shape")
    model |= ml.Sine()(input="x", output="y")
    model.expose_keys("shape", "y")
    pm = ml.compile(model, ml.JaxBackend(), data_keys={"x"}, inference=True)
    for rows in (2, 3, 2):
        found = pm.evaluate({}, {"x": np.ones((rows, 3))})
        assert found["shape"] == (rows, 3)
        assert isinstance(found["y"], jax.Array)


def test_many_values_of_python_make_few_programs(jax):
    model = ml.Model()
    model |= ml.Multiply()(left="x", right=ml.IOKey("factor", type=float), output="y")
    pm = ml.compile(model, ml.JaxBackend(), data_keys={"x", "factor"}, shapes={"x": [2, 3]})
    for i in range(40):
        got = pm.evaluate({}, {"x": X, "factor": i + 0.5})["y"]
        np.testing.assert_allclose(got, X * (i + 0.5), rtol=1e-6)
    (compiled_for,) = pm._compilation.program.forward.compiled._compiled.values()
    assert compiled_for._cache_size() <= 16


def test_values_that_leave_the_program_run_line_by_line(jax):
    model = ml.Model()
    model |= ml.Item()(input="n", output="factor")
    model |= ml.Multiply()(left="factor", right="x", output="y")
    for jit in ("auto", True):
        pm = ml.compile(model, ml.JaxBackend(), data_keys={"x", "n"}, jit=jit,
                        shapes={"x": [2, 3], "n": [1]})  # fmt: skip
        got = pm.evaluate({}, {"x": X, "n": [3.0]})["y"]
        np.testing.assert_allclose(got, 3 * X, rtol=1e-6)


def test_functions_of_python_run_line_by_line(jax):
    def doubled(input):
        return jax.numpy.asarray(2 * np.asarray(input))  # is no function for tracers

    backend = ml.JaxBackend()
    backend.register_function("doubled", doubled)
    model = ml.Model()
    anything = ml.IOKey(shape=[("any", ...)], type=ml.Tensor[float])
    model |= ml.Lambda("doubled", input=anything, output=anything)(input="x", output="y")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [2, 3]}, inference=True)
    np.testing.assert_allclose(pm.evaluate({}, {"x": X})["y"], 2 * X)


def test_checkpoints_are_compiled_where_the_compiler_keeps_them():
    assert compiled("jax", gradient_checkpointing=True).jit
    assert not compiled("torch", gradient_checkpointing=True).jit
    assert compiled("torch", gradient_checkpointing=True, jit=True).jit
    assert not compiled("mlx", gradient_checkpointing=True).jit
    assert compiled("mlx", gradient_checkpointing=True, jit=True).jit

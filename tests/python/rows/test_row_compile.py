"""Rows C1–C32: `ml.compile` and the physical model."""

import itertools
import logging
import pickle

import mithril as ml
import numpy as np
import pytest
from mithril.errors import InitialParamsWarning, UnusedKeyWarning

from tests.python.rows.common import (
    EVERY,
    PARAMS,
    B,
    W,
    X,
    backend_of,
    close,
    compiled,
    every,
    linear,
    needs,
    values,
)

pytestmark = pytest.mark.documents


def on(name, model=None, **options):
    backend = backend_of(name)
    options.setdefault("shapes", {"x": [4, 3]})
    pm = compiled(model, backend, **options)
    return backend, pm, {key: backend.array(value) for key, value in PARAMS.items()}


def test_C1():
    backend = ml.NumpyBackend()
    for pm in (ml.compile(linear(), backend), ml.compile(linear(), backend=backend),
               ml.compile(model=linear(), backend=backend)):  # fmt: skip
        close(pm.evaluate(PARAMS, {"x": X})["y"], X @ W.T + B)


def test_C2():
    for shape in ([4, 3], (4, 3), [None, 3], ["N", 3], [..., 3]):
        pm = compiled(shapes={"x": shape})
        assert pm.shapes["w"] == [2, 3]
    with pytest.raises(ValueError, match="3"):
        compiled(shapes={"x": [4, 3], "w": [2, 5]})


@pytest.mark.parametrize("kind", [set, list, tuple, frozenset, iter])
def test_C3(kind):
    """Also of what would be a parameter."""
    pm = compiled(data_keys=kind(["x"]))
    assert set(pm.data_keys) == {"x"} and set(pm.trainable_keys) == {"w", "b"}
    pm = compiled(data_keys=kind(["x", "b"]))
    assert set(pm.data_keys) == {"x", "b"} and set(pm.trainable_keys) == {"w"}


def test_C4():
    with pytest.warns(UnusedKeyWarning, match="target"):
        pm = compiled(data_keys={"x", "target"})
    close(pm.evaluate(PARAMS, {"x": X, "target": [1, 2]})["y"], X @ W.T + B)


@pytest.mark.parametrize("name", ["jax", "torch", "mlx"])
def test_C5(name):
    auto = on(name)[1].jit
    assert auto is {"jax": True, "torch": False, "mlx": False}[name]
    if name == "mlx":
        backend, pm, params = on(name, jit=True)
        close(values(backend, pm.evaluate(params, {"x": backend.array(X)})["y"]), X @ W.T + B)
    assert on("numpy", jit="auto")[1].jit in (False, None)


def test_C6():
    """An int tensor beside a float one is cast, unless mixing is to be an error."""
    x, n = (ml.IOKey(key, type=ml.Tensor[kind], shape=[2])
            for key, kind in (("x", float), ("n", int)))  # fmt: skip
    model = ml.Model()
    model |= ml.Add()(left=x, right=n, output="y")
    options = {"data_keys": {"x", "n"}, "inference": True}
    pm = compiled(model, auto_scalar_promotion=True, **options)
    got = pm.evaluate({}, {"x": [0.5, 1.5], "n": np.array([1, 2])})["y"]
    assert got.dtype == np.float32 and got.tolist() == [1.5, 3.5]
    with pytest.raises(TypeError, match="mixes"):
        compiled(model, auto_scalar_promotion=False, **options)


def test_C7():
    pm = compiled(static_shapes=True)
    pm.evaluate(PARAMS, {"x": X})
    with pytest.raises(ValueError, match=r"\[4, 3\]"):
        pm.evaluate(PARAMS, {"x": X[:2]})


@pytest.mark.parametrize("name", ["cpu", "numpy", "jax", "torch", "mlx"])
def test_C8(name):
    """Gradients stay; on the engine memory falls by a third or more."""
    backend = backend_of(name)
    deep = ml.Model()
    deep |= ml.Sine()(input="input", output="h")
    for _ in range(5):
        deep += ml.Sine()
    x = np.linspace(-1, 1, 6).reshape(2, 3)
    want, inner = np.ones_like(x), x
    for _ in range(6):
        want, inner = want * np.cos(inner), np.sin(inner)
    pm = ml.compile(deep, backend, shapes={"input": [2, 3]}, trainable_keys={"input"},
                    gradient_checkpointing=True)  # fmt: skip
    (out,) = pm.output_keys
    found = pm.evaluate({"input": backend.array(x)}, output_gradients={out: backend.ones(2, 3)})
    close(values(backend, found.gradients["input"]), want, 1e-4, 1e-5)


def test_C8_memory():
    deep = ml.Model()
    for _ in range(12):
        deep += ml.Linear(64)
        deep += ml.Sine()
    deep += ml.Sum()

    def peak(**options):
        pm = ml.compile(deep, ml.CpuBackend(), shapes={"input": [256, 64]}, **options)
        return pm.memory_plan().programs["gradient"].peak

    assert peak(gradient_checkpointing=True) <= 0.7 * peak()


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_C8_compiled(name):
    """With jit, too: gradients are equal, and the bytes that wait for them fall by a third."""
    from test_rematerialize import torch_program, twelve_blocks, xla_program

    needs(name)
    if name == "jax":
        plain, shrunk = map(xla_program, ({"autodiff": "engine"}, {"gradient_checkpointing": True}))
    else:
        plain = torch_program(twelve_blocks())
        shrunk = torch_program(twelve_blocks(), gradient_checkpointing=True)
    assert shrunk[1] <= 0.7 * plain[1]
    for key, gradient in plain[0].items():
        close(np.asarray(shrunk[0][key]), np.asarray(gradient), 1e-4, 1e-6)


def test_C9():
    """Options reach the framework's compiler."""
    torch = needs("torch")
    seen = []

    def recording(graph, examples):
        seen.append(graph)
        return graph.forward

    backend, pm, params = on("torch", jit=True, jit_options={"backend": recording})
    got = pm.evaluate(params, {"x": torch.tensor(X, dtype=torch.float32)})["y"]
    close(values(backend, got), X @ W.T + B)
    assert seen
    with pytest.raises(ml.errors.MithrilError, match="got 'modee', did you mean 'mode'"):
        on("torch", jit=True, jit_options={"modee": "max-autotune"})


@every
def test_C10(name):
    backend, pm, params = on(name, inference=True)
    close(values(backend, pm.evaluate(params, {"x": backend.array(X)})["y"]), X @ W.T + B)
    with pytest.raises(ml.errors.MithrilError, match="inference"):
        pm.evaluate(params, {"x": backend.array(X)}, output_gradients={"y": backend.ones(4, 2)})


def test_C11():
    """What depends on constants only is one constant of the program."""
    model = ml.Model()
    model |= ml.Exponential()(input=ml.Tensor([0.0, 1.0]), output="e")
    model |= ml.Multiply()(left="x", right="e", output="y")
    model.expose_keys("y")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [2]},
                    static_inference=True)  # fmt: skip
    close(pm.evaluate({}, {"x": [2.0, 3.0]})["y"], [2.0, 3 * np.e])
    assert [step.members for step in pm.explain().steps] == [(("multiply", "multiply"),)]


def test_C12(caplog, capsys):
    with caplog.at_level(logging.DEBUG, logger="mithril"):
        compiled(verbose=True, shapes={"x": [4, 3]})
    text = caplog.text + capsys.readouterr().out
    assert "w" in text and "[2, 3]" in text


@every
def test_C13(name):
    backend, pm, params = on(name, shapes={})
    for x in (X, X.tolist(), backend.array(X)):
        got = pm.evaluate(params, {"x": x})
        assert isinstance(got, dict) and list(got) == ["y"]
        close(values(backend, got["y"]), X @ W.T + B)


def test_C14():
    """U(±1/√3) for three inputs, once with a warning."""
    pm = compiled(shapes={"x": [4, 3]})
    with pytest.warns(InitialParamsWarning):
        got = pm.evaluate({}, {"x": np.eye(3, dtype="f")[[0, 1, 2, 0]]})["y"]
    params = pm.get_parameters()
    close(got, np.eye(3)[[0, 1, 2, 0]] @ params["w"].T + params["b"])
    assert np.abs(params["w"]).max() <= 3**-0.5


@every
def test_C15(name):
    backend, pm, params = on(name)
    dy = np.arange(8.0).reshape(4, 2) / 4
    outputs, gradients = pm.evaluate(
        params, {"x": backend.array(X)}, output_gradients={"y": backend.array(dy)}
    )
    close(values(backend, outputs["y"]), X @ W.T + B)
    assert set(gradients) == {"w", "b"}
    close(values(backend, gradients["w"]), dy.T @ X)
    close(values(backend, gradients["b"]), dy.sum(0))


def test_C16():
    pm = compiled()  # without shapes
    params = pm.get_parameters()
    assert type(params) is dict and list(params) == list(pm.param_keys)
    with pytest.raises(ml.errors.ShapeNotKnown, match="x"):
        params["w"] + 1
    pm.evaluate(params, {"x": X})
    assert params["w"].shape == (2, 3)


def test_C17():
    pm = compiled(shapes={"x": [4, 3]})
    first, second = pm.randomize_params(), pm.randomize_params()
    assert not np.array_equal(first["w"], second["w"])
    assert np.array_equal(pm.randomize_params(seed=0)["w"], pm.get_parameters()["w"])


@every
def test_C18(name):
    backend, pm, params = on(name)
    _, gradients = pm.evaluate(
        params, {"x": backend.array(X)}, output_gradients={"y": backend.ones(4, 2)}
    )
    for key, grad in gradients.items():
        params[key] = params[key] - 0.5 * grad
    close(values(backend, params["b"]), B - 0.5 * 4)
    assert isinstance(params["w"], backend.get_backend_array_type())


@pytest.mark.parametrize("name", ["numpy", "cpu", "jax", "mlx"])
def test_C19(name):
    backend, pm, params = on(name)
    y, want = pm.evaluate(params, {"x": backend.array(X)})["y"], X @ W.T + B
    np.testing.assert_array_equal(np.argmax(y, axis=1), want.argmax(1))
    close(np.asarray(y) - np.ones((4, 2)), want - 1)


def test_C20():
    torch = needs("torch")
    pm = on("torch")[1]
    arrays = {k: v.cpu().numpy() for k, v in pm.get_parameters().items()}
    assert all(type(v) is np.ndarray for v in arrays.values())
    assert not any(v.requires_grad for v in pm.randomize_params().values())
    assert isinstance(pm.get_parameters()["w"], torch.Tensor)


@every
def test_C21(name):
    backend, pm, params = on(name)
    arrays = {k: backend.to_numpy(v) for k, v in params.items()}
    again = {k: backend.array(v) for k, v in arrays.items()}
    close(values(backend, pm.evaluate(again, {"x": backend.array(X)})["y"]), X @ W.T + B)
    moved = ml.transfer(params, to=ml.NumpyBackend())
    assert type(moved["w"]) is np.ndarray
    close(moved["w"], W)


@every
def test_C22(name):
    backend, pm, params = on(name)
    text = pickle.dumps({k: backend.to_numpy(v) for k, v in params.items()})
    again = {k: backend.array(v) for k, v in pickle.loads(text).items()}
    close(values(backend, pm.evaluate(again, {"x": backend.array(X)})["y"]), X @ W.T + B)


@every
def test_C23(name):
    backend, torch, mx = backend_of(name), needs("torch"), needs("mlx.core")
    needs("jax")
    import jax

    x = backend.array([1.5, -2.0])
    for module, kind in (("mlx", mx.array), ("torch", torch.Tensor), ("jax", jax.Array)):
        other = getattr(backend, f"to_{module}")(x)
        assert isinstance(other, kind)
        assert np.asarray(other).tolist() == [1.5, -2.0]
        back = getattr(backend, f"from_{module}")(other)
        assert isinstance(back, backend.get_backend_array_type())
        assert values(backend, back).tolist() == [1.5, -2.0]


@every
def test_C24(name):
    backend = backend_of(name)
    assert values(backend, backend.zeros(3, 4)).sum() == 0
    assert values(backend, backend.ones(3, 4)).sum() == 12
    assert backend.shape(backend.randn(3, 4)) == (3, 4)
    for data in ([[1, 2, 3], [4, 5, 6]], np.array([[1, 2, 3], [4, 5, 6]])):
        assert values(backend, backend.array(data)).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_C25():
    """A method stays lazy: memory for its result comes with `to_numpy`."""
    mx = needs("mlx.core")
    backend = backend_of("mlx")
    x, y = (backend.block_until_ready(backend.ones(10**6)) for _ in range(2))
    before = mx.get_active_memory()
    z = backend.add(x, y)
    assert mx.get_active_memory() - before < 10**6
    assert backend.to_numpy(z)[:2].tolist() == [2.0, 2.0]
    assert mx.get_active_memory() - before > 3 * 10**6


def test_C26():
    mx = needs("mlx.core")
    backend, pm, params = on("mlx")
    function = pm.as_function()

    def model_fn(params, x):
        return function(params, {"x": x})["y"].sum()

    x = backend.array(X)
    slopes = mx.compile(mx.grad(model_fn))(params, x)
    close(np.asarray(slopes["w"]), np.ones((4, 2)).T @ X)
    close(np.asarray(slopes["b"]), [4.0, 4.0])


def test_C26_on_jax():
    needs("jax")
    import jax

    backend, pm, params = on("jax")
    function = pm.as_function()
    total = jax.jit(jax.grad(lambda p: function(p, {"x": backend.array(X)})["y"].sum()))
    close(np.asarray(total(params)["w"]), np.ones((4, 2)).T @ X)
    rows = jax.vmap(lambda x: function(params, {"x": x})["y"])(backend.array(X)[:, None])
    close(np.asarray(rows)[:, 0], X @ W.T + B)


def test_C27(tmp_path):
    """Composed with MLX's methods, run elsewhere and from a file."""
    composed = backend_of("mlx")
    model = ml.Model()
    model |= ml.Lambda(lambda x: composed.maximum(0.01 * x, x))(input="x", output="y")
    x, want = np.array([-2.0, 3.0]), [-0.02, 3.0]
    for name in ("mlx", "torch", "c", "numpy"):
        backend = backend_of(name)
        pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [2]})
        close(values(backend, pm.evaluate({}, {"x": backend.array(x)})["y"]), want)
    model.save(tmp_path / "leaky.mithril")
    again = ml.load(tmp_path / "leaky.mithril").model
    pm = ml.compile(again, ml.NumpyBackend(), data_keys={"x"})
    close(pm.evaluate({}, {"x": x})["y"], want)
    with pytest.raises(ml.errors.TraceError):
        ml.Lambda(lambda x: x if x > 0 else -x)


@every
def test_C28(name):
    backend = backend_of(name)
    assert bool(backend.isnan(backend.array([1.0, np.nan])).any()) is True
    assert bool(backend.isnan(backend.array([1.0, 2.0])).any()) is False


@pytest.mark.parametrize("name", ["torch", "jax", "mlx"])
def test_C29(name):
    """Two inputs: similarities of two encoders."""
    backend = backend_of(name)
    model = ml.Model()
    model |= ml.Linear(3, use_bias=False)(input="image", weight="wi", output="a")
    model |= ml.Linear(3, use_bias=False)(input="text", weight="wt", output="b")
    model |= ml.MatrixMultiply()(left="a", right=model.b.transpose(), output="logits")
    model.expose_keys("logits")
    pm = ml.compile(model, backend, shapes={"image": [2, 4], "text": [5, 6]},
                    data_keys={"image", "text"})  # fmt: skip
    rng = np.random.default_rng(0)
    i, t, wi, wt = (rng.standard_normal(s) for s in ((2, 4), (5, 6), (3, 4), (3, 6)))
    params = {"wi": backend.array(wi), "wt": backend.array(wt)}
    got = pm.evaluate(params, {"image": i, "text": t})["logits"]
    close(values(backend, got), (i @ wi.T) @ (t @ wt.T).T, 1e-4, 1e-4)


def test_C30():
    """What one framework made goes into a model of another."""
    backend, encoder, params = on("jax")
    memory = encoder.evaluate(params, {"x": backend.array(X)})["y"]
    model = ml.Model()
    model |= ml.Add()(left="input", right="memory", output="y")
    decoder = ml.compile(model, backend_of("torch"), data_keys={"input", "memory"})
    got = decoder.evaluate({}, {"input": np.ones((4, 2), "f"), "memory": memory})["y"]
    close(got.numpy(), X @ W.T + B + 1)


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(EVERY, 2)))
def test_C31(source, target):
    first, second = backend_of(source), backend_of(target)
    params = {"w": first.array(W), "b": first.array(B)}
    moved = {k: second.array(first.to_numpy(v)) for k, v in params.items()}
    pm = compiled(backend=second)
    close(values(second, pm.evaluate(moved, {"x": second.array(X)})["y"]), X @ W.T + B)
    close(values(second, ml.transfer(params, to=second)["w"]), W)


def test_C32():
    for name in ("torch", "jax"):
        needs(name)
    classes = {"torch": ml.TorchBackend, "jax": ml.JaxBackend, "numpy": ml.NumpyBackend}
    for name, backend_class in classes.items():
        backend = backend_class()
        assert backend.backend_type == name
        pm = compiled(backend=backend)
        close(values(backend, pm.evaluate(PARAMS, {"x": X})["y"]), X @ W.T + B)

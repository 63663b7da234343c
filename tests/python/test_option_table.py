"""Every option of `compile` and of the constructors of backends: a row shows its effect, or that it
is refused by name. An option without a row fails."""

import inspect
import os
import re
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest
from mithril.errors import (
    ArgumentError,
    DeviceNotAvailable,
    DTypeError,
    KeyNotFound,
    MithrilWarning,
    NotFiniteError,
    OutOfMemoryError,
    ShapeError,
    UnsupportedError,
    UnusedKeyWarning,
    WireNameError,
)

OWNERS = {
    "compile": ml.compile,
    "numpy": ml.NumpyBackend.__init__,
    "cpu": ml.CpuBackend.__init__,
    "c": ml.CBackend.__init__,
    "torch": ml.TorchBackend.__init__,
    "jax": ml.JaxBackend.__init__,
    "mlx": ml.MlxBackend.__init__,
}
FRAMEWORKS = ("torch", "jax", "mlx")
COMPILED = {("compile", "jit"), ("compile", "jit_options")}  # by compilers of frameworks
ROWS = {}


def row(owner, *options):
    """Makes a function the row of these options."""

    def kept(function):
        for option in options:
            assert (owner, option) not in ROWS
            ROWS[owner, option] = function
        return function

    return kept


def options_of(owner):
    taken = inspect.signature(OWNERS[owner]).parameters
    return [name for name in taken if name not in ("self", "model", "backend")]


def cases():
    for owner in OWNERS:
        for option in options_of(owner):
            is_foreign = owner in FRAMEWORKS or (owner, option) in COMPILED
            marks = [pytest.mark.frameworks] if is_foreign else []
            yield pytest.param(owner, option, marks=marks, id=f"{owner}-{option}")


@pytest.mark.parametrize(("owner", "option"), list(cases()))
def test_option(owner, option, tmp_path, monkeypatch):
    if owner in FRAMEWORKS:
        pytest.importorskip({"mlx": "mlx.core"}.get(owner, owner))
    assert (owner, option) in ROWS, f"{owner} has an option without a row: {option}"
    monkeypatch.chdir(tmp_path)
    ROWS[owner, option]()


def test_rows_are_of_options():
    assert {option for owner, option in ROWS if owner == "compile"} == set(options_of("compile"))
    for owner, option in ROWS:
        assert option in options_of(owner)


# --- models ---------------------------------------------------------------------------------------

X = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
WEIGHT = np.arange(6.0).reshape(2, 3)


def linear():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    return model


def compiled(model=None, backend=None, **options):
    options.setdefault("data_keys", {"x"})
    return ml.compile(model or linear(), backend or ml.NumpyBackend(dtype="float64"), **options)


PARAMS = {"w": WEIGHT, "b": np.ones(2)}


def chain(layer, count):
    model = ml.Model()
    for i in range(count):
        model |= layer()(input=f"h{i}" if i else "x", output=f"h{i + 1}")
    model |= ml.Sum()(input=f"h{count}", output="y")
    return model


def trained():
    model = linear()
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="t")
    return train


# --- compile --------------------------------------------------------------------------------------


@row("compile", "shapes")
def shapes():
    assert compiled().shapes["w"] == [2, None]
    assert compiled(shapes={"x": [4, 3]}).shapes["w"] == [2, 3]


@row("compile", "data_keys", "trainable_keys")
def roles():
    pm = compiled(data_keys={"x", "w"})
    assert (set(pm.data_keys), pm.trainable_keys) == ({"x", "w"}, ("b",))
    ones = np.ones((4, 2))
    pm = compiled(data_keys=None, trainable_keys={"x"}, shapes={"x": [4, 3]})
    found = pm.evaluate(PARAMS | {"x": X}, output_gradients={"y": ones})
    np.testing.assert_allclose(found.gradients["x"], ones @ WEIGHT)


@row("compile", "constant_keys")
def constants():
    pm = compiled(constant_keys={"w": WEIGHT})
    assert pm.param_keys == ("b",)
    got = pm.evaluate({"b": np.ones(2)}, {"x": X})["y"]
    np.testing.assert_allclose(got, X @ WEIGHT.T + 1)


@row("compile", "discard_keys")
def discarded():
    model = linear()
    model |= ml.Relu()(input="x", output="z")
    assert compiled(model, discard_keys={"y"}).output_keys == ["z"]


@row("compile", "types")
def types():
    model = ml.Model()
    model |= ml.Add()(left="x", right="z", output="y")
    pm = compiled(model, data_keys={"x", "z"}, types={"x": ml.int32, "z": ml.int8}, inference=True)
    out = pm.evaluate({}, {"x": np.array([1], "int32"), "z": np.array([2], "int8")})["y"]
    assert (out.dtype, out.tolist()) == (np.int32, [3])


@row("compile", "inference")
def inference():
    with pytest.raises(UnsupportedError, match="inference=True"):
        compiled(inference=True).evaluate(PARAMS, {"x": X}, output_gradients={"y": X[:, :2]})


@row("compile", "mode")
def mode():
    def draw(mode):
        model = ml.Model()
        model |= ml.Dropout(0.5)(input="x", output="y")
        pm = compiled(model, mode=mode, shapes={"x": [1000]})
        state = pm.initial_state()
        found = pm.evaluate({}, {"x": np.ones(1000)}, state=state)
        return set((found.outputs if state else found)["y"])

    assert draw("eval") == draw(None) == {1.0}
    assert draw("train") == {0.0, 2.0}
    with pytest.raises(ArgumentError, match="mode"):
        draw("test")


@row("compile", "jit")
def jit():
    jax = pytest.importorskip("jax")
    traced = []

    class Counted(ml.JaxBackend):
        def _jit(self, function, **options):
            traced.append(function)
            return super()._jit(function, **options)

    compiled(backend=Counted(), jit=False, shapes={"x": [4, 3]})
    assert traced == []
    pm = compiled(backend=Counted(), jit=True, shapes={"x": [4, 3]})
    assert len(traced) == 1
    params = {name: jax.numpy.asarray(value, "float32") for name, value in PARAMS.items()}
    np.testing.assert_allclose(pm.evaluate(params, {"x": X})["y"], X @ WEIGHT.T + 1, rtol=1e-6)
    with pytest.raises(ml.errors.SignatureError, match="jit"):
        compiled(jit="yes")


@row("compile", "autodiff")
def autodiff():
    assert compiled(autodiff="engine")._compilation.options.autodiff == "engine"
    with pytest.raises(UnsupportedError, match="autodiff: NumpyBackend has no differentiation"):
        compiled(autodiff="framework")
    with pytest.raises(ArgumentError, match="autodiff"):
        compiled(autodiff="magic")


class Foreign:
    def update(self, *_):
        raise AssertionError


class Sign(ml.optim.Optimizer):
    def _apply(self, p, g, kept, factors):
        return p - self.lr * np.sign(g), ()


@row("compile", "quantize")
def quantize():
    x, w = np.ones((1, 64)), np.linspace(-1.0, 1.0, 64 * 32).reshape(32, 64)
    model = ml.Model()
    model |= ml.Linear(32, use_bias=False)(input="x", weight="w", output="y")
    steps = {"int8": 127, "int4": 7, "int16": 32767, "bfloat16": 256}
    for kind, most in steps.items():
        pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [1, 64]},
                        quantize=kind)  # fmt: skip
        off = np.abs(pm.evaluate({"w": w}, {"x": x})["y"] - w.sum(1)).max()
        assert 1e-7 < off < 64 / most
    with pytest.raises(ArgumentError, match="quantize requires one of"):
        compiled(linear(), quantize="int3")


@row("compile", "loss_scale")
def loss_scale():
    """What halves round to 0 without it is there; a float32 backend does not need it."""
    data = {"x": X, "t": np.zeros((4, 2))}
    rate = ml.optim.SGD(lr=0.5)
    half = ml.NumpyBackend(compute_precision="float16")
    for backend, options, want in (
        (half, {}, 2.0**16),
        (half, {"loss_scale": 8.0}, 8.0),
        (ml.NumpyBackend(), {"loss_scale": 8}, 8.0),
    ):
        pm = compiled(trained(), backend, data_keys={"x", "t"}, optimizer=rate, **options)
        stepped = pm.step(PARAMS, rate.init(PARAMS), data)
        kept = stepped.opt_state["loss_scale"]
        assert kept["scale"] in (want, want / 2)
        if kept["good"]:
            slope = (X @ WEIGHT.T + 1).sum(0) / 4
            np.testing.assert_allclose(stepped.params["b"], 1 - 0.5 * slope, rtol=1e-2)
    with pytest.raises(ArgumentError, match="loss_scale: requires a number above 0"):
        compiled(trained(), optimizer=rate, loss_scale=0)


@row("compile", "optimizer")
def optimizer():
    data = {"x": X, "t": np.zeros((4, 2))}
    with pytest.raises(ArgumentError, match="optimizer="):
        compiled(trained(), data_keys={"x", "t"}).step(PARAMS, {"step": 0}, data)
    for backend in (ml.NumpyBackend(dtype="float64"), ml.CpuBackend(dtype="float64")):
        own = Sign(lr=0.5)
        pm = compiled(trained(), backend, data_keys={"x", "t"}, optimizer=own, shapes={"x": [4, 3]})
        stepped = pm.step(PARAMS, own.init(PARAMS), data).params
        slope = (X @ WEIGHT.T + 1).sum(0)
        np.testing.assert_allclose(stepped["b"], 1 - 0.5 * np.sign(slope))
    with pytest.raises(UnsupportedError, match=r"optimizer: steps are .* got .*Foreign"):
        compiled(trained(), optimizer=Foreign())
    with pytest.raises(ml.errors.SignatureError, match="optimizer: requires one of ml.optim"):
        compiled(trained(), optimizer="adam")
    with pytest.raises(ArgumentError, match="inference=True"):
        compiled(trained(), optimizer=ml.optim.SGD(), inference=True)


@row("compile", "file_path")
def file_path():
    compiled(file_path="emitted.py", shapes={"x": [4, 3]})
    with open("emitted.py") as file:
        assert "def evaluate(" in file.read()
    with pytest.raises(UnsupportedError, match="file_path: CpuBackend runs plans"):
        compiled(backend=ml.CpuBackend(), file_path="plan.py")
    assert not os.path.exists("plan.py")
    with pytest.raises(ml.errors.SignatureError, match="file_path: requires a path"):
        compiled(file_path=5)


@row("compile", "jit_options")
def jit_options():
    for backend in (ml.NumpyBackend(), ml.CpuBackend()):
        with pytest.raises(UnsupportedError, match="jit_options: .* has no compiler"):
            compiled(backend=backend, jit_options={"mode": "x"})
    pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match="jit_options: nothing is compiled"):
        compiled(backend=ml.TorchBackend(), jit_options={"backend": "eager"})
    with pytest.raises(UnsupportedError, match="did you mean 'mode'"):
        compiled(backend=ml.TorchBackend(), jit=True, jit_options={"mod": "x"})
    seen = []

    def recorded(graph, _inputs):
        seen.append(graph)
        return graph.forward

    pm = compiled(backend=ml.TorchBackend(), jit=True, jit_options={"backend": recorded})
    pm.evaluate({k: np.float32(v) for k, v in PARAMS.items()}, {"x": np.float32(X)})
    assert seen


@row("compile", "strict")
def strict():
    with pytest.warns(UnusedKeyWarning, match="nobody"):
        compiled(data_keys={"x", "nobody"})
    with pytest.raises(KeyNotFound, match="nobody"):
        compiled(data_keys={"x", "nobody"}, strict=True)


@row("compile", "strict_dtypes")
def strict_dtypes():
    compiled().evaluate(PARAMS, {"x": np.float32(X)})
    with pytest.raises(DTypeError, match="requires float64, got float32"):
        compiled(strict_dtypes=True).evaluate(PARAMS, {"x": np.float32(X)})


@row("compile", "safe_names")
def safe_names():
    model = ml.Model()
    model |= ml.Relu()
    compiled(model, data_keys={"input"}, safe_names=False)
    with pytest.raises((KeyNotFound, WireNameError)):
        unnamed = ml.Model()
        unnamed |= ml.Add()(output="y")
        compiled(unnamed, data_keys=["$1"], safe_names=True)


@row("compile", "frozen_keys")
def frozen_keys():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    pm = compiled(model, frozen_keys={"w"})
    assert (set(pm.param_keys), set(pm.trainable_keys)) == ({"w", "b"}, {"b"})


@row("compile", "use_short_namings", "naming")
def namings():
    def names(**options):
        model = ml.Model()
        model |= ml.Linear(2, name="first")(input="x", output="h")
        model |= ml.Linear(2, name="second")(input="h", output="y")
        return set(compiled(model, **options).param_keys)

    assert names() == {"weight_0", "bias_0", "weight_1", "bias_1"}
    by_place = {f"{part}_{key}" for part in ("first", "second") for key in ("weight", "bias")}
    assert names(use_short_namings=False) == by_place
    assert names(naming="path") == {name.replace("_", ".") for name in by_place}


@row("compile", "safe_shapes")
def safe_shapes():
    def loss():
        model = ml.Model()
        model |= ml.SquaredError()(input="x", target="t", output="y")
        return model

    options = {"data_keys": {"x", "t"}, "shapes": {"x": [4, 3], "t": [3]}, "inference": True}
    with pytest.raises(ShapeError):
        compiled(loss(), **options)
    got = compiled(loss(), safe_shapes=False, **options).evaluate({}, {"x": X, "t": X[0]})["y"]
    np.testing.assert_allclose(got, (X - X[0]) ** 2)


@row("compile", "auto_scalar_promotion")
def auto_scalar_promotion():
    def mixed():
        model = ml.Model()
        x, n = (
            ml.IOKey(key, type=ml.Tensor[kind], shape=[4])
            for key, kind in (("x", float), ("n", int))
        )
        model |= ml.Multiply()(left=x, right=n, output="y")
        return model

    options = {"data_keys": {"x", "n"}, "inference": True}
    got = compiled(mixed(), **options).evaluate({}, {"x": X[:, 0], "n": np.arange(4)})["y"]
    np.testing.assert_allclose(got, X[:, 0] * np.arange(4))
    with pytest.raises(DTypeError, match="mixes"):
        compiled(mixed(), auto_scalar_promotion=False, **options)


@row("compile", "static_shapes")
def static_shapes():
    pm = compiled(static_shapes=True)
    pm.evaluate(PARAMS, {"x": X})
    with pytest.raises(ShapeError, match="static_shapes"):
        pm.evaluate(PARAMS, {"x": X[:2]})


@row("compile", "static_inference")
def static_inference():
    pm = compiled(ml.Exponential(), ml.CpuBackend(), data_keys=(), constant_keys={"input": X},
                  static_inference=True, inference=True)  # fmt: skip
    assert not any("exp" in step.nodes for step in pm.explain().steps)
    pm = compiled(ml.Exponential(), data_keys=(), constant_keys={"input": X}, inference=True,
                  static_inference=True)  # fmt: skip
    assert "exp" not in pm.source.partition("def ")[2].partition("#")[0]
    np.testing.assert_allclose(pm.evaluate()["output"], np.exp(X), 1e-6)


@row("compile", "exact_conv")
def exact_conv():
    rng = np.random.default_rng(5)
    x, w = (rng.integers(-8, 9, shape) for shape in ((2, 32, 24, 24), (32, 32, 3, 3)))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    expected = np.einsum("nchwij,ocij->nohw", windows, w)  # float32 holds these sums

    def run(exact):
        model = ml.Model()
        model |= ml.Conv2d(filters=32, kernel_size=3, padding=1, use_bias=False)(
            input="x", weight="w", output="y"
        )
        pm = compiled(model, ml.CpuBackend(), exact_conv=exact)
        return pm.evaluate({"w": np.float32(w)}, {"x": np.float32(x)})["y"]

    np.testing.assert_array_equal(run(True), expected)
    if ml.CpuBackend().isa != "generic":
        assert (run(False) != expected).any()
    with pytest.raises(UnsupportedError, match="exact_conv: NumpyBackend sums"):
        compiled(exact_conv=True)


@row("compile", "deterministic")
def deterministic():
    """The engine's own kernels have the bits of the C backend's, which print the same order."""
    x = np.random.default_rng(5).normal(size=(40, 40))

    def run(backend, **options):
        pm = compiled(ml.SVD(), backend, data_keys={"input"}, inference=True, **options)
        return [np.asarray(found) for found in pm.evaluate({}, {"input": np.float32(x)}).values()]

    portable = run(ml.CpuBackend(), deterministic="portable")
    plain = run(ml.CpuBackend())
    assert any((a != b).any() for a, b in zip(portable, plain, strict=True))
    for a, b in zip(portable, run(ml.CBackend()), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(UnsupportedError, match="deterministic: NumpyBackend computes"):
        compiled(deterministic="portable")


@row("compile", "gradient_checkpointing")
def gradient_checkpointing():
    def deep():
        model = ml.Model()
        for _ in range(8):
            model += ml.Linear(64)
            model += ml.Sine()
        model += ml.Sum()
        return model

    def peak(**options):
        pm = ml.compile(deep(), ml.CpuBackend(), shapes={"input": [256, 64]}, **options)
        return pm.memory_plan().programs["gradient"].peak

    assert peak(gradient_checkpointing=True) < 2 / 3 * peak()


@row("compile", "memory_limit")
def memory_limit():
    model, shapes = chain(ml.Sine, 3), {"x": [1000, 100]}
    data = {"x": np.ones((1000, 100), "float32")}
    pm = compiled(model, ml.CpuBackend(), shapes=shapes, memory_limit="1MB")
    pm.evaluate({}, data)
    small = compiled(linear(), ml.CpuBackend(), shapes={"x": [100_000, 3]}, memory_limit=1000)
    with pytest.raises(OutOfMemoryError):
        small.evaluate(
            {k: np.float32(v) for k, v in PARAMS.items()},
            {"x": np.ones((100_000, 3), "float32")},
        )
    with pytest.raises(UnsupportedError, match="memory_limit: NumpyBackend"):
        compiled(memory_limit="1GB")


@row("compile", "stream_gradients")
def stream_gradients():
    data = {"x": np.float32(X), "t": np.zeros((4, 2), "float32")}
    optimizer = ml.optim.SGD(0.5)
    options = {"data_keys": {"x", "t"}, "shapes": {"x": [4, 3]}, "optimizer": optimizer}
    pm = compiled(trained(), ml.CpuBackend(), stream_gradients=True, **options)
    params = {name: np.array(value, "float32") for name, value in PARAMS.items()}
    stepped = pm.step(params, optimizer.init(params), data)
    assert np.shares_memory(stepped.params["w"], params["w"])
    assert not np.array_equal(params["w"], WEIGHT)
    with pytest.raises(UnsupportedError, match="stream_gradients: NumpyBackend"):
        compiled(trained(), stream_gradients=True, **options)


@row("compile", "check_nan")
def check_nan():
    model = ml.Model()
    model |= ml.Log()(input="x", output="y")
    compiled(model).evaluate({}, {"x": np.array([-1.0])})
    with pytest.raises(NotFiniteError, match="log: made 1 NaN"):
        compiled(model, check_nan=True).evaluate({}, {"x": np.array([-1.0])})


@row("compile", "passes")
def passes():
    model, shapes = chain(ml.Sine, 3), {"x": [8]}
    fused = compiled(model, ml.CpuBackend(), shapes=shapes).explain().steps
    apart = compiled(model, ml.CpuBackend(), shapes=shapes, passes=["-fuse"]).explain().steps
    assert len(apart) > len(fused)
    with pytest.raises(ArgumentError, match="passes: cannot switch 'fuse'"):
        compiled(passes=["fuse"])


@row("compile", "verbose")
def verbose():
    script = """
    import mithril as ml
    ml.compile(ml.Relu(), ml.NumpyBackend(), shapes={"input": [4]}, verbose=True)
    """
    assert re.search(r"^input +data +float32 +\[4\]$", run(script), re.M)


def run(script, **environment):
    """What a script prints in a process of its own."""
    source = "\n".join(line[4:] for line in script.strip("\n").splitlines())
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True, text=True, check=False, env=os.environ | environment, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- constructors -------------------------------------------------------------------------------

CLASSES = {
    owner: getattr(ml, f"{owner.capitalize()}Backend") for owner in OWNERS if owner != "compile"
}


def same_draws(a, b):
    return np.array_equal(a.to_numpy(a.randn(8)), b.to_numpy(b.randn(8)))


def seed_of(name, option="seed"):
    cls = CLASSES[name]
    assert same_draws(cls(**{option: 3}), cls(**{option: 3}))
    assert not same_draws(cls(**{option: 3}), cls(**{option: 4}))


def dtype_of(name, option="dtype"):
    cls = CLASSES[name]
    half = cls(**{option: "float16"})
    assert str(half.dtype(half.array([1.0]))) == "float16"
    pm = ml.compile(ml.Exponential(), half, data_keys={"input"})
    out = pm.evaluate({}, {"input": [1.0]})["output"]
    assert half.to_numpy(out).astype(np.float64).tolist() == [float(np.float16(np.e))]
    with pytest.raises(DTypeError):
        cls(**{option: "int32"})


def device_of(name, option="device"):
    cls = CLASSES[name]
    assert cls(**{option: "cpu"}).get_device() in ("cpu", "cpu:0")
    with pytest.raises(DeviceNotAvailable):
        cls(**{option: "abacus"})


for _name in CLASSES:
    for _option, _row in (("seed", seed_of), ("dtype", dtype_of), ("device", device_of)):
        row(_name, _option)(lambda name=_name, check=_row: check(name))
row("jax", "platform")(lambda: device_of("jax", "platform"))
row("mlx", "default_dtype")(lambda: dtype_of("mlx", "default_dtype"))
row("mlx", "random_seed")(lambda: seed_of("mlx", "random_seed"))


def refused(name, pattern, error=UnsupportedError, **options):
    """Such a backend is not made, and what is told names the option."""
    with pytest.raises(error, match=pattern):
        CLASSES[name](**options)


def compiles_by(name, option):
    cls = CLASSES[name]
    assert cls(**{option: True}).jit_default is True
    pm = compiled(backend=cls(**{option: True}), shapes={"x": [4, 3]})
    assert pm.jit
    assert not compiled(backend=cls(**{option: False}), shapes={"x": [4, 3]}).jit
    refused(name, f"{option} requires True or False", ml.errors.SignatureError, **{option: "no"})


row("torch", "compile")(lambda: compiles_by("torch", "compile"))
row("torch", "jit_compile")(lambda: compiles_by("torch", "jit_compile"))
row("jax", "jit_compile")(lambda: compiles_by("jax", "jit_compile"))
row("mlx", "use_graph")(lambda: compiles_by("mlx", "use_graph"))


@row("cpu", "threads")
def threads():
    names = """
    import threading, numpy as np, mithril as ml, os
    model = ml.Model()
    model |= ml.Sine()(input="x", output="y")
    pm = ml.compile(model, ml.CpuBackend(threads=THREADS), shapes={"x": [10**6]})
    pm.evaluate({}, {"x": np.ones(10**6, "float32")})
    print(len(os.listdir("/proc/self/task")))
    """
    counts = [int(run(names.replace("THREADS", str(n)))) for n in (1, 3)]
    assert counts[1] - counts[0] == 2
    refused("cpu", "threads requires 1 to 1024", ArgumentError, threads=0)


def built_by_c(**options):
    backend = ml.CBackend(**options)
    return backend, backend._build("int one(void) { return 1; }", "one")


@row("c", "compiler")
def compiler_of_c():
    with open("mycc", "w") as script:
        script.write('#!/bin/sh\ntouch ran\nexec cc "$@"\n')
    os.chmod("mycc", 0o755)
    assert ml.CBackend(compiler="./mycc").compiler == os.path.abspath("mycc")
    assert os.path.exists("ran")
    refused("c", "no C compiler 'nocc'", DeviceNotAvailable, compiler="nocc")


@row("c", "flags")
def flags_of_c():
    assert ml.CBackend(flags="-O1 -g").flags[-2:] == ("-O1", "-g")
    assert ml.CBackend().flags[-2:] == ("-O3", "-march=native")
    refused("c", "-march=nonsense", ml.errors.CompilerError, flags="-march=nonsense")
    refused("c", "'-m32' makes code for other callers", ArgumentError, flags="-m32")


@row("c", "threads")
def threads_of_c():
    assert "-fopenmp" in ml.CBackend(threads=2).flags
    assert "-fopenmp" not in ml.CBackend().flags
    refused("c", "threads requires 1 to 1024", ArgumentError, threads=0)


@row("c", "cache")
def cache_of_c():
    first, second = (built_by_c(cache=True)[1] for _ in range(2))
    assert first == second
    assert built_by_c(cache=False)[1] != first
    refused("c", "cache: requires True or False", ml.errors.SignatureError, cache="yes")


for _name in ("torch", "mlx"):

    @row(_name, "device_mesh")
    def device_mesh(name=_name):
        assert CLASSES[name](device_mesh=1).device_mesh == (1,)
        refused(name, r"device_mesh=\(4,\): this version computes on one device", device_mesh=(4,))
        refused(name, "device_mesh requires sizes", ArgumentError, device_mesh="grid")


@row("jax", "device_mesh")
def device_mesh_of_jax():
    backend = ml.JaxBackend(device_mesh=(1, 1))
    assert backend.get_raw_device_mesh().devices.shape == (1, 1)
    refused("jax", r"device_mesh \(64, 64\) needs", DeviceNotAvailable, device_mesh=(64, 64))
    script = """
    import mithril as ml
    try:
        ml.JaxBackend(device_mesh=(2, 2))
    except ml.errors.UnsupportedError as error:
        print(error)
    """
    four = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    assert "device_mesh=(2, 2): this version computes on one device" in run(script, **four)


@row("jax", "precision")
def precision_of_jax():
    assert ml.JaxBackend(precision="float32").compute_precision == "float32"
    refused("jax", "precision='tf32': requires one of", device="cpu", precision="tf32")
    assert ml.JaxBackend(precision="bfloat16").compute_dtype == "bfloat16"
    refused("jax", "precision: requires one of", ArgumentError, precision="float128")


@row("jax", "pre_allocate")
def pre_allocate():
    script = """
    import os, warnings, mithril as ml
    ml.JaxBackend(device="cpu", pre_allocate=False)
    print(os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        ml.JaxBackend(pre_allocate=True)
    print(found[0].category.__name__, found[0].message)
    """
    first, second = run(script).splitlines()
    assert first == "false"
    assert (
        second == "MithrilWarning JaxBackend: pre_allocate has no effect: JAX has started already"
    )


@row("torch", "cudnn_benchmark")
def cudnn_benchmark():
    refused("torch", "cudnn_benchmark=True: requires a CUDA device", cudnn_benchmark=True)
    assert ml.TorchBackend(cudnn_benchmark=False).cudnn_benchmark is False


@row("torch", "precision")
def precision_of_torch():
    ml.TorchBackend(precision="float32")
    refused("torch", "precision='tf32': requires a CUDA device, got cpu", precision="tf32")
    refused("torch", "precision: requires one of", ArgumentError, precision="float8")
    assert ml.TorchBackend(precision="float16").compute_dtype == "float16"


@row("torch", "enable_amp", "use_amp")
def amp():
    for option in ("enable_amp", "use_amp"):
        assert ml.TorchBackend(**{option: True}).compute_dtype == "bfloat16"
        refused("torch", f"{option}='bfloat16': mixed", dtype="float64", **{option: True})
    with pytest.raises(ml.errors.SignatureError, match="enable_amp=True and use_amp=False"):
        ml.TorchBackend(enable_amp=True, use_amp=False)
    ml.TorchBackend(enable_amp=False)


@row("torch", "parallel_strategy", "devices")
def parallel():
    refused("torch", "parallel_strategy='data_parallel'", parallel_strategy="data_parallel")
    refused("torch", "parallel_strategy: requires", ArgumentError, parallel_strategy="magic")
    refused("torch", r"devices=\['cpu', 'cpu'\]", devices=["cpu", "cpu"])
    refused("torch", "devices: requires a list", ArgumentError, devices="cpu")
    assert ml.TorchBackend(devices=["cpu:0"]).get_device() == "cpu:0"


@row("numpy", "compute_precision")
@row("cpu", "compute_precision")
@row("c", "compute_precision")
def compute_precision_of_numpy():
    for make in (ml.NumpyBackend, ml.CpuBackend, ml.CBackend):
        assert make(compute_precision="bfloat16").compute_dtype == "bfloat16"
    refused("numpy", "compute_precision='float64': mixed", compute_precision="float64")
    refused(
        "cpu", "compute_precision='float16': mixed", dtype="float64", compute_precision="float16"
    )


@row("mlx", "compute_precision")
def compute_precision():
    ml.MlxBackend(dtype="float16", compute_precision="float16")
    assert ml.MlxBackend(compute_precision="float16").compute_dtype == "float16"
    refused("mlx", "compute_precision='float64': mixed", compute_precision="float64")
    backend = ml.MlxBackend(dtype="float16", compute_precision="float32")
    model = ml.Model()
    model |= ml.Mean()(input="x", output="y")
    pm = ml.compile(model, backend, data_keys={"x"})
    assert float(pm(x=[60000.0] * 8)) == 60000.0  # float16 ends at 65504


@row("mlx", "enable_mps_optimization", "use_ane")
def apple():
    with pytest.warns(MithrilWarning, match="use_ane=True has no effect: MLX has no path"):
        ml.MlxBackend(use_ane=True)
    import mlx.core as mx

    if not mx.metal.is_available():
        with pytest.warns(MithrilWarning, match="enable_mps_optimization=True has no effect"):
            ml.MlxBackend(enable_mps_optimization=True)


@row("mlx", "memory_limit", "auto_free_tensors", "eager_free")
def memory_of_mlx():
    import mlx.core as mx

    for option in ("auto_free_tensors", "eager_free"):
        backend = ml.MlxBackend(memory_limit="4GB", **{option: True})
        try:
            before = mx.set_memory_limit(4 * 10**9)
            mx.eval(mx.zeros(10**6) + 1)
            assert (before, mx.get_cache_memory()) == (4 * 10**9, 0)
        finally:
            backend.reset()
    with pytest.raises(ArgumentError, match="memory_limit"):
        ml.MlxBackend(memory_limit="lots")

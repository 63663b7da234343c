"""`CBackend`: the bits of the engine, forward and backward, in steps, loops and threads."""

import pickle
import shutil
import signal
import subprocess
import sys
import time

import mithril as ml
import numpy as np
import pytest
from backends.plan_cases import (
    check_bad_index,
    check_branches,
    check_donated_states,
    check_open_sizes,
    check_random_models,
    check_steps,
    check_threads_at_once,
    check_values_and_gradients,
    every_model,
    same,
)
from formats.c_cases import MODELS, built, drawn, training
from mithril.errors import CompilerError, OutOfMemoryError
from mithril.testing import run_backend_tests
from test_random_models import CHUNKS, seeds, trials_of

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]
QUICK = "-O1 -march=native"  # results do not depend on it, the time of tests does
FASTEST = shutil.which("clang")  # None: the one that there is


def on_c(dtype="float32", **options):
    return ml.CBackend(dtype=dtype, flags=QUICK, **options)


def both(model, dtype="float32", **options):
    """The model on the engine and on C; every convolution is exact there, too."""
    engine = ml.compile(model, ml.CpuBackend(dtype=dtype), exact_conv=True, **options)
    return engine, ml.compile(model, on_c(dtype), **options)


@every_model
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_values_and_gradients(title, dtype):
    check_values_and_gradients(both, title, dtype)


@every_model
@pytest.mark.parametrize("stream", [False, True])
def test_steps(title, stream):
    check_steps(both, title, 5, stream_gradients=stream)


@pytest.mark.frameworks
def test_steps_are_those_of_torch():
    torch = pytest.importorskip("torch")
    model = ml.Model()
    model |= ml.Linear(32)(input="x", output="h")
    model |= ml.Relu()(input="h", output="a")
    model |= ml.Linear(10)(input="a", output="y")
    model.expose_keys("y")
    optimizer = ml.optim.Adam(lr=1e-2)
    pm = ml.compile(
        training(model), on_c(), data_keys={"x", "target"}, shapes={"x": [8, 16]},
        optimizer=optimizer,
    )  # fmt: skip
    params = pm.get_parameters()
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), params.values(), strict=True):
            parameter.copy_(torch.from_numpy(np.array(value)))
    theirs, opt_state = torch.optim.Adam(net.parameters(), lr=1e-2), optimizer.init(params)
    for i in range(100):
        batch = {"x": drawn([8, 16], 2 * i), "target": drawn([8, 10], 2 * i + 1)}
        params, opt_state, _, outputs = pm.step(params, opt_state, batch)
        x, target = (torch.from_numpy(value) for value in batch.values())
        loss = ((net(x) - target) ** 2).mean()
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        assert float(outputs["final_cost"]) == pytest.approx(loss.item(), abs=1e-5)
    for parameter, value in zip(net.parameters(), params.values(), strict=True):
        np.testing.assert_allclose(value, parameter.detach().numpy(), atol=1e-5)


def products(random):
    """Matrix products whose rows, columns and sums end within tiles and blocks, turned or not."""
    model, shapes = ml.Model(), {}
    for i in range(24):
        m, n = (int(random.choice([1, 3, 4, 7, 8, 9, 15, 31, 33, 64, 65])) for _ in range(2))
        k = int(random.choice([1, 3, 5, 16, 63, 255, 256, 257, 520]))
        operands = []
        for name, shape in ((f"x{i}", [m, k]), (f"w{i}", [k, n])):
            is_turned = bool(random.integers(2))
            shapes[name] = shape[::-1] if is_turned else shape
            if is_turned:
                model |= ml.Transpose()(input=name, output=f"{name}t")
            operands.append(f"{name}t" if is_turned else name)
        model |= ml.MatrixMultiply()(left=operands[0], right=operands[1], output=f"y{i}")
        model.expose_keys(f"y{i}")
    return model, shapes


def convolutions(random):
    model, shapes = ml.Model(), {}
    for i in range(10):
        kernel = tuple(random.integers(1, 5, 2).tolist())
        stride, dilation = random.integers(1, 4), random.integers(1, 3)
        model |= ml.Convolution2D(
            kernel, int(random.integers(3, 12)), stride=int(stride), dilation=int(dilation),
            padding=int(random.integers(3)),
        )(input=f"x{i}", output=f"c{i}")  # fmt: skip
        window, step = random.integers(1, 4, 2).tolist()
        model |= ml.MaxPool2D(kernel_size=window, stride=step)(input=f"c{i}", output=f"y{i}")
        model.expose_keys(f"y{i}")
        channels = random.integers(1, 9)
        shapes[f"x{i}"] = [*random.integers(1, 4, 1), channels, *random.integers(12, 40, 2)]
    return model, {name: [int(size) for size in shape] for name, shape in shapes.items()}


@pytest.mark.parametrize("made", [products, convolutions])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kernels_of_many_sizes(made, dtype):
    model, shapes = made(np.random.default_rng(7))
    engine, c = both(model, dtype, shapes=shapes, trainable_keys=set(shapes))
    params = engine.randomize_params(seed=1)
    wanted = engine.evaluate(params, {})
    same(c.evaluate(params, {}), wanted)
    cotangents = {name: drawn(value.shape, 3) for name, value in wanted.items()}
    got, want = (pm.evaluate(params, {}, output_gradients=cotangents) for pm in (c, engine))
    same(got.gradients, want.gradients)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches(sign):
    check_branches(both, sign)


@pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning")
def test_random_models(request):
    """A four hundredth of `--graphs`: every one is compiled for itself."""
    check_random_models(both, request.config.getoption("--graphs") // 400)


@pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_many_random_models(chunk, request, check_counts):
    """A quarter of `--graphs`, 25 in one text: values beside the oracle, and the gradients of the
    engine, whose slopes are checked there."""
    graphs = seeds(request.config, request.config.getoption("--graphs") // 4)[chunk::CHUNKS]
    dtype = "float32" if chunk % 3 == 0 else "float64"
    # What does not optimize compiles in a fifth of the time.
    options = {"flags": "-O0" if chunk % 5 else QUICK, "compiler": FASTEST if chunk % 10 else "cc"}
    for some, c, engine in trials_of(graphs, "CBackend", dtype, **options):
        same(c.check_values(), engine.check_values())
        check_counts["random models on c"] += len(some)


def test_open_sizes_are_compiled_one_by_one():
    check_open_sizes(both)


def test_threads_of_a_backend_change_no_bit():
    model = MODELS["mlp"][0]()
    pm = ml.compile(model, on_c(threads=2), data_keys={"x"}, shapes={"x": [256, 64]})
    one = ml.compile(model, on_c(), data_keys={"x"}, shapes={"x": [256, 64]})
    data = {"x": drawn([256, 64])}
    same(pm.evaluate(pm.get_parameters(), data), one.evaluate(pm.get_parameters(), data))


OPENED_AND_CLOSED = """
import gc, time, numpy as np, mithril as ml
model = ml.Model()
model |= ml.MatrixMultiply()(left="x", right="x", output="y")
for flags in ("-O0", "-O1"):
    backend = ml.CBackend(threads=2, flags=flags)
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [256, 256]})
    print(pm.evaluate({}, {"x": np.ones((256, 256), "f4")})["y"].min())
    del pm, backend
    gc.collect()
    time.sleep(0.3)  # threads of OpenMP still wait for work
"""


def test_threads_outlive_their_objects():
    """OpenMP stays when the last object that uses it is closed."""
    command = [sys.executable, "-c", OPENED_AND_CLOSED]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "256.0\n256.0\n"), done.stderr


FORKED = """
import os, numpy as np, mithril as ml
model = ml.Model()
model |= ml.MatrixMultiply()(left="x", right="x", output="y")
pm = ml.compile(
    model, ml.CBackend(threads=2, flags="-O1"), data_keys={"x"}, shapes={"x": [256, 256]}
)
x = {"x": np.random.default_rng(0).standard_normal((256, 256)).astype("f4")}
y = pm.evaluate({}, x)["y"]
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if all(np.array_equal(pm.evaluate({}, x)["y"], y) for _ in range(3)) else 1)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_forked_children_have_threads_of_their_own():
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)


def test_threads_that_evaluate_at_once():
    """The first call of each compiles; the others wait for it or compile, too."""
    check_threads_at_once(on_c(cache=False), 20, 60)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("places", ["int32", "int64", None])
def test_caches(tmp_path, dtype, places):
    """Two appends behind each other, the first one where the cache lies, of values in any order;
    without room all is NaN. The exported text builds without a warning."""
    model, first, second = ml.Model(), "o", "p"
    if places is None:
        first = second = 1
    model |= ml.Multiply()(left="cache", right="cache", output="squares")
    model |= ml.SwapAxes(-1, -2)(input="x", output="turned")
    model |= ml.UpdateCache()(cache="squares", input="turned", offset=first, output="once")
    model |= ml.UpdateCache()(cache="once", input="z", offset=second, output="y")
    model.expose_keys("y")
    sizes = {"cache": (2, 6, 3), "x": (2, 3, 2), "z": (2, 1, 3)}
    data = {name: drawn(size, i).astype(dtype) for i, (name, size) in enumerate(sizes.items())}
    offsets = {} if places is None else {"o": 0, "p": 0}
    shapes = {name: list(size) for name, size in sizes.items()} | {name: [] for name in offsets}
    keys = {"data_keys": set(shapes), "types": dict.fromkeys(offsets, places)}
    pm = ml.compile(model, on_c(dtype), shapes=shapes, **keys)
    for o, p in ((0, 5), (4, 3), (2, 2), (5, 0), (1, 6), (-1, 0), (2**31 - 1, 1)):
        given = {} if places is None else {"o": np.array(o, places), "p": np.array(p, places)}
        o, p = (o, p) if given else (1, 1)
        want = data["cache"] * data["cache"]
        if 0 <= o <= 4 and 0 <= p <= 5:
            want[:, o : o + 2] = data["x"].swapaxes(1, 2)
            want[:, p : p + 1] = data["z"]
        else:
            want[:] = np.nan
            if 0 <= p <= 5:
                want[:, p : p + 1] = data["z"]
        np.testing.assert_array_equal(pm.evaluate({}, data | given)["y"], want)
    pm.export_c(tmp_path)
    for compiler in filter(shutil.which, ("gcc", "clang")):
        built(tmp_path, compiler)


def test_arenas_above_memory(tmp_path):
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="x", right="w", output="p")
    model |= ml.Sum()(input="p", output="y")
    model.expose_keys("y")
    data = {"x": np.ones((2**20, 1), "f4"), "w": np.ones((1, 2**20), "f4")}
    shapes = {name: list(value.shape) for name, value in data.items()}
    pm = ml.compile(model, on_c(), data_keys=set(data), shapes=shapes)
    with pytest.raises(OutOfMemoryError, match=r"takes 4\.4 TB"):
        pm.evaluate({}, data)
    assert pm.export_c(tmp_path)["arena_bytes"] >= 2**42  # printed, and told


def test_a_compiler_that_fails_stops_the_call():
    backend = on_c()
    pm = ml.compile(ml.Relu(), backend, shapes={"input": [3]})
    build, asked = backend._build, []

    def broken(text, name):
        asked.append(name)
        raise CompilerError("no compiler today")

    backend._build = broken
    other = ml.compile(ml.Relu(), backend, shapes={"input": [3]})
    for _ in range(2):
        with pytest.raises(CompilerError, match="no compiler today"):
            other.evaluate({}, {"input": [1.0, 2.0, 3.0]})
    assert len(asked) == 2  # nothing was kept
    backend._build = build
    assert pm.evaluate({}, {"input": [-1.0, 2.0, 3.0]})["output"].tolist() == [0.0, 2.0, 3.0]


INTERRUPTED = """
import os, sys, mithril as ml
compiler, going = sys.argv[1:]
pm = ml.compile(ml.Relu(), ml.CBackend(compiler=compiler, cache=False), shapes={"input": [2]})
data = {"input": [-1.0, 2.0]}
open(going, "w").close()
try:
    pm.evaluate({}, data)
except KeyboardInterrupt:
    os.unlink(going)
    print(pm.evaluate({}, data)["output"].tolist())
"""


def test_an_interrupt_while_the_compiler_runs(tmp_path):
    going, compiler = tmp_path / "going", tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\nif [ -e "{going}" ]; then echo >> "{going}"; sleep 60; fi\n')
    compiler.open("a").write('exec cc "$@"\n')
    compiler.chmod(0o755)
    command = [sys.executable, "-c", INTERRUPTED, str(compiler), str(going)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True,
        # a suite that runs in the background is told to ignore it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    while not (going.exists() and going.stat().st_size):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[0] == "[0.0, 2.0]\n"


def test_a_bad_index_is_the_engines_error():
    check_bad_index(both)


def test_states_that_are_donated():
    check_donated_states(on_c())


def test_what_it_says_of_itself():
    pm = ml.compile(MODELS["mlp"][0](), on_c(), data_keys={"x"}, shapes={"x": [8, 16]})
    plan = pm.memory_plan()["evaluate"]
    assert plan.inputs == 8 * 16 * 4 and plan.peak > 0
    assert "mlp.first" in str(pm.explain())
    with pm.profile() as profile:
        pm.evaluate(pm.get_parameters(), {"x": drawn([8, 16])})
    assert profile.rows
    can = pm.backend.capabilities
    assert can.autodiff == "engine" and not can.jit and pm.backend.is_manualgrad


def test_models_can_be_pickled():
    pm = ml.compile(MODELS["mlp"][0](), on_c(), data_keys={"x"}, shapes={"x": [8, 16]})
    copy = pickle.loads(pickle.dumps(pm))
    data = {"x": drawn([8, 16])}
    same(copy.evaluate(pm.get_parameters(), data), pm.evaluate(pm.get_parameters(), data))


def test_methods_do_not_wait_for_a_compiler():
    backend, engine = on_c(), ml.CpuBackend()
    backend._build = lambda text, name: pytest.fail("a method compiled C")
    x = drawn([2, 3])
    assert backend.add(x, x).tolist() == (2 * x).tolist()
    np.testing.assert_array_equal(backend.softplus(x), engine.softplus(x))
    slope = backend.grad(lambda x: backend.sum(x**3.0))
    np.testing.assert_array_equal(slope(x), engine.grad(lambda x: engine.sum(x**3.0))(x))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_conformance_suite():
    """One sample of each op and its gradient, with the compiler that is quickest."""
    report = run_backend_tests(ml.CBackend(flags="-O0"))
    assert report and report.native == report.passed, str(report)
    assert report.checks > 3 * report.total
    skipped = {row.name for row in report.rows if row.outcome == "skipped"}
    assert skipped == {"item", "tensor_to_list"}


# --- arrays ---------------------------------------------------------------------------------------


def test_arrays():
    """The rows of the original's PyArray, and what that lacked."""
    from mithril.cores.c.array import PyArray

    backend = ml.CBackend()
    x, y = backend.array([[1.0, 2.0], [3.0, 4.0]]), backend.array([10.0, 20.0])
    assert isinstance(x, PyArray) and backend.get_backend_array_type() is PyArray
    assert (x.shape, x.ndim, backend.dtype(x)) == ((2, 2), 2, "float32")
    results = {
        "+": x + y, "-": 1 - x, "*": 2 * x, "/": x / y, "neg": -x, "abs": abs(-x), "@": x @ y,
        "<": x < 2.5, "==": x == x, "[]": x[1, ::-1], "mutual": x[:, None] + y[:, None],
    }  # fmt: skip
    wanted = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert results["/"].tolist() == (wanted.astype("f4") / np.float32([10, 20])).tolist()
    assert results["-"].tolist() == (1 - wanted).tolist()
    assert results["<"].tolist() == [[True, True], [False, False]]
    assert results["[]"].tolist() == [4.0, 3.0] and results["mutual"].shape == (2, 2, 2)
    assert all(isinstance(array, PyArray) for array in results.values())
    assert backend.to_numpy(x) is x and np.asarray(x) is x
    assert memoryview(x).shape == (2, 2) and np.from_dlpack(x).base is not None
    x[0, 0] = 7.0
    assert x.tolist()[0] == [7.0, 2.0]

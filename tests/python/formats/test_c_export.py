"""Exported C: built by gcc and clang without a warning, to the bits of the engine, alone."""

import ctypes
import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import mithril as ml
import numpy as np
import pytest
from formats import c_cases
from formats.c_cases import (
    MODELS,
    STRICT,
    built,
    drawn,
    in_their_order,
    layout,
    of_torch,
    run,
    training,
    write_inputs,
)
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    SignatureError,
    UnsupportedError,
)
from mithril.formats import _c_api

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]
every_model = pytest.mark.parametrize("title", MODELS)
every_compiler = pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason="no such"))
        for name in ("gcc", "clang")
    ],
)
every_kind = pytest.mark.parametrize("trains", [False, True], ids=["inference", "training"])
STEPS = 100


def compiled(title, backend=None, **options):
    make, shape = MODELS[title]
    options = {"data_keys": {"x"}, "shapes": {"x": shape}, "inference": True} | options
    return ml.compile(make(), backend or ml.CpuBackend(), **options)


def by_engine(title, x, **options):
    pm = compiled(title, exact_conv=True, **options)
    return pm.evaluate(pm.get_parameters(), {"x": x})["y"]


# --- inference ------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("weights", ["binary", "array"])
@every_compiler
def test_bits_are_those_of_the_engine(title, weights, compiler, tmp_path):
    found = compiled(title).export_c(tmp_path, weights=weights, name=title)
    assert found == layout(tmp_path) and found["weights"] == weights
    built(tmp_path, compiler)
    x = drawn(MODELS[title][1])
    write_inputs(tmp_path, {"x": x})
    np.testing.assert_array_equal(run(tmp_path)["y"], by_engine(title, x))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_element_types(dtype, tmp_path):
    pm = compiled("mlp", ml.CpuBackend(dtype=dtype))
    found = pm.export_c(tmp_path)
    assert {one["dtype"] for one in found["inputs"]} == {dtype}
    built(tmp_path)
    x = pm.backend.array(drawn(MODELS["mlp"][1]))
    write_inputs(tmp_path, {"x": x})
    want = pm.evaluate(pm.get_parameters(), {"x": x})["y"]
    np.testing.assert_array_equal(run(tmp_path)["y"], want)


def test_bits_do_not_depend_on_flags(tmp_path):
    x = drawn(MODELS["cnn"][1])
    want = by_engine("cnn", x)
    compiled("cnn").export_c(tmp_path)
    write_inputs(tmp_path, {"x": x})
    for flags in ("-O0", "-O1", "-O3 -march=native"):
        built(tmp_path, flags=flags)
        np.testing.assert_array_equal(run(tmp_path)["y"], want)


def test_given_parameters_are_written(tmp_path):
    pm = compiled("mlp", ml.NumpyBackend())
    params = pm.randomize_params(seed=3)
    pm.export_c(tmp_path, params=params)
    x = drawn(MODELS["mlp"][1])
    write_inputs(built(tmp_path), {"x": x})
    want = ml.transfer(params, ml.CpuBackend())
    np.testing.assert_array_equal(run(tmp_path)["y"], compiled("mlp").evaluate(want, {"x": x})["y"])


def test_states_go_in_and_come_out(tmp_path):
    pm = compiled("cnn", mode="train", inference=False, exact_conv=True)
    found = pm.export_c(tmp_path)
    kinds = [one["kind"] for one in (*found["inputs"], *found["outputs"])]
    assert kinds.count("state") == kinds.count("next_state") > 0
    x, first = drawn(MODELS["cnn"][1]), pm.initial_state()
    write_inputs(built(tmp_path), {"x": x, **first})
    got = run(tmp_path)
    outputs, states = pm.evaluate(pm.get_parameters(), {"x": x}, state=first)
    np.testing.assert_array_equal(got["y"], outputs["y"])
    for name, value in states.items():
        np.testing.assert_array_equal(got[f"$state.{name}"], value)


# --- training -------------------------------------------------------------------------------------


def trained(title, optimizer, **options):
    make, shape = MODELS[title]
    return ml.compile(
        training(make()), ml.CpuBackend(), data_keys={"x", "target"}, shapes={"x": shape},
        optimizer=optimizer, exact_conv=True, **options,
    )  # fmt: skip


def batches(pm, title):
    shape = MODELS[title][1]
    target = dict(pm.shapes)["target"]
    return [
        {"x": drawn(shape, 2 * i), "target": drawn(target, 2 * i + 1)} for i in range(STEPS)
    ]  # fmt: skip


@every_model
@every_compiler
@pytest.mark.parametrize("weights", ["binary", "array"])
def test_training_has_the_bits_of_the_engine(title, weights, compiler, tmp_path):
    optimizer = ml.optim.Adam(lr=1e-2)
    pm = trained(title, optimizer)
    found = pm.export_c(tmp_path, training=True, weights=weights)
    data = batches(pm, title)
    write_inputs(built(tmp_path, compiler), {k: [b[k] for b in data] for k in ("x", "target")})
    got = run(tmp_path, STEPS)
    params, state = pm.get_parameters(), pm.initial_state()
    opt_state = optimizer.init(params)
    for batch in data:
        params, opt_state, state, outputs = pm.step(params, opt_state, batch, state)
    kept = c_cases.state(tmp_path)
    assert found["state_bytes"] == (tmp_path / "state.bin").stat().st_size
    assert kept["step", ""] == STEPS and kept["rate", ""] == np.float32(1e-2)
    np.testing.assert_array_equal(got["final_cost"], outputs["final_cost"])
    for name, value in params.items():
        np.testing.assert_array_equal(kept["parameter", name], value)
        np.testing.assert_array_equal(kept["optimizer.m", name], opt_state["m"][name])
    for name, value in state.items():
        np.testing.assert_array_equal(kept["state", name], value)


@every_model
def test_its_own_makefile_builds_training_without_a_warning(title, tmp_path):
    trained(title, ml.optim.Adam(lr=1e-2)).export_c(tmp_path, training=True)
    done = subprocess.run(
        ["make", "-C", tmp_path, "CC=gcc -Werror"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.frameworks
@every_model
def test_training_agrees_with_torch(title, tmp_path):
    torch = pytest.importorskip("torch")
    pm = trained(title, ml.optim.SGD(lr=1e-2), mode="train")
    pm.export_c(tmp_path, training=True)
    data = batches(pm, title)
    write_inputs(built(tmp_path), {k: [b[k] for b in data] for k in ("x", "target")})
    cost = run(tmp_path, STEPS)["final_cost"]
    first = pm.get_parameters()
    net = of_torch(title, torch)
    theirs = dict(zip(in_their_order(title, first), net.parameters(), strict=True))
    with torch.no_grad():
        for name, parameter in theirs.items():
            parameter.copy_(torch.from_numpy(np.array(first[name])).reshape(parameter.shape))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    for batch in data:
        x, target = (torch.from_numpy(batch[key]) for key in ("x", "target"))
        loss = ((net(x) - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(cost) == pytest.approx(loss.item(), abs=1e-5)
    kept = c_cases.state(tmp_path)
    for name, parameter in theirs.items():
        got = kept["parameter", name].reshape(parameter.shape)
        np.testing.assert_allclose(got, parameter.detach().numpy(), atol=1e-5)


# --- alone ----------------------------------------------------------------------------------------


def symbols(folder):
    out = subprocess.run(
        ["nm", "-u", next(Path(folder).glob("lib*.a"))], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[1] for line in out.splitlines() if line.startswith(" ")}


MEMORY = {"memcpy", "memmove", "memset"}
MATH = {"fma", "fmaf", "sqrt", "sqrtf", "fabs", "fabsf", "floor", "floorf", "trunc", "truncf"}


def exported_with_inputs(title, trains, folder, calls):
    """An exported folder, and a batch for each call."""
    pm = trained(title, ml.optim.Adam()) if trains else compiled(title)
    pm.export_c(folder, training=trains)
    data = batches(pm, title) if trains else [{"x": drawn(MODELS[title][1], i)} for i in range(5)]
    write_inputs(folder, {name: [batch[name] for batch in data[:calls]] for name in data[0]})


@every_model
@every_compiler
@every_kind
def test_the_library_calls_nothing_else(title, compiler, trains, tmp_path):
    exported_with_inputs(title, trains, tmp_path, 1)
    built(tmp_path, compiler)
    assert outside(tmp_path) <= MEMORY | MATH


@pytest.mark.skipif(os.getuid() != 0, reason="changing the root takes root")
@every_model
@every_kind
def test_it_runs_in_an_empty_root(title, trains, tmp_path):
    """Where there is nothing but the program and its data, it writes the same bytes."""
    exported_with_inputs(title, trains, tmp_path, 3)
    built(tmp_path, LDFLAGS="-static")
    root = tmp_path / "root"
    root.mkdir()
    for path in (*tmp_path.glob("*.bin"), tmp_path / "model_example"):
        shutil.copy(path, root)
    subprocess.run(
        ["/model_example", "/", "3"],
        preexec_fn=lambda: (os.chroot(root), os.chdir("/")),
        cwd=root,
        env={},
    ).check_returncode()
    run(tmp_path, 3)
    written = [path for path in tmp_path.glob("*.bin") if path.stem.startswith(("output", "state"))]
    assert len(written) >= 1 + trains
    for path in written:
        assert (root / path.name).read_bytes() == path.read_bytes()


@every_model
@pytest.mark.parametrize("trains", [pytest.param(False, marks=pytest.mark.slow), True])
def test_sanitizers_find_nothing(title, trains, tmp_path):
    exported_with_inputs(title, trains, tmp_path, 2)
    built(tmp_path, flags="-O1 -g -fsanitize=undefined,address -fno-sanitize-recover=all")
    run(tmp_path, 2)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind")
@every_model
@every_kind
def test_valgrind_finds_nothing(title, trains, tmp_path):
    exported_with_inputs(title, trains, tmp_path, 2)
    built(tmp_path, flags="-O1 -g")
    run(tmp_path, 2, before=["valgrind", "-q", "--error-exitcode=9"])


def test_threads_have_models_of_their_own(tmp_path):
    compiled("mlp").export_c(tmp_path, weights="array")
    sources = [str(path) for path in tmp_path.glob("model*.c")]
    library = tmp_path / "model.so"
    flags = ["-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-shared"]
    subprocess.run(["cc", *flags, *sources, "-o", library, "-lm"], check=True)
    program = ctypes.CDLL(str(library))
    found, xs = {}, [drawn(MODELS["mlp"][1], seed) for seed in range(8)]

    def work(i):
        model = ctypes.create_string_buffer(4096)
        arena = ctypes.create_string_buffer(layout(tmp_path)["arena_bytes"] + 64)
        aligned = ctypes.addressof(arena) + 64 - ctypes.addressof(arena) % 64
        program.model_init(model, ctypes.c_void_p(aligned))
        y = np.empty((8, 10), np.float32)
        inputs = ctypes.c_void_p(xs[i].ctypes.data)
        outputs = ctypes.c_void_p(y.ctypes.data)
        for _ in range(200):
            assert program.model_evaluate(model, ctypes.byref(inputs), ctypes.byref(outputs)) == 0
        found[i] = y

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pm = compiled("mlp")
    for i, x in enumerate(xs):
        np.testing.assert_array_equal(found[i], pm.evaluate(pm.get_parameters(), {"x": x})["y"])


def test_cmake_builds_the_same(tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    compiled("mlp").export_c(tmp_path, name="test")  # a name that targets of CMake cannot have
    build = tmp_path / "build"
    for command in (["-S", tmp_path, "-B", build], ["--build", build]):
        subprocess.run(["cmake", *command], check=True, capture_output=True)
    x = drawn(MODELS["mlp"][1])
    write_inputs(tmp_path, {"x": x})
    shutil.copy(build / "test_example", tmp_path)
    np.testing.assert_array_equal(run(tmp_path)["y"], by_engine("mlp", x))


def test_freestanding(tmp_path):
    model = ml.Model()
    model |= ml.Add()(left="x", right=1, output="y")
    shapes, types = {"x": [5]}, {"x": ml.int32}
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, types=types, data_keys={"x"})
    found = pm.export_c(tmp_path, target="freestanding")
    assert not found["needs_libm"] and "-ffreestanding" in (tmp_path / "Makefile").read_text()
    write_inputs(built(tmp_path), {"x": np.arange(-2, 3)})
    assert run(tmp_path)["y"].tolist() == [-1, 0, 1, 2, 3]
    assert outside(tmp_path) <= MEMORY


def test_threads_are_pragmas(tmp_path):
    """Compiled for OpenMP or not, calls have the same bits."""
    pm = compiled("mlp", shapes={"x": [512, 16]})
    assert "_OPENMP" not in exported(pm, tmp_path / "one").read_text()
    program = exported(pm, tmp_path / "many", threads=3)
    assert "#ifdef _OPENMP" in program.read_text() and "M_THREADS 3" in program.read_text()
    x = drawn([512, 16])
    want = by_engine("mlp", x, shapes={"x": [512, 16]})
    for flags in ("-O2 -fopenmp", "-O2 -Wno-unknown-pragmas"):
        write_inputs(built(program.parent, flags=f"{flags} -Wall -Wextra -Werror"), {"x": x})
        np.testing.assert_array_equal(run(program.parent)["y"], want)
        assert any("GOMP" in symbol for symbol in symbols(program.parent)) == ("openmp" in flags)
    assert "-fopenmp" in (tmp_path / "many" / "Makefile").read_text()
    assert "OpenMP" in (tmp_path / "many" / "CMakeLists.txt").read_text()


def exported(pm, folder, **options):
    pm.export_c(folder, **options)
    return folder / "model.c"


def outside(folder):
    """What the library part wants of others."""
    return {symbol for symbol in symbols(folder) if not symbol.startswith("model_")}


@every_model
@pytest.mark.parametrize("flags", ["-O2", "-O2 -march=native", "-O0"])
def test_freestanding_floats_have_the_bits_of_the_engine(title, flags, tmp_path):
    """Without -march the text's own fma computes."""
    compiled(title).export_c(tmp_path, target="freestanding")
    x = drawn(MODELS[title][1])
    write_inputs(built(tmp_path, flags=f"{flags} -Wall -Wextra -Werror"), {"x": x})
    np.testing.assert_array_equal(run(tmp_path)["y"], by_engine(title, x))
    assert outside(tmp_path) <= MEMORY


def test_freestanding_training(tmp_path):
    pm = trained("cnn", ml.optim.Adam())
    pm.export_c(tmp_path / "hosted", training=True)
    pm.export_c(tmp_path / "own", training=True, target="freestanding")
    data = batches(pm, "cnn")[:5]
    states = []
    for folder in (tmp_path / "hosted", tmp_path / "own"):
        write_inputs(built(folder, flags="-O2"), {k: [b[k] for b in data] for k in data[0]})
        run(folder, len(data))
        states.append((folder / "state.bin").read_bytes())
    assert states[0] == states[1] and outside(tmp_path / "own") <= MEMORY


OWN_MATH = r"""
#include <math.h>
#undef NAN
#undef INFINITY
#include "model.c"
#undef fma
#undef fmaf
#undef sqrt
#include <stdio.h>
static uint64_t state = 88172645463325252u;
static uint64_t drawn(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}
static double number(void) {
  static const double some[] = {0.0, -0.0, 1.0, -0.5, 2.5, 5e-324, 2.2250738585072014e-308,
                                1.7976931348623157e308, 4503599627370495.5};
  const uint64_t kind = drawn() % 8, u = drawn();
  if (kind == 0) return some[u % 9];
  if (kind == 1) return m_of_bits_f64(u & 0x801fffffffffffffu);
  if (kind == 2) return (double)(int)(u % 2001) / 2 - 500;
  if (kind < 6) return m_of_bits_f64((u & 0x800fffffffffffffu) | ((993 + drawn() % 60) << 52));
  return m_of_bits_f64(u);
}
static int same(double a, double b) { return (a != a && b != b) || m_bits_f64(a) == m_bits_f64(b); }
int main(void) {
  long i, wrong = 0;
  for (i = 0; i < 300000; ++i) {
    const double a = number(), b = number(), c = i % 3 == 0 ? -a * b : number();
    const float f = (float)a, g = (float)b, h = i % 3 == 0 ? -f * g : (float)c;
    wrong += !same(m_own_fma_f64(a, b, c), fma(a, b, c));
    wrong += !same(m_own_fma_f32(f, g, h), fmaf(f, g, h));
    wrong += !same(m_own_sqrt_f64(a), sqrt(a)) + !same(m_own_sqrt_f32(f), sqrtf(f));
    wrong += !same(m_floor_f64(a), floor(a)) + !same(m_ceil_f64(a), ceil(a));
    wrong += !same(m_trunc_f64(a), trunc(a)) + !same(m_round_f64(a), rint(a));
    wrong += !same(m_floor_f32(f), floorf(f)) + !same(m_round_f32(f), rintf(f));
    if (i % 50 != 0) continue;
    wrong += !same(m_fmod_f64(a, b), fmod(a, b)) + !same(m_fmod_f32(f, g), fmodf(f, g));
  }
  printf("%ld\n", wrong);
  return 0;
}
"""


def test_own_math_is_that_of_libm(tmp_path):
    model = ml.Model()
    for i, (dtype, part) in enumerate(
        (dtype, part)
        for dtype in (ml.float32, ml.float64)
        for part in (ml.Sqrt(), ml.Floor(), ml.Ceil(), ml.Round(), ml.Trunc(), ml.Exponential())
    ):
        model |= ml.Cast(dtype)(input="x", output=f"x{i}")
        model |= part(input=f"x{i}", output=f"y{i}")
        model.expose_keys(f"y{i}")
    pm = ml.compile(model, ml.CpuBackend(dtype="float64"), shapes={"x": [4]}, data_keys={"x"})
    pm.export_c(tmp_path, target="freestanding")
    (tmp_path / "own.c").write_text(OWN_MATH)
    # without instructions for fma and roots in the text: the functions themselves
    flags = ["-std=c99", "-O2", "-ffp-contract=off", "-fno-builtin", "-U__SSE2__", "-U__FMA__"]
    subprocess.run(["cc", *flags, "own.c", "-o", "own", "-lm"], cwd=tmp_path, check=True)
    assert subprocess.check_output([str(tmp_path / "own")], text=True) == "0\n"


# --- data -----------------------------------------------------------------------------------------


def test_a_bad_index_is_a_status(tmp_path):
    model = ml.Model()
    model |= ml.Embedding(num_embeddings=4, dim=2)(input="x", output="y")
    pm = ml.compile(model, ml.CpuBackend(), shapes={"x": [3]}, data_keys={"x"})
    pm.export_c(tmp_path)
    write_inputs(built(tmp_path), {"x": np.array([0, 3, 1])})
    run(tmp_path)
    write_inputs(tmp_path, {"x": np.array([0, 4, 1])})
    for path in tmp_path.glob("output_*.bin"):
        path.unlink()
    assert "status 1 in step 0: index 4 (element 1) is out of range: there are 4" in failing(
        tmp_path
    )
    assert not list(tmp_path.glob("output_*.bin"))


def test_a_singular_matrix_is_a_status(tmp_path):
    model = ml.Model()
    model |= ml.Inverse()(input="x", output="y")
    pm = ml.compile(model, ml.CpuBackend(), shapes={"x": [2, 2, 2]}, data_keys={"x"})
    pm.export_c(tmp_path)
    write_inputs(built(tmp_path), {"x": np.stack([np.eye(2), np.ones((2, 2))])})
    assert "matrix 1 is singular" in failing(tmp_path)
    assert not list(tmp_path.glob("output_*.bin"))


def test_training_that_fails_keeps_its_files(tmp_path):
    model = ml.Model()
    model |= ml.Embedding(num_embeddings=4, dim=2)(input="x", output="y")
    pm = ml.compile(
        training(model), ml.CpuBackend(), shapes={"x": [1]}, data_keys={"x", "target"},
        optimizer=ml.optim.SGD(lr=0.1),
    )  # fmt: skip
    pm.export_c(tmp_path, training=True)
    write_inputs(built(tmp_path), {"x": [np.array([i]) for i in (3, 4)], "target": np.ones((1, 2))})
    run(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.bin")}
    assert failing(tmp_path, 2).startswith("call 2: status 1 in step ")
    assert before == {path.name: path.read_bytes() for path in tmp_path.glob("*.bin")}


def test_calls_are_a_number(tmp_path):
    compiled("mlp").export_c(tmp_path)
    built(tmp_path)
    for calls in ("0", "-1", "x"):
        said = failing(tmp_path, calls)
        assert said == f"requires a number of calls above 0, got {calls}\n"
    assert not list(tmp_path.glob("output_*.bin"))


# --- state ----------------------------------------------------------------------------------------


def decoder(backend):
    gpt = ml.models.create_gpt(
        block_size=16, dims=16, num_heads=2, num_layers=1, vocab_size=11, bias=True, cache_size=16
    )
    options = {"data_keys": {"input"}, "shapes": {"input": [1, 1]}, "inference": True}
    return ml.compile(gpt, backend, naming="path", **options)


def decoded(pm, params, tokens):
    """The outputs and the state after a call for each token."""
    state = pm.initial_state()
    for number in tokens:
        found, state = pm.evaluate(params, {"input": np.array([[number]])}, state=state)
    return found["output"], state


@every_compiler
@pytest.mark.parametrize("weights", ["binary", "array"])
def test_the_example_hands_the_state_on(weights, compiler, tmp_path):
    engine, numpy = decoder(ml.CpuBackend()), decoder(ml.NumpyBackend())
    params = engine.randomize_params(seed=0)
    engine.export_c(tmp_path, params=params, weights=weights)
    (built(tmp_path, compiler) / "input_0.bin").write_bytes(np.array([1, 2, 3], np.int64).tobytes())
    got = run(tmp_path, 3)
    want, state = decoded(numpy, ml.transfer(params, numpy.backend), (1, 2, 3))
    np.testing.assert_allclose(got["output"], want, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got["output"].flat[0], -0.6499, atol=1e-4)
    assert got["$state.offset"] == state["offset"] == 3
    by_engine, state = decoded(engine, params, (1, 2, 3))
    np.testing.assert_array_equal(got["output"], by_engine)
    for name, value in state.items():
        np.testing.assert_array_equal(got[f"$state.{name}"], value)
    for path in tmp_path.glob("next_state_*.bin"):  # goes on from what was written
        shutil.copy(path, tmp_path / path.name.removeprefix("next_"))
    (tmp_path / "input_0.bin").write_bytes(np.array([4], np.int64).tobytes())
    want, _ = decoded(engine, params, (1, 2, 3, 4))
    np.testing.assert_array_equal(run(tmp_path)["output"], want)


def test_a_token_that_there_is_not_leaves_no_output(tmp_path):
    pm = decoder(ml.CpuBackend())
    pm.export_c(tmp_path)
    built(tmp_path)
    tokens = np.array([1, 11, 3], np.int64)
    (tmp_path / "input_0.bin").write_bytes(tokens.tobytes())
    said = failing(tmp_path, 3)
    assert said == (
        "call 2: status 1 in step 0: index 11 (element 0) is out of range: there are 11\n"
    )
    assert not list(tmp_path.glob("*output_*")) and not list(tmp_path.glob("next_state_*"))


def test_states_that_do_not_begin_with_zeros_are_written(tmp_path):
    pm = compiled("cnn", mode="train", inference=False, exact_conv=True)
    found = pm.export_c(tmp_path)
    first = pm.initial_state()
    fields = {one["name"]: one["field"] for one in found["inputs"] if one["kind"] == "state"}
    ones = [name for name, value in first.items() if np.any(value)]
    assert 0 < len(ones) < len(first)
    assert {path.stem for path in tmp_path.glob("state_*")} == {fields[name] for name in ones}
    text = (tmp_path / "README.md").read_text()
    assert f"The first call reads `{fields[ones[0]]}.bin`, which" in text
    xs = [drawn(MODELS["cnn"][1], seed) for seed in range(3)]
    (built(tmp_path) / "input_0.bin").write_bytes(b"".join(x.tobytes() for x in xs))
    got, state = run(tmp_path, 3), first
    for x in xs:
        outputs, state = pm.evaluate(pm.get_parameters(), {"x": x}, state=state)
    np.testing.assert_array_equal(got["y"], outputs["y"])
    for name, value in state.items():
        np.testing.assert_array_equal(got[f"$state.{name}"], value)


def test_the_readme_tells_of_states_and_statuses(tmp_path):
    decoder(ml.CpuBackend()).export_c(tmp_path / "decoder")
    text = (tmp_path / "decoder" / "README.md").read_text()
    assert "| `next_state_0` | `$state.offset` |" in text and "%24" not in text
    assert "| `next_state_0` | `state_0` |" in text and "The first call reads zeros." in text
    for path in (tmp_path / "decoder").glob("*.[ch]"):
        assert "%24" not in path.read_text()
    compiled("mlp").export_c(tmp_path / "mlp")
    text = (tmp_path / "mlp" / "README.md").read_text()
    assert "## State" not in text and "| 1 | bad data" in text


def failing(folder, calls=1):
    """The text of a run that fails."""
    command = ["./model_example", ".", str(calls)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    return done.stderr


def test_literals_keep_every_bit():
    values = np.array([0.1, -0.0, 1e-45, 3.4028235e38, np.inf, -np.inf, np.nan], np.float32)
    texts = [_c_api._literal(x, "float32") for x in values.tolist()]
    assert texts[-3:] == ["INFINITY", "-INFINITY", "NAN"] and texts[1] == "-0x0.0p+0f"
    back = np.array([float.fromhex(text[:-1]) for text in texts[:4]], np.float32)
    assert back.tobytes() == values[:4].tobytes()
    assert _c_api._literal(-(2**63), "int64") == "INT64_MIN"
    assert _c_api._literal(-(2**31), "int32") == "INT32_MIN"


HOSTILE = [
    "*/",
    "/*",
    '"',
    "\\",
    "??/",
    "\n",
    "\r",
    "\0",
    "\u2028",
    "%s",
    "@",
    "#define",
    "💥",
    "'",
]


def test_hostile_names_are_escaped():
    random = np.random.default_rng(0)
    for _ in range(10_000):
        name = "".join(random.choice(HOSTILE, 5)) + chr(random.integers(1, 0xD7FF))
        assert re.fullmatch(r"[A-Za-z0-9_.%]{1,120}", _c_api.commented(name))
        assert re.fullmatch(r"\$[A-Za-z0-9_.%]{1,119}", _c_api.commented(f"${name}"))
    assert _c_api.commented("$state.a$") == "$state.a%24"


def test_ten_thousand_hostile_names_in_one_text(tmp_path):
    """A step for each, which says where it comes from; every one compiles without a warning."""
    random = np.random.default_rng(1)
    model, last = ml.Model(), "x"
    for i in range(10_000):
        name = "n" + "".join(random.choice(HOSTILE, 3)) + f"*/#error{i}"
        model |= ml.MatrixMultiply(name=name)(left=last, right="w*/", output=name + ".o")
        last = name + ".o"
    model.expose_keys(last)
    shapes = {"x": [1, 1], "w*/": [1, 1]}
    exported(ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys=set(shapes)), tmp_path)
    paths = re.findall(r"/\* \d+: matmul of ([^:]*):", (tmp_path / "model.c").read_text())
    assert len(paths) == 10_000
    assert all(re.fullmatch(r"[A-Za-z0-9_.%]{1,120}", path) for path in paths)
    write_inputs(
        built(tmp_path, flags=STRICT.replace("-O2", "-O0")),
        {"x": np.full((1, 1), 3), "w*/": np.ones((1, 1))},
    )
    assert run(tmp_path)[last].tolist() == [[3.0]]


def test_models_with_hostile_names(tmp_path):
    model = ml.Model(name="*/ int x; /*")
    names = [f"{bad}key{i}" for i, bad in enumerate(HOSTILE)]
    for i, name in enumerate(names):
        part = ml.Relu(name=f"*/ #error {i}") if i % 2 else ml.Relu()
        model |= part(input=name, output=f"out{i} */ #error")
        model.expose_keys(f"out{i} */ #error")
    shapes = {name: [2] for name in names}
    pm = ml.compile(model, ml.CpuBackend(), shapes=shapes, data_keys=set(names))
    found = pm.export_c(tmp_path)
    assert [one["name"] for one in found["inputs"]] == names
    for path in tmp_path.iterdir():
        assert "#error" not in path.read_text() or path.suffix == ".json"
    values = {name: np.array([i, -i]) for i, name in enumerate(names)}
    write_inputs(built(tmp_path), values)
    got = run(tmp_path)
    for i in range(len(names)):
        assert got[f"out{i} */ #error"].tolist() == [i, 0]


# --- refusals -------------------------------------------------------------------------------------

BAD = [
    ({"name": "1x"}, ArgumentError, "requires a name of C"),
    ({"name": "a b"}, ArgumentError, "requires a name of C"),
    ({"name": "x" * 64}, ArgumentError, "requires a name of C"),
    ({"name": "main"}, ArgumentError, "has a use for .main. itself"),
    ({"name": "m"}, ArgumentError, "has a use for .m. itself"),
    ({"name": "_x"}, ArgumentError, "requires a name of C"),
    ({"name": 7}, SignatureError, "requires a string"),
    ({"weights": "arrays"}, ArgumentError, "did you mean 'array'"),
    ({"target": "free"}, ArgumentError, "requires 'hosted' or 'freestanding'"),
    ({"threads": 0}, ArgumentError, "threads"),
    ({"threads": 2.5}, ArgumentError, "threads"),
    ({"threads": 10**6}, ArgumentError, "at most 1024"),
    ({"training": "yes"}, SignatureError, "requires True or False"),
    ({"training": True}, ArgumentError, "the model has no optimizer"),
    ({"params": 3}, SignatureError, "requires a dictionary"),
    ({"params": {"wieght_0": 1.0}}, KeyNotFound, "did you mean 'weight_0'"),
    ({"params": {"weight_0": np.ones((32, 16), "f4")}}, KeyNotFound, "params must have"),
    ({"shapes": {"x": [8, 17]}}, ml.errors.ShapeError, ""),
    ({"shapes": {"z": [8, 16]}}, KeyNotFound, "no input named 'z'"),
    ({"what": 1}, SignatureError, "has no argument 'what'"),
]


@pytest.mark.parametrize(
    ("options", "error", "pattern"), BAD, ids=[str(bad[0])[:40] for bad in BAD]
)
def test_arguments_that_are_refused(options, error, pattern, tmp_path):
    folder = tmp_path / "folder"
    with pytest.raises(error, match=pattern):
        compiled("mlp").export_c(folder, **options)
    assert not folder.exists()


@pytest.mark.parametrize("folder", [7, "", "a\0b", None])
def test_folders_that_are_no_paths(folder):
    with pytest.raises((SignatureError, ArgumentError)):
        compiled("mlp").export_c(folder)


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError):
        compiled("mlp").export_c(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_open_sizes_are_named(tmp_path):
    pm = compiled("mlp", shapes={"x": ["batch", 16]})
    with pytest.raises(UnsupportedError) as raised:
        pm.export_c(tmp_path)
    assert raised.value.message == "export_c: C has no open sizes, but 'x' is [batch, 16]"
    assert raised.value.hint == (
        "say them, for example: pm.export_c(folder, shapes={'x': [1, 16]})"
    )
    with pytest.raises(UnsupportedError, match="the shapes of input are open") as raised:
        ml.compile(ml.Linear(4), ml.CpuBackend()).export_c(tmp_path)
    assert raised.value.hint == "say them, for example: shapes={'input': [1, 16]}"
    assert pm.export_c(tmp_path, shapes={"x": [3, 16]})["inputs"][0]["shape"] == [3, 16]


def test_shapes_of_parameters_follow_from_those_of_data(tmp_path):
    pm = ml.compile(ml.Linear(4), ml.CpuBackend())
    found = pm.export_c(tmp_path, shapes={"input": [2, 3]})
    assert found["outputs"][0]["shape"] == [2, 4]


def test_python_functions_are_refused(tmp_path):
    class Own(ml.NumpyBackend):
        def relu(self, input):
            return input

    pm = ml.compile(ml.Relu(), Own(), shapes={"input": [2]})
    pm.export_c(tmp_path)  # C has its own relu

    def cube(input):
        return input**3

    ml.NumpyBackend.register_primitive(cube)
    model = ml.Model()
    anything = ml.IOKey(shape=[("Any", ...)], type=ml.Tensor[float])
    model |= ml.models.CustomPrimitiveModel("cube", input=anything, output=anything)(
        input="x", output="y"
    )
    pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": [2]})
    with pytest.raises(UnsupportedError, match="Python functions"):
        pm.export_c(tmp_path)


def test_clipped_gradients_are_refused(tmp_path):
    pm = trained("mlp", ml.optim.SGD(clip_norm=1.0))
    with pytest.raises(UnsupportedError, match="SGD clips gradients"):
        pm.export_c(tmp_path, training=True)


def test_an_export_replaces_an_older_one(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    compiled("mlp").export_c(tmp_path)
    first = (tmp_path / "model_weights.bin").read_bytes()
    pm = compiled("mlp")
    pm.export_c(tmp_path, params=pm.randomize_params(seed=5))
    assert (tmp_path / "model_weights.bin").read_bytes() != first
    assert (tmp_path / "mine.txt").read_text() == "mine"
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "mine.txt", "main.c", "Makefile", "CMakeLists.txt", "README.md", "model.json", "model.c",
        "model.h", "model_api.c", "model_api.h", "model_weights.bin",
    }  # fmt: skip


@pytest.mark.parametrize("training", [False, True])
def test_the_readme_tells_the_layout(training, tmp_path):
    pm = trained("cnn", ml.optim.Adam())
    found = pm.export_c(tmp_path, training=training)
    text = (tmp_path / "README.md").read_text()
    assert f"| arena, for each thread | {found['arena_bytes']} |" in text
    for one in (*found["inputs"], *found["outputs"]):
        assert f"| `{one['field']}` |" in text
    for one in found.get("state", []):
        assert f"| {one['offset']} | {one['kind']} |" in text
    assert json.loads((tmp_path / "model.json").read_text()) == found

# Covers: passes/multiply_halves.cc backends/device/library_products.cc
# Covers: backends/device/block_products.cc
"""Products that a layer of halves computes in float32, by cuBLASLt: their factors go in as halves.

Without a GPU the library is the emulator's (emulated_cuda.py), which refuses descriptions that the
real one has no product for. What is right is NumPy's float64 on the same rounded numbers.
"""

import mithril as ml
import numpy as np
import pytest
from backends.device_cases import injecting, needs_library
from backends.test_cublaslt import OTHERS, data_of, mlp, product
from backends.test_cuda_backend import in_process
from backends.test_cuda_graphs import launches_a_graph
from emulated_cuda import NO_CUDA
from formats.c_cases import drawn
from mithril import _core
from mithril.errors import DeviceNotAvailable

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(bool(NO_CUDA), reason=NO_CUDA),
    needs_library("product_library"),
    pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning"),
]
HALVES = ("float16", "bfloat16")
ROUNDING = {"float16": 2**-11, "bfloat16": 2**-8}  # of a number, by half a unit in its last place
every_half = pytest.mark.parametrize("dtype", HALVES)
OFF = {"passes": ["-multiply_halves"]}


@pytest.fixture
def inject():
    yield from injecting(_core.cuda_functions())


def products(pm, program="evaluate"):
    """(of halves, all) products of a program that are steps of the library."""
    steps = [s for s in pm.explain(program=program).steps if s.kernel == "cuda.cublaslt"]
    taken = [s for s in steps if {op for op, _ in s.members} & {"widening_matmul", "biased_matmul"}]
    return len(taken), len(steps)


def rounded(data, dtype):
    """Halves of the backend, and the same numbers in float64."""
    backend = ml.CudaBackend(dtype=dtype)
    halves = {key: backend.array(value) for key, value in data.items()}
    return halves, {key: np.asarray(value).astype("f8") for key, value in halves.items()}


def close(got, want, dtype, atol=1e-4):
    """Sums of hundreds of numbers near 1 in float32, rounded once where they are halves."""
    assert str(np.asarray(got).dtype) == dtype
    got = np.asarray(got).astype("f8")
    np.testing.assert_allclose(got, want, rtol=1.01 * ROUNDING.get(dtype, 1e-6), atol=atol)


def compiled(model, shapes, dtype, device=ml.CudaBackend, **options):
    return ml.compile(model, device(dtype=dtype), data_keys=set(shapes), shapes=shapes, **options)


# --- layers ---------------------------------------------------------------------------------------


def layer(x, width=6, behind=None, **options):
    model = ml.Model()
    model |= ml.Linear(width, **options)(
        input="x", weight="w", bias="b", output="h" if behind else "y"
    )
    if behind:
        model |= behind(input="h", output="y")
    model.expose_keys("y")
    return model, {"x": x}


def layer_data(x, width=6):
    return {"x": drawn(x), "w": drawn([width, x[-1]], 1), "b": drawn([width], 2)}


@every_half
@pytest.mark.parametrize("x", [[5, 40], [1, 40], [5, 1], [3, 5, 40], [2, 3, 5, 70]])
def test_a_layer_is_one_call_of_the_library(x, dtype, inject):
    """Which adds the bias in float32 and rounds once: no kernel is launched."""
    model, shapes = layer(x)
    pm = compiled(model, shapes, dtype)
    assert products(pm) == (1, 1)
    assert {step.kernel for step in pm.explain().steps} == {"view", "cuda.cublaslt"}
    halves, wide = rounded(layer_data(x), dtype)
    inject("cuLaunchKernel", 1, 201)
    got = pm.evaluate({"w": halves["w"], "b": halves["b"]}, {"x": halves["x"]})["y"]
    close(got, wide["x"] @ wide["w"].T + wide["b"], dtype)


@every_half
def test_what_comes_behind_the_bias_is_a_kernel_of_the_same_step(dtype, inject):
    model, shapes = layer([5, 40], behind=ml.Relu())
    pm = compiled(model, shapes, dtype)
    assert products(pm) == (1, 1)
    assert {step.kernel for step in pm.explain().steps} == {"view", "cuda.cublaslt"}
    halves, wide = rounded(layer_data([5, 40]), dtype)
    params, data = {"w": halves["w"], "b": halves["b"]}, {"x": halves["x"]}
    inject("cuLaunchKernel", 1, 201)
    with pytest.raises(DeviceNotAvailable, match="cuLaunchKernel"):
        pm.evaluate(params, data)
    got = pm.evaluate(params, data)["y"]
    close(got, np.maximum(wide["x"] @ wide["w"].T + wide["b"], 0), dtype)


def in_float32(x):
    return ml.Cast(ml.float32)(x)


BEHIND = {  # of the sums in float32, and of c, which is a half
    "a bias": (lambda y, c: y + c, [6], True),
    "a bias before": (lambda y, c: c + y, [6], True),
    "a bias of one": (lambda y, c: y + c, [1], False),
    "a column": (lambda y, c: y + c, [5, 1], False),
    "a difference": (lambda y, c: y - c, [6], False),
    "itself twice": (lambda y, c: y + y * c, [6], False),
    "a matrix": (lambda y, c: y + c, [5, 6], False),
    "a bias of batches": (lambda y, c: y + c, [3, 1, 6], False),
}


@every_half
@pytest.mark.parametrize("title", BEHIND)
def test_a_bias_is_added_and_rounded_by_the_library(title, dtype, inject):
    behind, shape, by_library = BEHIND[title]

    def stored(y, c):
        return ml.Cast(getattr(ml, dtype))(behind(y, in_float32(c)))

    model, shapes = product([3, 5, 40], [3, 40, 6], left=in_float32, right=in_float32,
                            behind=stored, c=shape)  # fmt: skip
    pm = compiled(model, shapes, dtype)
    assert products(pm) == (1, 1)
    halves, wide = rounded(data_of(shapes), dtype)
    inject("cuLaunchKernel", 1, 201)
    if not by_library:
        with pytest.raises(DeviceNotAvailable, match="cuLaunchKernel"):
            pm.evaluate({}, halves)
    got = pm.evaluate({}, halves)["y"]
    close(got, behind(wide["a"] @ wide["b"], wide["c"]), dtype)


@every_half
def test_sums_that_are_results_themselves_stay_float32(dtype):
    """Beside their rounded sum with a bias, with a bias in float32, and alone."""
    half = getattr(ml, dtype)
    a, b, c = (ml.IOKey(name) for name in "abc")
    sums = in_float32(a) @ in_float32(b)
    model = ml.Model.create(sums=sums, y=ml.Cast(half)(sums + in_float32(c)))
    shapes = {"a": [5, 40], "b": [40, 6], "c": [6]}
    halves, wide = rounded(data_of(shapes), dtype)
    got = compiled(model, shapes, dtype).evaluate({}, halves)
    close(got["sums"], wide["a"] @ wide["b"], "float32")
    close(got["y"], wide["a"] @ wide["b"] + wide["c"], dtype)
    a, b, d = (ml.IOKey(name) for name in "abd")
    model = ml.Model.create(y=in_float32(a) @ in_float32(b) + ml.Exponential()(in_float32(d)))
    shapes = {"a": [5, 40], "b": [40, 6], "d": [6]}
    pm = compiled(model, shapes, dtype)
    assert products(pm) == (1, 1)
    halves, wide = rounded(data_of(shapes), dtype)
    close(pm.evaluate({}, halves)["y"], wide["a"] @ wide["b"] + np.exp(wide["d"]), "float32")


# --- views ----------------------------------------------------------------------------------------


def same(x):
    return x


def heads(count):
    return lambda x: x.reshape((2, -1, count, 4)).transpose((0, 2, 1, 3))


def swapped(x):
    return x.transpose((0, 1, 3, 2))


def repeated(x):
    shape = (2, 3, 4, 7)
    return np.broadcast_to(x, shape) if isinstance(x, np.ndarray) else ml.BroadcastTo(shape)(x)


VIEWS = {  # shapes of both sides, and what stands between their casts and the product
    "rows": ([70, 300], [300, 65], same, same),
    "a vector": ([7, 33], [33], same, same),
    "left transposed": ([40, 9], [40, 6], lambda x: x.transpose(), same),
    "both transposed": ([40, 9], [6, 40], lambda x: x.transpose(), lambda x: x.transpose()),
    "batches": ([2, 3, 5, 17], [2, 3, 17, 4], same, same),
    "one right side for all": ([2, 3, 5, 17], [17, 4], same, same),
    "rows of a larger matrix": ([20, 24], [24, 30], lambda x: x[3:11], same),
    "part of both": ([20, 27], [40, 9], lambda x: x[1:7, 3:], lambda x: x[8:32]),
    "every other column": ([6, 16], [8, 3], lambda x: x[:, ::2], same),
    "heads": ([2, 6, 20], [2, 7, 20], heads(5), lambda x: swapped(heads(5)(x))),
    "heads that share": ([2, 3, 5, 4], [2, 1, 7, 4], same,
                         lambda x: repeated(swapped(x))),
}  # fmt: skip


@every_half
@pytest.mark.parametrize("title", VIEWS)
def test_views_between_cast_and_product(title, dtype, inject):
    """The library reads them where they lie, or a copy of the halves: no other kernel runs."""
    a, b, left, right = VIEWS[title]
    model, shapes = product(a, b, left=lambda x: left(in_float32(x)),
                            right=lambda x: right(in_float32(x)))  # fmt: skip
    pm = compiled(model, shapes, dtype)
    assert products(pm) == (1, 1)
    assert "loop" not in {step.kernel for step in pm.explain().steps}  # nothing is widened
    halves, wide = rounded(data_of(shapes), dtype)
    want = left(wide["a"]) @ right(wide["b"])
    kernels = {step.kernel for step in pm.explain().steps}
    assert kernels <= {"view", "copy", "cuda.cublaslt"}
    if title not in ("every other column", "heads", "heads that share"):
        inject("cuLaunchKernel", 1, 201)
    close(pm.evaluate({}, halves)["y"], want, "float32")


def test_infinities_nans_and_sums_beyond_the_range_of_halves():
    model, shapes = product([4, 2], [2, 1], left=in_float32, right=in_float32)
    pm = compiled(model, shapes, "float16")
    assert products(pm) == (1, 1)
    a = [[60000, 60000], [np.inf, 1], [np.nan, 0], [2**-24, -(2**-24)]]
    got = pm.evaluate({}, {"a": np.array(a, "f2"), "b": np.array([[60000], [2.0]], "f2")})["y"]
    want = np.float32(
        [
            [np.float64(np.float16(60000)) ** 2 + 2 * np.float64(np.float16(60000))],
            [np.inf],
            [np.nan],
            [2**-24 * np.float64(np.float16(60000)) - 2**-23],
        ]
    )
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


# --- what is left as it is ------------------------------------------------------------------------


def test_factors_of_different_types_are_multiplied_in_float32():
    """One half rounded to the other, and a half beside a float32."""
    others = (
        lambda b: in_float32(ml.Cast(ml.bfloat16)(b)),
        lambda b: ml.Exponential()(in_float32(b)),
    )
    for other in others:
        for is_left in (True, False):
            a, b = in_float32(ml.IOKey("a")), other(ml.IOKey("b"))
            y = a @ b if is_left else b.transpose() @ a.transpose()
            model = ml.Model.create(y=y)
            pm = compiled(model, {"a": [5, 40], "b": [40, 6]}, "float16")
            assert products(pm) == (0, 1)


@every_half
def test_casts_that_others_read_stay_for_them(dtype):
    a, b = ml.IOKey("a"), ml.IOKey("b")
    wide_a = in_float32(a)
    model = ml.Model.create(y=wide_a @ in_float32(b), z=ml.Exponential()(wide_a), w=wide_a)
    shapes = {"a": [5, 40], "b": [40, 6]}
    pm = compiled(model, shapes, dtype)
    assert products(pm) == (1, 1)
    halves, wide = rounded(data_of(shapes), dtype)
    got = pm.evaluate({}, halves)
    close(got["y"], wide["a"] @ wide["b"], "float32")
    close(got["z"], np.exp(wide["a"]), "float32")
    close(got["w"], wide["a"], "float32")


@every_half
@pytest.mark.parametrize("title", ["batches of both in turn", "no places"])
def test_products_that_the_library_does_not_take(title, dtype):
    shapes = OTHERS[title][1]
    model, _ = product(shapes["a"], shapes["b"], left=in_float32, right=in_float32)
    pm = compiled(model, shapes, dtype)
    assert products(pm) == (0, 0)
    halves, wide = rounded(data_of(shapes), dtype)
    close(pm.evaluate({}, halves)["y"], wide["a"] @ wide["b"], "float32")


@every_half
def test_plans_without_the_library_are_as_they_were(dtype):
    model, shapes = layer([5, 40], behind=ml.Gelu())
    for device, options in (
        (ml.CudaBackend, {"deterministic": "portable"}),
        (ml.CpuBackend, {}),
        (ml.NumpyBackend, {}),
    ):
        pm, before = (compiled(model, shapes, dtype, device, **options, **off) for off in ({}, OFF))
        assert str(pm.explain()) == str(before.explain())
        assert "_matmul" not in str(pm.explain())
    code = f"""
import mithril as ml
model = ml.Model()
model |= ml.Linear(6)(input="x", output="y")
for options in ({{}}, {OFF}):
    pm = ml.compile(model, ml.CudaBackend(dtype="{dtype}"), shapes={{"x": [5, 40]}}, **options)
    print([step.kernel for step in pm.explain().steps])
"""
    first, second = in_process(code, MITHRIL_CUBLASLT_LIB="0").splitlines()
    assert first == second and "cuda.matmul" in first


@every_half
def test_portable_results_are_those_of_the_engine(dtype):
    model, shapes = layer([5, 300])
    halves, _ = rounded(layer_data([5, 300]), dtype)
    got, want = (
        compiled(model, shapes, dtype, device, deterministic="portable").evaluate(
            {"w": halves["w"], "b": halves["b"]}, {"x": halves["x"]}
        )["y"]
        for device in (ml.CudaBackend, ml.CpuBackend)
    )
    np.testing.assert_array_equal(np.asarray(got).astype("f4"), np.asarray(want).astype("f4"))


@every_half
@pytest.mark.parametrize("behind", [None, ml.Gelu])
def test_without_an_algorithm_kernels_multiply_halves(dtype, behind, inject):
    """In the engine's order of sums: they have its bits."""
    model, shapes = layer([7, 300], width=5, behind=None if behind is None else behind())
    halves, _ = rounded(layer_data([7, 300], width=5), dtype)
    params, data = {"w": halves["w"], "b": halves["b"]}, {"x": halves["x"]}
    want = compiled(model, shapes, dtype, ml.CpuBackend).evaluate(params, data)["y"]
    pm = compiled(model, shapes, dtype)
    inject("cublasLtMatmulAlgoGetHeuristic", 1, 15)
    got = np.asarray(pm.evaluate(params, data)["y"])
    np.testing.assert_array_equal(got.astype("f4"), np.asarray(want).astype("f4"))


# --- constants and bodies -------------------------------------------------------------------------


@every_half
def test_constant_weights_are_read_as_they_lie(dtype):
    model, shapes = layer([5, 40])
    halves, wide = rounded(layer_data([5, 40]), dtype)
    constants = {"w": halves["w"], "b": halves["b"]}
    pm = ml.compile(model, ml.CudaBackend(dtype=dtype), shapes=shapes, data_keys={"x"},
                    constant_keys=constants)  # fmt: skip
    assert products(pm) == (1, 1)
    close(pm.evaluate({}, {"x": halves["x"]})["y"], wide["x"] @ wide["w"].T + wide["b"], dtype)
    assert pm.memory_plan()["evaluate"].constants == 2 * (6 * 40 + 6)


@every_half
def test_products_of_constants_are_computed_once(dtype):
    model, shapes = product([40, 30], [30, 6], left=in_float32, right=in_float32, c=[5, 40],
                            behind=lambda y, c: in_float32(c) @ y)  # fmt: skip
    halves, wide = rounded(data_of(shapes), dtype)
    data = {"c": halves.pop("c")}
    pm = ml.compile(model, ml.CudaBackend(dtype=dtype), shapes=shapes, data_keys={"c"},
                    constant_keys=halves)  # fmt: skip
    assert products(pm) == (0, 1)
    want = wide["c"] @ (wide["a"] @ wide["b"])
    close(pm.evaluate({}, data)["y"], want, "float32", atol=1e-4)


@every_half
def test_bodies_of_loops(dtype):
    step = ml.Model()
    step |= ml.Linear(8)(input="h", weight="w", bias="b", output="z")
    step |= ml.Tanh()(input="z", output="next")
    step.expose_keys("next")
    model = ml.Model()
    model |= ml.Scan(step, carry={"h": "next"}, length=3)(h="x", w="w", b="b", next="y")
    model.expose_keys("y")
    pm = compiled(model, {"x": [5, 8]}, dtype)
    assert "biased_matmul" in str(pm.explain())
    halves, wide = rounded(layer_data([5, 8], width=8), dtype)
    got = pm.evaluate({"w": halves["w"], "b": halves["b"]}, {"x": halves["x"]})["y"]
    want = wide["x"]
    for _ in range(3):
        want = np.tanh(want @ wide["w"].T + wide["b"])
    np.testing.assert_allclose(np.asarray(got).astype("f8"), want, atol=8 * ROUNDING[dtype])


# --- gradients and training -----------------------------------------------------------------------


@every_half
@pytest.mark.parametrize("x", [[5, 40], [3, 5, 40]])
def test_gradients_of_a_layer(x, dtype):
    """Each is a product of the cotangent, a half, with a half, rounded once: as without a bias."""
    model, shapes = layer(x)
    pm = ml.compile(model, ml.CudaBackend(dtype=dtype), data_keys=set(), shapes=shapes,
                    trainable_keys={"x"})  # fmt: skip
    assert products(pm, "gradient") == (1, 3)
    data = layer_data(x) | {"dy": drawn([*x[:-1], 6], 3)}
    halves, wide = rounded(data, dtype)
    dy = halves.pop("dy")
    _, gradients = pm.evaluate(halves, {}, output_gradients={"y": dy})
    rows, dys = wide["x"].reshape(-1, x[-1]), wide["dy"].reshape(-1, 6)
    close(gradients["w"], dys.T @ rows, dtype)
    close(gradients["x"], wide["dy"] @ wide["w"], dtype)
    close(gradients["b"], dys.sum(0), dtype)


def trained(model):
    out = ml.TrainModel(model)
    out.add_loss(ml.SquaredError(), input="y", target="t")
    return out


MIXED = [{"dtype": "float16"}, {"dtype": "bfloat16"}, {"compute_precision": "bfloat16"},
         {"compute_precision": "float16"}]  # fmt: skip


@pytest.mark.parametrize("options", MIXED, ids=str)
def test_steps_of_training(options):
    shapes, target = {"x": [10, 16]}, drawn([10, 3], 5)
    optimizer = ml.optim.Adam(lr=1e-2)
    runs = []
    for device in (ml.CpuBackend, ml.CudaBackend):
        pm = ml.compile(trained(mlp()), device(**options), optimizer=optimizer,
                        data_keys={"x", "t"}, shapes=shapes | {"t": [10, 3]})  # fmt: skip
        params = runs[0][0] if runs else pm.get_parameters()
        moving, state = dict(params), optimizer.init(params)
        data = {
            "x": drawn([10, 16]).astype(options.get("dtype", "f4"))
            if options.get("dtype") != "bfloat16"
            else device(**options).array(drawn([10, 16])),
            "t": device(**options).array(target),
        }
        costs = []
        for _ in range(4):
            moving, state, _, out = pm.step(moving, state, data)
            costs.append(np.mean([np.asarray(x).astype("f4").mean() for x in out.values()]))
        runs.append((params, moving, costs))
    assert products(pm, "step") == (
        2,
        5,
    )  # two layers; three gradients are products of halves themselves
    (_, want, costs), (_, got, other) = runs
    np.testing.assert_allclose(other, costs, rtol=0.05)
    for key in want:
        wide = np.asarray(want[key]).astype("f8")
        np.testing.assert_allclose(np.asarray(got[key]).astype("f8"), wide, atol=0.02)


@pytest.mark.parametrize("options", MIXED, ids=str)
def test_plans_take_no_more_memory(options):
    for make, shapes in ((mlp, {"x": [256, 16]}), (lambda: layer([64, 32])[0], {"x": [64, 32]})):
        plans = [
            ml.compile(trained(make()), ml.CudaBackend(**options), optimizer=ml.optim.Adam(lr=0.1),
                       data_keys={"x", "t"}, shapes=shapes | {"t": [shapes["x"][0], width]},
                       **off).memory_plan()
            for off in ({}, OFF) for width in [3 if make is mlp else 6]
        ]  # fmt: skip
        for way in ("evaluate", "gradient", "step"):
            after, before = (plan[way].peak for plan in plans)
            assert after <= before, way


def test_products_of_halves_are_part_of_a_graph():
    backend = ml.CudaBackend(dtype="float16")
    model, shapes = layer([5, 40], behind=ml.Gelu())
    pm = ml.compile(model, backend, data_keys={"x"}, shapes=shapes)
    halves, wide = rounded(layer_data([5, 40]), "float16")
    held = backend.to_device(halves)
    params, data = {"w": held["w"], "b": held["b"]}, {"x": held["x"]}
    want = compiled(model, shapes, "float16", ml.CpuBackend).evaluate(
        {"w": halves["w"], "b": halves["b"]}, {"x": halves["x"]}
    )["y"]
    assert launches_a_graph(backend, lambda: pm.evaluate(params, data))
    for _ in range(5):
        got = np.asarray(pm.evaluate(params, data)["y"]).astype("f4")
        np.testing.assert_allclose(got, np.asarray(want).astype("f4"), rtol=2e-3, atol=1e-3)


# --- attention ------------------------------------------------------------------------------------


@every_half
@pytest.mark.parametrize("key_heads", [4, 2])
def test_scores_of_wide_heads(dtype, key_heads):
    """Of heads that the kernel does not take: scores are products of halves, what they weigh is
    not, as the weights are float32."""
    model = ml.Model()
    model |= ml.Attention(enable_gqa=True)(query="q", key="k", value="v", output="y")
    model.expose_keys("y")
    shapes = {"q": [2, 4, 5, 320], "k": [2, key_heads, 7, 320], "v": [2, key_heads, 7, 320]}
    pm = compiled(model, shapes, dtype)
    assert products(pm)[0] == 1
    halves, wide = rounded({key: drawn(shape, i) / 4 for i, (key, shape)
                            in enumerate(shapes.items())}, dtype)  # fmt: skip
    k, v = (np.repeat(wide[key], 4 // key_heads, axis=1) for key in "kv")
    scores = wide["q"] @ k.swapaxes(2, 3) / np.sqrt(320)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    close(pm.evaluate({}, halves)["y"], weights @ v, dtype)

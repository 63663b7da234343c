# Covers: backends/cuda/cublaslt.cc backends/device/library_products.cc
"""Products of matrices by cuBLASLt: every layout that it takes, and typed errors where it fails.

Without a GPU the library is the emulator's (emulated_cuda.py), a test double whose sums have
another order than those of mithril's kernels.
"""

import mithril as ml
import numpy as np
import pytest
from backends.device_cases import injecting, live_objects, needs_library
from backends.test_cuda_backend import in_process
from backends.test_cuda_graphs import launches_a_graph
from emulated_cuda import NO_CUDA, is_used
from formats.c_cases import drawn
from mithril import _core
from mithril.errors import ArgumentError, DeviceNotAvailable, OutOfMemoryError

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(bool(NO_CUDA), reason=NO_CUDA),
    needs_library("product_library"),
    pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning"),
]


@pytest.fixture
def inject():
    yield from injecting(_core.cuda_functions())


def by_library(pm):
    """Tells whether a step of the plan is the library's."""
    return any(step.kernel == "cuda.cublaslt" for step in pm.explain().steps)


def product(a, b, **ops):
    """The product of two inputs of these shapes; `ops` make its operands, and run on its result."""
    left, right = ml.IOKey("a"), ml.IOKey("b")
    y = ops.get("left", lambda x: x)(left) @ ops.get("right", lambda x: x)(right)
    y = ops.get("behind", lambda y, c: y)(y, ml.IOKey("c"))
    model = ml.Model.create(y=y)
    shapes = {"a": a, "b": b} | ({"c": ops["c"]} if "c" in ops else {})
    return model, shapes


def compiled(model, shapes, dtype="float32", backend=None, **options):
    backend = ml.CudaBackend(dtype=dtype) if backend is None else backend
    return ml.compile(model, backend, data_keys=set(shapes), shapes=shapes, **options)


def data_of(shapes, dtype="float32"):
    return {key: drawn(shape, i).astype(dtype) for i, (key, shape) in enumerate(shapes.items())}


def transposed(x):
    return x.transpose()


LAYOUTS = {
    "rows": product([70, 300], [300, 65]),
    "one row": product([1, 33], [33, 5]),
    "one column": product([7, 33], [33, 1]),
    "a vector to the right": product([7, 33], [33]),
    "a vector to the left": product([33], [33, 7]),
    "vectors of batches": product([3, 7, 33], [33]),
    "one place": product([7, 1], [1, 4]),
    "one element": product([1, 1], [1, 1]),
    "left transposed": product([40, 9], [40, 6], left=transposed),
    "right transposed": product([9, 40], [6, 40], right=transposed),
    "both transposed": product([40, 9], [6, 40], left=transposed, right=transposed),
    "batches": product([3, 5, 17], [3, 17, 4]),
    "two axes of batches": product([2, 3, 5, 17], [2, 3, 17, 4]),
    "one right side for all": product([2, 3, 5, 17], [17, 4]),
    "one left side for all": product([5, 17], [6, 17, 4]),
    "rows of a larger matrix": product([20, 24], [24, 30], left=lambda x: x[3:11]),
    "columns of a larger matrix": product([20, 27], [16, 30], left=lambda x: x[:, 5:21]),
    "part of both": product([20, 27], [40, 9], left=lambda x: x[1:7, 3:], right=lambda x: x[8:32]),
}
OTHERS = {  # that the library does not take
    "every other column": product([6, 16], [8, 3], left=lambda x: x[:, ::2]),
    "batches of both in turn": product([2, 1, 5, 7], [1, 3, 7, 4]),
    "no places": product([4, 0], [0, 5]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("title", [*LAYOUTS, *OTHERS])
def test_layouts(title, dtype):
    model, shapes = (LAYOUTS | OTHERS)[title]
    pm = compiled(model, shapes, dtype)
    data = data_of(shapes, dtype)
    assert by_library(pm) == (title in LAYOUTS)
    wide = ml.compile(
        model, ml.NumpyBackend(dtype="float64"), data_keys=set(shapes), shapes=shapes
    ).evaluate({}, {key: value.astype("float64") for key, value in data.items()})
    tolerance = 2e-6 if dtype == "float32" else 1e-14
    got = np.asarray(pm.evaluate({}, data)["y"])
    assert got.dtype == dtype
    np.testing.assert_allclose(got, wide["y"], rtol=tolerance, atol=20 * tolerance)


BEHIND = {
    "a bias": (lambda y, c: y + c, [6]),
    "a bias before": (lambda y, c: c + y, [6]),
    "a bias of one": (lambda y, c: y + c, [1]),
    "a column": (lambda y, c: y + c, [5, 1]),
    "a difference": (lambda y, c: y - c, [6]),
    "itself twice": (lambda y, c: y + y * c, [6]),
    "a matrix": (lambda y, c: y + c, [5, 6]),
    "a matrix before": (lambda y, c: c + y, [5, 6]),
    "a difference of matrices": (lambda y, c: y - c, [5, 6]),
    "a matrix twice": (lambda y, c: y + c + c, [5, 6]),
    "a sum twice": (lambda y, c: (y + c) + (y + c), [5, 6]),
    "a matrix and relu": (lambda y, c: ml.Relu()(y + c), [5, 6]),
    "bias and relu": (lambda y, c: ml.Relu()(y + c), [6]),
    "bias and gelu": (lambda y, c: ml.Gelu()(y + c), [6]),
    "bias of batches": (lambda y, c: y + c, [3, 1, 6]),
}


@pytest.mark.parametrize(
    ("title", "batches"),
    [(title, batches) for title, (_, shape) in BEHIND.items() for batches in ([], [3])
     if batches or len(shape) < 3],
)  # fmt: skip
def test_what_comes_behind(title, batches):
    behind, shape = BEHIND[title]
    model, shapes = product([*batches, 5, 40], [*batches, 40, 6], behind=behind, c=shape)
    pm, data = compiled(model, shapes), data_of(shapes)
    assert by_library(pm)
    want = compiled(model, shapes, backend=ml.CpuBackend()).evaluate({}, data)["y"]
    got = np.asarray(pm.evaluate({}, data)["y"])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


SUMS = {"a bias", "a bias before", "a matrix", "a matrix before"}


@pytest.mark.parametrize("title", BEHIND)
@pytest.mark.parametrize("batches", [[], [3]])
def test_sums_are_the_librarys(title, batches, inject):
    """No kernel is launched where all that follows is a bias, or a matrix of the result's shape."""
    behind, shape = BEHIND[title]
    model, shapes = product([*batches, 5, 40], [*batches, 40, 6], behind=behind, c=shape)
    pm = compiled(model, shapes)
    inject("cuLaunchKernel", 1, 201)
    if title in SUMS and (batches == [] or len(shape) == 1):
        pm.evaluate({}, data_of(shapes))
    else:
        with pytest.raises(DeviceNotAvailable, match="cuLaunchKernel"):
            pm.evaluate({}, data_of(shapes))


def whole_sum(terms, a, b, dtype, more=None):
    """A product and what is added to it, by name in `terms`, in this order."""
    keys = {"y": lambda: ml.IOKey("a") @ ml.IOKey("b")}
    out = None
    for name in terms:
        term = keys.get(name, lambda name=name: ml.IOKey(name))()
        out = term if out is None else out + term
    rows = [*a[:-1], b[-1]]
    shapes = {"a": a, "b": b} | {name: more.get(name, rows) if more else rows
                                 for name in terms if name != "y"}  # fmt: skip
    return ml.Model.create(y=out), shapes


SUMS_OF_THREE = {
    "a matrix": (["y", "c"], {}),
    "a bias, then a matrix": (["y", "c", "d"], {"c": [6]}),
    "a matrix, then a bias": (["y", "c", "d"], {"d": [6]}),
    "a matrix before, a bias behind": (["c", "y", "d"], {"d": [6]}),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("a, b", [([5, 40], [40, 6]), ([3, 5, 40], [3, 40, 6]),
                                  ([2, 3, 5, 40], [40, 6]), ([1, 40], [40, 6])])  # fmt: skip
@pytest.mark.parametrize("title", SUMS_OF_THREE)
def test_residuals_are_the_librarys(title, a, b, dtype, inject):
    """What a layer adds to its input, behind a bias or not: one call, which launches nothing."""
    terms, more = SUMS_OF_THREE[title]
    model, shapes = whole_sum(terms, a, b, dtype, more)
    pm, data = compiled(model, shapes, dtype), data_of(shapes, dtype)
    assert [step.kernel for step in pm.explain().steps if step.kernel != "view"] == [
        "cuda.cublaslt"
    ]
    wide = {key: value.astype("f8") for key, value in data.items()}
    want = sum(wide["a"] @ wide["b"] if term == "y" else wide[term] for term in terms)
    inject("cuLaunchKernel", 1, 201)
    got = np.asarray(pm.evaluate({}, data)["y"])
    assert got.dtype == dtype
    tolerance = 2e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=20 * tolerance)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_added_need_not_be_finite(bad):
    model, shapes = whole_sum(["y", "c"], [5, 40], [40, 6], "float32")
    data = data_of(shapes)
    data["c"][2, 3] = bad
    got = np.asarray(compiled(model, shapes).evaluate({}, data)["y"])
    want = data["a"].astype("f8") @ data["b"].astype("f8") + data["c"]
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=4e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_rounded_before_a_matrix_is_added(dtype):
    """As everywhere: a layer's result is a half, and so is its sum with another one."""
    model, shapes = whole_sum(["y", "c"], [5, 40], [40, 6], dtype)
    backends = ml.CudaBackend(dtype=dtype), ml.CpuBackend(dtype=dtype)
    data = {key: backends[0].array(value) for key, value in data_of(shapes).items()}
    one, two = (np.asarray(compiled(model, shapes, backend=backend).evaluate({}, data)["y"])
                for backend in backends)  # fmt: skip
    step = 2.0**-11 if dtype == "float16" else 2.0**-8
    one, two = one.astype("f8"), two.astype("f8")
    np.testing.assert_allclose(one, two, rtol=2 * step, atol=2 * step)
    assert (one == two).mean() > 0.9


def test_a_matrix_that_lies_otherwise_is_a_kernels(inject):
    """Turned, or repeated along the batches."""
    turned = product([5, 40], [40, 6], behind=lambda y, c: y + c.transpose(), c=[6, 5])
    repeated = product([3, 5, 40], [3, 40, 6], behind=lambda y, c: y + c, c=[5, 6])
    for model, shapes in (turned, repeated):
        pm, data = compiled(model, shapes), data_of(shapes)
        want = compiled(model, shapes, backend=ml.CpuBackend()).evaluate({}, data)["y"]
        inject("cuLaunchKernel", 1, 201)
        with pytest.raises(DeviceNotAvailable, match="cuLaunchKernel"):
            pm.evaluate({}, data)
        got = np.asarray(pm.evaluate({}, data)["y"])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_gradients_of_what_two_layers_read_are_summed_by_the_library(inject):
    """The second product adds the first one's gradient."""
    model = ml.Model()
    for name in "uv":
        model |= ml.Linear(6, use_bias=False)(input="x", weight=name, output=f"y{name}")
    model |= ml.Add()(left="yu", right="yv", output="y")
    model.expose_keys("yu", "yv", "y")
    shapes = {"x": [9, 40], "u": [6, 40], "v": [6, 40]}
    pm = ml.compile(model, ml.CudaBackend(), data_keys=set(), shapes=shapes, trainable_keys={"x"})
    params = data_of(shapes)
    cotangents = {"yu": drawn([9, 6], 5), "yv": drawn([9, 6], 6)}
    cotangents = {key: value.astype("f4") for key, value in cotangents.items()}
    sums = [step for step in pm.explain(program="gradient").steps
            if step.kernel == "cuda.cublaslt" and len(step.members) > 1]  # fmt: skip
    assert sums
    got = pm.evaluate(params, {}, output_gradients=cotangents).gradients["x"]
    wide = {key: value.astype("f8") for key, value in (params | cotangents).items()}
    want = wide["yu"] @ wide["u"] + wide["yv"] @ wide["v"]
    np.testing.assert_allclose(np.asarray(got), want, rtol=2e-6, atol=4e-5)


@pytest.mark.parametrize("a", [[5, 40], [3, 5, 40], [1, 40], [5, 1]])
def test_what_comes_behind_a_vector(a):
    """The last axis of the result is no row of the product's there."""
    for shape in ([a[-2]], [1]):
        model, shapes = product(a, [a[-1]], behind=lambda y, c: y + c, c=shape)
        data = data_of(shapes)
        want = (data["a"] @ data["b"]) + data["c"]
        got = np.asarray(compiled(model, shapes).evaluate({}, data)["y"])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def mlp():
    model = ml.Model()
    model |= ml.Linear(24)(input="x", output="h")
    model |= ml.Gelu()(input="h", output="g")
    model |= ml.Linear(3)(input="g", output="y")
    model.expose_keys("y")
    return model


def test_gradients_and_steps_of_training():
    model = mlp()
    shapes = {"x": [10, 16]}
    runs = []
    for backend in (ml.CpuBackend(), ml.CudaBackend()):
        pm = ml.compile(model, backend, data_keys={"x"}, shapes=shapes)
        params = pm.get_parameters() if not runs else runs[0][0]
        runs.append(
            (
                params,
                pm.evaluate(
                    params, data_of(shapes), output_gradients={"y": np.ones((10, 3), "f4")}
                ),
            )
        )
    assert by_library(pm)
    (params, (values, gradients)), (_, (got_values, got_gradients)) = runs
    np.testing.assert_allclose(np.asarray(got_values["y"]), values["y"], rtol=1e-5, atol=1e-5)
    for key in params:
        want = gradients[key]
        np.testing.assert_allclose(np.asarray(got_gradients[key]), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("title", ["rows", "both transposed", "one right side for all"])
def test_halves_are_added_in_float32_and_rounded_once(title, dtype, inject):
    """As they are: no kernel makes float32 of them, or halves of the result."""
    model, shapes = LAYOUTS[title]
    backend = ml.CudaBackend(dtype=dtype)
    pm = compiled(model, shapes, backend=backend)
    assert by_library(pm)
    data = {key: backend.array(value) for key, value in data_of(shapes).items()}
    wide = {key: np.asarray(value).astype("float64") for key, value in data.items()}
    want = compiled(model, shapes, backend=ml.NumpyBackend(dtype="float64")).evaluate({}, wide)["y"]
    inject("cuLaunchKernel", 1, 201)
    got = np.asarray(pm.evaluate({}, data)["y"])
    assert str(got.dtype) == dtype
    rounding = 2**-8 if dtype == "bfloat16" else 2**-11
    np.testing.assert_allclose(got.astype("float64"), want, rtol=1.01 * rounding, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_with_what_comes_behind(dtype):
    model, shapes = product([5, 40], [40, 6], behind=lambda y, c: ml.Gelu()(y + c), c=[6])
    backends = ml.CudaBackend(dtype=dtype), ml.CpuBackend(dtype=dtype)
    data = {key: backends[0].array(value) for key, value in data_of(shapes).items()}
    got, want = (
        np.asarray(compiled(model, shapes, backend=one).evaluate({}, data)["y"]).astype("float64")
        for one in backends
    )
    np.testing.assert_allclose(got, want, rtol=2**-7 if dtype == "bfloat16" else 2**-9, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_in_the_engines_bits(dtype):
    """They are widened where kernels do the product: asked for, or where batches are not taken."""
    portable = {"deterministic": "portable"}
    for title, options in (("rows", portable), ("batches of both in turn", {}), ("no places", {})):
        model, shapes = (LAYOUTS | OTHERS)[title]
        backends = ml.CudaBackend(dtype=dtype), ml.CpuBackend(dtype=dtype)
        data = {key: backends[0].array(value) for key, value in data_of(shapes).items()}
        on_device, on_engine = (compiled(model, shapes, backend=one, **options) for one in backends)
        assert not by_library(on_device)
        got, want = (np.asarray(pm.evaluate({}, data)["y"]) for pm in (on_device, on_engine))
        np.testing.assert_array_equal(got.astype("f4"), want.astype("f4"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_that_do_not_lie_side_by_side_are_copied(dtype):
    model, shapes = OTHERS["every other column"]
    backend = ml.CudaBackend(dtype=dtype)
    pm = compiled(model, shapes, backend=backend)
    assert by_library(pm)
    data = {key: backend.array(value) for key, value in data_of(shapes).items()}
    wide = {key: np.asarray(value).astype("f8") for key, value in data.items()}
    got = np.asarray(pm.evaluate({}, data)["y"]).astype("f8")
    rounding = 2**-8 if dtype == "bfloat16" else 2**-11
    np.testing.assert_allclose(got, wide["a"][:, ::2] @ wide["b"], rtol=1.01 * rounding, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("behind", [None, lambda y, c: ml.Gelu()(y + c)])
def test_halves_for_which_there_is_no_algorithm(behind, dtype, inject):
    """The backend's kernels multiply them, in the engine's order: they have its bits."""
    more = {} if behind is None else {"behind": behind, "c": [65]}
    model, shapes = product([70, 300], [300, 65], **more)
    backends = ml.CudaBackend(dtype=dtype), ml.CpuBackend(dtype=dtype)
    data = {key: backends[0].array(value) for key, value in data_of(shapes).items()}
    on_device, on_engine = (compiled(model, shapes, backend=one) for one in backends)
    assert by_library(on_device)
    inject("cublasLtMatmulAlgoGetHeuristic", 1, 15)
    got, want = (np.asarray(pm.evaluate({}, data)["y"]) for pm in (on_device, on_engine))
    np.testing.assert_array_equal(got.astype("f4"), want.astype("f4"))


def test_portable_results_are_those_of_the_engine():
    model, shapes = LAYOUTS["rows"]
    pm, data = compiled(model, shapes, deterministic="portable"), data_of(shapes)
    want = compiled(model, shapes, backend=ml.CpuBackend()).evaluate({}, data)["y"]
    assert not by_library(pm)
    np.testing.assert_array_equal(np.asarray(pm.evaluate({}, data)["y"]), want)
    other = np.asarray(compiled(model, shapes).evaluate({}, data)["y"])
    assert not is_used() or (other != want).any()  # the emulator's sums have another order


def test_tf32():
    model, shapes = LAYOUTS["rows"]
    data = data_of(shapes)
    exact = data["a"].astype("float64") @ data["b"].astype("float64")
    errors = {}
    for precision in ("float32", "tf32"):
        backend = ml.CudaBackend(precision=precision)
        got = np.asarray(compiled(model, shapes, backend=backend).evaluate({}, data)["y"])
        errors[precision] = np.abs(got - exact).max()
    assert errors["tf32"] > 20 * errors["float32"]
    assert errors["tf32"] < 300 * 2**-10
    assert "precision='tf32'" in repr(ml.CudaBackend(precision="tf32"))
    assert "precision" not in repr(ml.CudaBackend())


def test_tf32_is_refused_where_it_has_no_effect():
    with pytest.raises(ArgumentError, match="precision requires one of 'float32', 'tf32', got 'x'"):
        ml.CudaBackend(precision="x")
    with pytest.raises(ArgumentError, match="precision requires one of"):
        ml.CudaBackend(precision=np.zeros(2))
    with pytest.raises(ArgumentError, match="precision='tf32' is of float32, got dtype='float64'"):
        ml.CudaBackend(precision="tf32", dtype="float64")
    code = """
import mithril as ml
print(ml.CudaBackend().product_library)
try:
    ml.CudaBackend(precision="tf32")
except ml.errors.UnsupportedError as error:
    print("told:", error, error.hint)
model = ml.Model.create(y=ml.IOKey("a") @ ml.IOKey("b"))
pm = ml.compile(model, ml.CudaBackend(), shapes={"a": [1, 2], "b": [2, 1]}, data_keys={"a", "b"})
print(pm.evaluate({}, {"a": [[1.0, 2.0]], "b": [[3.0], [4.0]]})["y"].tolist())
"""
    for library in ("0", "/nowhere/libcublasLt.so", "libm.so.6"):
        said = in_process(code, MITHRIL_CUBLASLT_LIB=library)
        assert said.startswith("None\n"), said
        assert "told: CudaBackend: precision='tf32' requires cuBLASLt; CUDA: no cuBLASLt: " in said
        assert "pip install nvidia-cublas" in said
        assert said.endswith("[[11.0]]\n"), said


def test_it_names_its_library():
    assert (ml.CudaBackend().product_library or "").startswith("cuBLASLt ")


def test_products_are_part_of_a_graph():
    model, shapes = product([5, 40], [40, 6], behind=lambda y, c: ml.Gelu()(y + c), c=[6])
    backend = ml.CudaBackend()
    pm = compiled(model, shapes, backend=backend)
    held = backend.to_device(data_of(shapes))
    want = compiled(model, shapes, backend=ml.CpuBackend()).evaluate({}, data_of(shapes))["y"]
    assert launches_a_graph(backend, lambda: pm.evaluate({}, held))
    for _ in range(5):
        got = np.asarray(pm.evaluate({}, held)["y"])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


CALLS = [
    "cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutSetAttribute", "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul",
]  # fmt: skip


@pytest.mark.parametrize("status", [7, 15])
def test_a_residual_for_which_there_is_no_algorithm(status, inject):
    """Kernels do it in the engine's order of sums: they have its bits."""
    model, shapes = whole_sum(["y", "c", "d"], [9, 300], [300, 6], "float32", {"c": [6]})
    pm, data = compiled(model, shapes), data_of(shapes)
    want = compiled(model, shapes, backend=ml.CpuBackend()).evaluate({}, data)["y"]
    inject("cublasLtMatmulAlgoGetHeuristic", 1, status)
    np.testing.assert_array_equal(np.asarray(pm.evaluate({}, data)["y"]), want)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("status", [7, 15])
def test_products_that_the_library_cannot_do_are_the_backends(status, nth, inject):
    model = ml.Model()
    model |= ml.Linear(6)(input="x", output="h")
    model |= ml.Gelu()(input="h", output="g")
    model |= ml.Linear(3)(input="g", output="y")
    shapes = {"x": [9, 70]}
    pm = compiled(model, shapes)
    params, data = pm.get_parameters(), data_of(shapes)
    want = compiled(model, shapes, backend=ml.CpuBackend()).evaluate(params, data)["y"]
    inject("cublasLtMatmulAlgoGetHeuristic", nth, status)
    got = np.asarray(pm.evaluate(params, data)["y"])
    assert (np.abs(got - want) <= 1e-6).all()


TWICE = [symbol for symbol in CALLS if symbol != "cublasLtMatmulDescCreate"]  # by a product


@pytest.mark.parametrize(
    ("symbol", "nth"), [*((symbol, 1) for symbol in CALLS), *((symbol, 2) for symbol in TWICE)]
)
def test_each_call_that_fails(symbol, nth, inject):
    """A typed error that names it, nothing leaks, and the next call works."""
    model, shapes = product([3, 5, 70], [3, 6, 70], right=lambda x: x.transpose((0, 2, 1)),
                            behind=lambda y, c: y + c, c=[6])  # fmt: skip
    data = data_of(shapes)
    want = compiled(model, shapes, backend=ml.CpuBackend()).evaluate({}, data)["y"]
    compiled(model, shapes).evaluate({}, data)  # the device and its workspace stay
    before = live_objects()
    statuses = {3: (OutOfMemoryError, "CUBLAS_STATUS_ALLOC_FAILED"),
                14: (DeviceNotAvailable, "CUBLAS_STATUS_INTERNAL_ERROR")}  # fmt: skip
    for status, (kind, name) in statuses.items():
        pm = compiled(model, shapes)
        inject(symbol, nth, status)
        with pytest.raises(kind, match=f"{symbol} failed with {name}"):
            for _ in range(2):
                pm.evaluate({}, data)
        got = np.asarray(pm.evaluate({}, data)["y"])
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        del pm
    assert live_objects() <= before + 1  # the arena may be new


def test_a_library_that_does_not_start_is_none(inject):
    """Kernels of the backend do the products then."""
    code = """
import mithril as ml
from mithril import _core
_core.device_inject_failure("cublasLtCreate", 1, 1)
backend = ml.CudaBackend()
print(backend.product_library)
print(ml.compile(ml.Relu(), backend, shapes={"input": [1]}).evaluate({}, {"input": [3.0]}))
try:
    ml.CudaBackend(precision="tf32")
except ml.errors.UnsupportedError as error:
    print("told:", error)
"""
    said = in_process(code)
    assert said.startswith("None\n") and "3." in said
    assert "CUDA: cublasLtCreate failed with CUBLAS_STATUS_NOT_INITIALIZED" in said

# Covers: runtime/executable.cc passes/bind_sizes.cc
"""What data alone tell to be wrong: one class and one message on every backend that looks.

JAX and MLX cannot raise in compiled programs: an index out of bounds is the nearest one there, and
matrices without a result give what is not finite. JAX that runs line by line looks at indices.
"""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, DataIndexError, DTypeError, ShapeError

BACKENDS = ("numpy", "cpu", "torch")
x = np.random.default_rng(0).standard_normal
open_indexer = {"index": ml.TBD}


def backend_param(name):
    return pytest.param(name, marks=[] if name in ("numpy", "cpu") else pytest.mark.frameworks)


def result(model, data, name, is_open, ready):
    """The model's first output; `ready`: from arrays that need no conversion."""
    backend = ml.get_backend(name)
    shapes = {k: [None] * v.ndim if is_open else v.shape for k, v in data.items()}
    pm = ml.compile(model, backend, data_keys=set(data), shapes=shapes, inference=True)
    if ready:
        data = {key: backend.array(value) for key, value in data.items()}
    return backend.to_numpy(next(iter(pm.evaluate({}, data).values())))


def bad_index(index, size):
    return DataIndexError, f"index {index} is out of bounds for an axis of size {size}"


def table(rows):
    return ml.Tensor(np.ones((rows, 3)).tolist())


# model, data, what is raised
CASES = {
    "embedding": (
        *(lambda: ml.Embedding(4, 3, weight=table(4)), {"input": np.array([1, 7])}),
        bad_index(7, 4),
    ),
    "embedding, from the end": (
        *(lambda: ml.Embedding(4, 3, weight=table(4)), {"input": np.array([1, -5])}),
        bad_index(-5, 4),
    ),
    "bag": (
        *(lambda: ml.EmbeddingBag(4, 3, weight=table(4)), {"input": np.array([[1, 7]])}),
        bad_index(7, 4),
    ),
    "permutation": (
        *(ml.PermuteTensor, {"input": x((3, 2)), "indices": np.array([0, 1, 9])}),
        bad_index(9, 3),
    ),
    "index of an array": (
        *(lambda: ml.Indexer(**open_indexer), {"input": x((3, 2)), "index": np.array([3])}),
        bad_index(3, 3),
    ),
    "scatter": (
        lambda: ml.Scatter(axis=0),
        {"input": x((3, 1)), "indices": np.array([[3]]), "value": x((1, 1))},
        bad_index(3, 3),
    ),
    "class": (
        *(ml.CrossEntropy, {"input": x((2, 3)), "target": np.array([0, 3])}),
        bad_index(3, 3),
    ),
    "class of a pixel, weighted": (
        lambda: ml.CrossEntropy(weights=[1.0, 2.0, 3.0], reduction="mean"),
        {"input": x((1, 3, 2)), "target": np.array([[0, 9]])},
        bad_index(9, 3),
    ),
    "negative class": (  # it would count from the end: it is told below what counts
        *(ml.models.NLLLoss, {"input": x((2, 3)), "target": np.array([0, -1])}),
        bad_index(-1 - 3, 3),
    ),
    "class beside one that is ignored": (
        lambda: ml.models.NLLLoss(ignore_index=-100),
        {"input": x((2, 3)), "target": np.array([-100, 4])},
        bad_index(4, 3),
    ),
    "singular": (
        *(ml.Solve, {"matrix": np.ones((3, 3)), "right": x((3, 2))}),
        (ArgumentError, "solve: a matrix is singular"),
    ),
    "not positive definite": (
        *(ml.Cholesky, {"input": np.stack([np.eye(3), -np.eye(3)])}),
        (ArgumentError, "cholesky: a matrix is not positive definite"),
    ),
}


@pytest.mark.parametrize("name", map(backend_param, (*BACKENDS, "mlx")))
@pytest.mark.parametrize("ready", [True, False], ids=["ready", "converted"])
@pytest.mark.parametrize("case", CASES)
def test_data_that_an_op_refuses(case, ready, name):
    make, data, (error, message) = CASES[case]
    if name == "mlx" and error is DataIndexError:
        pytest.skip("MLX takes the nearest place")
    with pytest.raises(error) as caught:
        result(make(), data, name, False, ready)
    assert str(caught.value).splitlines()[0] == message


@pytest.mark.frameworks
@pytest.mark.parametrize("autodiff", ["engine", "framework"])
def test_indices_of_gradients_on_pytorch(autodiff):
    backend = ml.TorchBackend()
    pm = ml.compile(ml.Embedding(4, 3), backend, data_keys={"input"}, autodiff=autodiff)
    error, message = bad_index(7, 4)
    with pytest.raises(error) as caught:
        pm.evaluate(
            {"weight": np.ones((4, 3))}, {"input": np.array([7])},
            output_gradients={"output": np.ones((1, 3))},
        )  # fmt: skip
    assert str(caught.value).splitlines()[0] == message


LOOK_UPS = ["embedding", "embedding, from the end", "bag", "permutation", "index of an array"]


@pytest.mark.frameworks
@pytest.mark.parametrize("case", LOOK_UPS)
def test_jax_looks_where_it_runs_line_by_line(case):
    make, data, (error, message) = CASES[case]
    pm = ml.compile(make(), ml.JaxBackend(), data_keys=set(data), jit=False, inference=True)
    with pytest.raises(error) as caught:
        pm.evaluate({}, data)
    assert str(caught.value).splitlines()[0] == message


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["jax", "mlx"])
def test_a_class_out_of_bounds_is_the_nearest_where_nothing_is_raised(name):
    data = {"input": np.log([[0.2, 0.3, 0.5]] * 2), "target": np.array([7, -7])}
    found = result(ml.CrossEntropy(), data, name, False, False)
    np.testing.assert_allclose(found, -np.log([0.5, 0.2]), rtol=1e-6)


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "converted"])
def test_labels(ready, backend_name):
    logits = np.log([[0.2, 0.3, 0.5]] * 3)
    for dtype in ("int64", "int32", "int16", "uint8"):
        data = {"input": logits, "target": np.array([2, 0, 1], dtype)}
        found = result(ml.CrossEntropy(), data, backend_name, False, ready)
        np.testing.assert_allclose(found, -np.log([0.5, 0.2, 0.3]), rtol=1e-6)
    data = {"input": logits, "target": np.array([-100, 0, 1])}
    found = result(ml.CrossEntropy(ignore_index=-100), data, backend_name, False, ready)
    np.testing.assert_allclose(found, [0.0, *-np.log([0.2, 0.3])], rtol=1e-6)
    with pytest.raises(DTypeError) as caught:
        data["target"] = np.array([0.0, 1.0, 2.0], "float32")
        result(ml.CrossEntropy(), data, backend_name, False, ready)
    assert str(caught.value).splitlines()[0] == "'target': requires integers, got float32"


# Sizes that are known when data come.
SIZES = {
    "broadcast": (
        *(ml.Add, {"left": x((2, 3)), "right": x((4, 3))}),
        (ShapeError, "add: operands must broadcast together, got float[2, 3] and float[4, 3]"),
    ),
    "window": (
        lambda: ml.Conv2d(3, 4, use_bias=False, weight=ml.Tensor(np.ones((4, 2, 3, 3)).tolist())),
        {"input": x((1, 2, 2, 2))},
        (ShapeError, "convolution2d: a window of 3 does not fit, got size 2 and padding 0, 0"),
    ),
    "more than there are": (
        *(lambda: ml.TopK(9), {"input": x((2, 3))}),
        (ArgumentError, "topk: k must be from 0 to the size of axis -1, got 9 for size 3"),
    ),
    "nothing to transform": (
        *(ml.RFFT, {"input": x((2, 0))}),
        (ArgumentError, "rfft: axis 1 must have at least 1 place, got 0"),
    ),
}


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "converted"])
@pytest.mark.parametrize("case", SIZES)
def test_sizes_that_do_not_fit(case, ready, backend_name):
    make, data, (error, message) = SIZES[case]
    with pytest.raises(error) as caught:
        result(make(), data, backend_name, True, ready)
    assert str(caught.value).splitlines()[0] == message


@pytest.mark.parametrize("name", map(backend_param, (*BACKENDS, "jax", "mlx")))
@pytest.mark.parametrize("op", ["Eigh", "SVD", "QR"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite_spoils_no_other(op, bad, name):
    matrices = np.array([[[2.0, 1.0], [1.0, 3.0]], [[2.0, bad], [bad, 3.0]]])
    got = result(getattr(ml, op)(), {"input": matrices}, name, False, False)
    alone = result(getattr(ml, op)(), {"input": matrices[:1]}, name, False, False)
    np.testing.assert_array_equal(got[0], alone[0])
    assert not np.isfinite(got[1]).all()

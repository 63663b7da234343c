"""NumPy's indexing on every backend: arrays, numbers, new axes and masks beside each other, in
random order; and the sizes of shapes that hold nothing."""

import mithril as ml
import numpy as np
import pytest
from mithril.backends.indexing import plan_index, whole_shape
from mithril.errors import MithrilError

COUNTS = {"cpu": 300, "numpy": 300, "c": 20, "torch": 120, "jax": 60, "mlx": 120}


def read(backend_name, shape, index):
    """x[index], whose arrays are wires, and the gradient of x; with what NumPy makes of them."""
    backend = ml.get_backend(backend_name)
    x = np.arange(1.0, np.prod(shape) + 1, dtype=np.float32).reshape(shape)
    index = index if isinstance(index, tuple) else (index,)
    wires = {f"i{k}": item for k, item in enumerate(index) if isinstance(item, np.ndarray)}
    keys = tuple(ml.IOKey(f"i{k}") if f"i{k}" in wires else item for k, item in enumerate(index))
    model = ml.Model.create(y=ml.IOKey("x")[keys if len(keys) != 1 else keys[0]])
    data = {"x": x, **wires}
    pm = ml.compile(
        model, backend, data_keys=set(data), types=dict.fromkeys(wires, "int32"),
        shapes={name: list(array.shape) for name, array in data.items()},
    )  # fmt: skip
    wanted = x[index]
    assert tuple(pm.shapes["y"]) == wanted.shape
    given = {name: backend.array(array) for name, array in data.items()}
    cotangent = np.arange(1.0, wanted.size + 1, dtype=np.float32).reshape(wanted.shape)
    found = pm.evaluate({}, given, output_gradients={"y": backend.array(cotangent)}, wrt=["x"])
    sums = np.zeros(shape, np.float32)
    np.add.at(sums, index, cotangent)
    got = [np.asarray(backend.to_numpy(v)) for v in (found.outputs["y"], found.gradients["x"])]
    return got, [wanted, sums]


def random_index(random):
    """Items for an array of random shape, in random order; arrays that broadcast."""
    shape = tuple(random.integers(1, 5, random.integers(1, 5)).tolist())
    joint = tuple(random.integers(1, 4, random.integers(0, 3)).tolist())
    items, axis = [], 0
    while axis < len(shape) and random.random() < 0.85:
        size = shape[axis]
        kind = random.choice(["int", "slice", "list", "wire", "mask", "none", "bool", "rest"])
        axis += kind not in ("none", "bool", "rest")
        if kind == "int":
            items.append(int(random.integers(-size, size)))
        elif kind == "slice":
            low, high = sorted(random.integers(-size, size + 1, 2).tolist())
            backwards = slice(None, None, -int(random.integers(1, 3)))
            items.append(random.choice([slice(low, high), slice(None), backwards]))
        elif kind == "list" and joint:
            items.append(random.integers(-size, size, joint[-1]).tolist())
        elif kind == "wire" or kind == "list":
            own = tuple(n if random.random() < 0.7 else 1 for n in joint)
            items.append(random.integers(-size, size, own).astype(np.int32))
        elif kind == "mask":
            items.append((random.random(size) < 0.6).tolist())
        elif kind == "none":
            items.append(None)
        elif kind == "bool":
            items.append(bool(random.random() < 0.8))
        elif Ellipsis not in [i for i in items if not isinstance(i, np.ndarray)]:
            items.append(Ellipsis)
            axis = len(shape) if random.random() < 0.2 else axis
    return shape, tuple(items) or (slice(None),)


def is_refused_by_numpy(shape, index):
    try:
        np.zeros(shape)[index]
    except IndexError:
        return True
    return False


def test_random_indices(backend_name):
    random = np.random.default_rng(33)
    done = 0
    while done < COUNTS[backend_name]:
        shape, index = random_index(random)
        if is_refused_by_numpy(shape, index):
            continue
        done += 1
        got, wanted = read(backend_name, shape, index)
        for g, w in zip(got, wanted, strict=True):
            assert g.shape == w.shape, f"x{list(shape)}[{index}]"
            np.testing.assert_array_equal(g, w, f"x{list(shape)}[{index}]")


I = np.array([0, 2], np.int32)  # noqa: E741
CASES = [
    ((3, 3), (I, None, I)),
    ((3, 3), (None, I, I)),
    ((3, 3), (slice(None), None, I)),
    ((3, 4, 5), (0, slice(None), I)),
    ((3, 4, 5), (slice(None), I, Ellipsis, I)),  # the ellipsis is no axis, and stands between them
    ((3, 4, 5), (0, None, I)),
    ((3, 4, 5), (np.array(1, np.int32), slice(None), 2)),
    ((3, 4), (True, slice(None), I)),
    ((3, 4), (False,)),
    ((3, 4), ([True, False, True], I)),
    ((2, 3, 4), ([[True, False, True], [False, False, True]],)),
    ((2, 3), ([False, False],)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_arrays_beside_other_items(case, backend_name):
    shape, index = CASES[case]
    got, wanted = read(backend_name, shape, index)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(g, w)
        assert g.shape == w.shape


def test_a_mask_has_the_sizes_of_its_axes(backend_name):
    with pytest.raises(MithrilError, match="a mask must have the sizes of the axes that it takes"):
        read(backend_name, (3, 4), ([True, False],))


def test_plans_give_what_the_index_gives():
    random = np.random.default_rng(1)
    for _ in range(300):
        shape, index = random_index(random)
        if is_refused_by_numpy(shape, index):
            continue
        x = np.arange(np.prod(shape)).reshape(shape)
        plan = plan_index(index, x.ndim)
        rows = x[plan.basic]
        if plan.arrays:
            rows = rows.transpose(plan.arrays_first(rows.ndim))
            arrays = [np.asarray(a, int) for a in plan.arrays]
            rows = rows[tuple(arrays)]
            rows = rows.transpose(plan.into_place(np.broadcast(*arrays).ndim, rows.ndim))
        np.testing.assert_array_equal(rows, x[index])


@pytest.mark.parametrize(
    "shape, of, wanted",
    [
        ((0, -1), (0, 3, 4), (0, 12)),
        ((-1, 12), (0, 3, 4), (0, 12)),
        ((-1,), (0, 3), (0,)),
        ((0, 2, -1), (0, 4), (0, 2, 2)),
        ((0, 0, -1), (0, 4), (0, 0, -1)),  # any size would do
        ((2, -1), (2, 3), (2, -1)),  # the library finds it
    ],
)
def test_sizes_of_nothing(shape, of, wanted):
    assert whole_shape(shape, of) == wanted


EMPTY = {
    "the first size stays": lambda x: x.reshape((x.shape[0], -1)),
    "the last sizes stay": lambda x: x.reshape((-1, x.shape[2])),
    "numbers": lambda x: x.reshape((-1, 12)),
    "two of three": lambda x: x.reshape((x.shape[0], 2, -1)),
}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("what", EMPTY)
def test_reshapes_of_an_empty_batch(what, is_open, backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.Model.create(y=EMPTY[what](ml.IOKey("x", shape=[None, 3, 4])))
    shapes = {} if is_open else {"x": [0, 3, 4]}
    pm = ml.compile(model, backend, data_keys={"x"}, shapes=shapes)
    wanted = EMPTY[what](np.ones((5, 3, 4))).shape
    for batch in (0,) if shapes else (5, 0):
        x = backend.array(np.ones((batch, 3, 4), np.float32))
        y = pm.evaluate({}, {"x": x})["y"]
        shape = tuple(batch if n == 5 else batch * 3 if n == 15 else n for n in wanted)
        assert tuple(np.asarray(backend.to_numpy(y)).shape) == shape
        ones = {"y": backend.array(np.ones(shape, np.float32))}
        gradient = pm.evaluate({}, {"x": x}, output_gradients=ones, wrt=["x"]).gradients["x"]
        assert tuple(np.asarray(backend.to_numpy(gradient)).shape) == (batch, 3, 4)


def test_sizes_of_nothing_that_could_be_any_are_refused():
    with pytest.raises(MithrilError, match="number of elements must not change"):
        model = ml.Model.create(y=ml.IOKey("x", shape=[0, 3]).reshape((0, 0, -1)))
        ml.compile(model, ml.CpuBackend(), data_keys={"x"})

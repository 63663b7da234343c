# Covers: reference/true_places.c
# Covers: passes/places_of_masks.cc passes/cut_at_sizes.cc bindings/segmented_program.cc
"""Sizes that data decide, on the engine's plans: values against NumPy, gradients against PyTorch in
float64; what calls take part in (steps, `fetch`, states, profiles), and what is refused."""

import mithril as ml
import numpy as np
import pytest
from emulated_cuda import NO_CUDA
from mithril.errors import DataIndexError, ShapeError, UnsupportedError
from mithril.models import IOKey

PLANNED = ["cpu", "c", "opencl", "cuda"]
CLASSES = {"cpu": "CpuBackend", "c": "CBackend", "opencl": "OpenCLBackend", "cuda": "CudaBackend"}
on_plans = pytest.mark.parametrize("planned", PLANNED)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def backend_of(name, **options):
    if name == "cuda" and NO_CUDA:
        pytest.skip(NO_CUDA)
    try:
        return getattr(ml, CLASSES[name])(**options)
    except ml.errors.DeviceNotAvailable as error:
        pytest.skip(str(error))


NUMPY = ml.NumpyBackend()  # its methods take wires, too
RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 3, 5))
ROWS = np.array([True, False, True, True])
PLANE = RNG.random((4, 3)) > 0.4
LAST = RNG.random((3, 5)) > 0.5
ALL = RNG.random((4, 3, 5)) > 0.5
SQUARE = X[:, :, 0]


def masked(build, **shapes):
    """y = build(wires): m and n are masks, the other keys hold floats."""

    def make():
        kinds = {name: bool if name in "mn" else float for name in shapes}
        return ml.Model.create(
            y=build(
                **{
                    name: IOKey(name, shape=list(shape), type=ml.Tensor[kinds[name]])
                    for name, shape in shapes.items()
                }
            )
        )

    return make


def case(build, wanted=None, /, **data):
    """A model, what it means in NumPy or PyTorch (first argument: the module), and data."""
    same = wanted or (lambda _, **arrays: build(**arrays))
    return masked(build, **{name: array.shape for name, array in data.items()}), same, data


CASES = {
    "rows": case(lambda x, m: x[m], x=X, m=ROWS),
    "planes": case(lambda x, m: x[m], x=X, m=PLANE),
    "elements": case(lambda x, m: x[m], x=X, m=ALL),
    "behind an axis": case(lambda x, m: x[:, m], x=X, m=LAST),
    "behind an ellipsis": case(lambda x, m: x[..., m], x=X, m=LAST),
    "before an ellipsis": case(lambda x, m: x[m, ..., 1:], x=X, m=ROWS),
    "with slices": case(lambda x, m: x[m, 1:, ::2], x=X, m=ROWS),
    "with a new axis": case(lambda x, m: x[None, m], x=X, m=ROWS),
    "beside an int": case(lambda x, m: x[m, 1], x=X, m=ROWS),
    "apart from an int": case(lambda x, m: x[m, :, 1], x=X, m=ROWS),
    "behind an int": case(lambda x, m: x[1, m], x=X, m=LAST),
    "with integers": case(lambda x, m: x[m, [0, 2, 1]], x=X, m=ROWS),
    "apart from integers": case(lambda x, m: x[m, :, [0, 2, 1]], x=X, m=ROWS),
    "two masks": case(lambda x, m, n: x[m, :, n], x=X, m=ROWS, n=np.array([0, 1, 1, 0, 1]) > 0),
    "a mask of one, broadcast": case(
        lambda x, m, n: x[m, :, n], x=X, m=ROWS, n=np.array([0, 1, 0, 0, 0]) > 0
    ),
    "none": case(lambda x, m: x[m], x=X, m=np.zeros(4, bool)),
    "all": case(lambda x, m: x[m], x=X, m=np.ones((4, 3), bool)),
    "no rows": case(lambda x, m: x[m], x=X[:0], m=ROWS[:0]),
    "computed": case(lambda x: x[x > 0.5], x=X),
    "computed, none": case(lambda x: x[x > 99.0], x=X),
    "of something computed": case(
        lambda x: (e := x.exp())[e > 1.0] * 2.0, lambda f, x: f.exp(x)[f.exp(x) > 1] * 2, x=X
    ),
    "a mean": case(lambda x: x[x > 0.0].mean(), x=X),
    "a mean by a mask of a mean": case(lambda x: x[x > x[x > 0.0].mean()].sum(), x=X),
    "of what a mask gave": case(lambda x: (v := x[x > 0.0])[v < 1.0] * 3.0, x=X),
    "three in a row": case(lambda x: (u := (v := x[x > -1.0])[v > 0.0])[u > 0.5], x=X),
    "two beside each other": case(
        lambda x, m: x[m].sum() * x[x > 0.0].mean(), x=X, m=ROWS
    ),
    "two inputs by one mask": case(
        lambda x, t, m: (x[m] - t[m]).sum() * t[m].mean(), x=X, t=X[::-1] * 2, m=ROWS
    ),
    "sums of two inputs by one mask": case(
        lambda x, t, m: x[m].sum() + t[m].sum(), x=X, t=X[::-1] * 2, m=ROWS
    ),
    "two sizes in one sum": case(
        lambda x, m: x[m].sum(axis=0) + x[x[:, 0, 0] > 0.0].mean(axis=0), x=X, m=ROWS
    ),
    "a product of matrices": case(
        lambda x, w, m: x[m] @ w, x=SQUARE, w=X[0, :, :2], m=ROWS
    ),
    "a product of what masks gave": case(
        lambda x, m: (v := x[m]) @ v.transpose(), lambda f, x, m: x[m] @ x[m].T, x=SQUARE, m=ROWS
    ),
    "reshaped": case(lambda x, m: x[m].reshape((-1,)) * 3.0, x=X, m=PLANE),
    "joined": case(
        lambda x, m: NUMPY.concat([x[m], x[:1]], axis=0),
        lambda f, x, m: f.concatenate([x[m], x[:1]], 0), x=X, m=ROWS,
    ),
    "more axes": case(lambda x, m: x[m][:, None] + x[m][None], x=SQUARE, m=ROWS),
}  # fmt: skip
names = pytest.mark.parametrize("name", CASES)


def compiled(name, planned, **options):
    make, _, data = CASES[name]
    backend = backend_of(planned, dtype=ml.float64)
    return ml.compile(make(), backend, data_keys=set(data), **options)


@pytest.mark.device
@names
@on_plans
def test_values(name, planned):
    if planned == "c" and name not in ("planes", "three in a row", "two inputs by one mask"):
        pytest.skip("each takes a compiler's time")
    _, wanted, data = CASES[name]
    pm = compiled(name, planned, inference=True)
    for _ in range(2):  # the second call is a quick one
        found = pm.evaluate({}, data)["y"]
        want = wanted(np, **data)
        assert found.shape == np.shape(want)
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)


@pytest.mark.frameworks
@names
@pytest.mark.parametrize("planned", ["cpu", "opencl", "cuda"])
def test_gradients(name, planned):
    torch = pytest.importorskip("torch")
    _, wanted, data = CASES[name]
    wrt = [key for key in data if key not in "mn"]
    tensors = {k: torch.tensor(np.ascontiguousarray(v)) for k, v in data.items()}
    inputs = [tensors[key].requires_grad_() for key in wrt]
    result = wanted(torch, **tensors)
    seed = np.random.default_rng(1).standard_normal(tuple(result.shape))
    slopes = torch.autograd.grad(result, inputs, torch.tensor(seed), allow_unused=True)
    pm = compiled(name, planned)
    found = pm.evaluate({}, data, output_gradients={"y": seed}, wrt=wrt)
    np.testing.assert_allclose(found.outputs["y"], result.detach().numpy(), rtol=1e-12, atol=1e-12)
    for key, slope in zip(wrt, slopes, strict=True):
        want = np.zeros_like(data[key]) if slope is None else slope.numpy()
        np.testing.assert_allclose(found.gradients[key], want, rtol=1e-10, atol=1e-12)


# --- what calls take part in ----------------------------------------------------------------------


def fitted(backend, **options):
    """mean((x[m] @ w - t[m])^2) over the rows that m takes."""
    x, w = IOKey("x", shape=["n", 3]), IOKey("w", shape=[3, 1])
    t, m = IOKey("t", shape=["n", 1]), IOKey("m", shape=["n"], type=ml.Tensor[bool])
    model = ml.Model.create(loss=((x[m] @ w - t[m]) ** 2).mean())
    return ml.compile(model, backend, data_keys={"x", "t", "m"}, trainable_keys={"w"}, **options)


def slope(x, w, t, m):
    return 2 * x[m].T @ (x[m] @ w - t[m]) / m.sum()


@pytest.mark.device
@on_plans
@pytest.mark.parametrize("stream", [False, True])
def test_steps(planned, stream):
    optimizer = ml.optim.SGD(lr=0.1)
    backend = backend_of(planned, dtype=ml.float64)
    pm = fitted(backend, optimizer=optimizer, stream_gradients=stream)
    w = np.ones((3, 1))
    params, opt_state = {"w": w.copy()}, optimizer.init({"w": w})
    rng = np.random.default_rng(3)
    for n in (5, 5, 7):
        x, t, m = rng.standard_normal((n, 3)), rng.standard_normal((n, 1)), rng.random(n) > 0.3
        want = ((x[m] @ w - t[m]) ** 2).mean()
        params, opt_state, _, outputs = pm.step(params, opt_state, {"x": x, "t": t, "m": m})
        w = w - 0.1 * slope(x, w, t, m)
        np.testing.assert_allclose(params["w"], w, rtol=1e-12)
        np.testing.assert_allclose(outputs["loss"], want, rtol=1e-12)


@pytest.mark.device
@on_plans
def test_values_of_the_middle(planned):
    backend = backend_of(planned, dtype=ml.float64)
    x = IOKey("x", shape=["n"])
    model = ml.Model()
    model |= ml.Relu()(input=x, output="r")
    model |= ml.Greater()(left="r", right=0.5, output="m")
    model |= ml.Indexer()(input="r", index="m", output="taken")
    model |= ml.Mean()(input="taken", output="y")
    model.expose_keys("y")
    pm = ml.compile(model, backend, data_keys={"x"}, inference=True)
    data = {"x": np.array([-1.0, 2.0, 0.25, 4.0])}
    found = pm.evaluate({}, data, fetch=["r", "m", "taken"])
    assert found["taken"].tolist() == [2.0, 4.0] and found["y"] == 3.0
    assert found["r"].tolist() == [0.0, 2.0, 0.25, 4.0]
    assert found["m"].tolist() == [False, True, False, True]


@pytest.mark.device
def test_a_size_alone():
    x = IOKey("x", shape=["n", 2])
    picked = x[x > 0.0]
    model = ml.Model.create(y=picked.shape[0], ones=x * 0.0 + picked.shape[0])
    pm = ml.compile(model, ml.CpuBackend(dtype=ml.float64), data_keys={"x"}, inference=True)
    found = pm.evaluate({}, {"x": X[0, :, :2]})
    count = int((X[0, :, :2] > 0).sum())
    assert found["y"] == count and (found["ones"] == count).all()


@pytest.mark.device
def test_states_and_random_numbers_pass_through():
    model = ml.Model()
    model |= ml.Dropout(0.5)(input=IOKey("x", shape=["n"]), output="d")
    model |= ml.Greater()(left="d", right=0.0, output="m")
    model |= ml.Indexer()(input="d", index="m", output="y")
    model |= ml.Buffer()(input="d", output="all")
    model.expose_keys("y", "all")
    pm = ml.compile(model, ml.CpuBackend(dtype=ml.float64), data_keys={"x"}, mode="train")
    state = pm.initial_state()
    seen = []
    for _ in range(2):
        outputs, state = pm.evaluate({}, {"x": np.arange(1.0, 65.0)}, state=state)
        np.testing.assert_array_equal(outputs["y"], outputs["all"][outputs["all"] > 0])
        seen.append(outputs["all"])
    assert (seen[0] != seen[1]).any()


def rows_of(shape=("n", 2)):
    """rows = x[m]"""
    model = ml.Model()
    x, m = IOKey("x", shape=list(shape)), IOKey("m", shape=["n"], type=ml.Tensor[bool])
    model |= ml.Indexer()(input=x, index=m, output="rows")
    return model


PAIRS = SQUARE[:, :2]


@pytest.mark.device
@pytest.mark.parametrize("mask", [ROWS, np.zeros(4, bool)])
def test_loops_run_over_what_a_mask_gave(mask):
    body = ml.Model()
    body |= ml.Multiply()(left="row", right="scale", output="scaled")
    body |= ml.Add()(left="total", right="scaled", output="sum")
    body.expose_keys("sum")
    model = rows_of()
    model |= ml.Scan(body, carry={"total": "sum"}, xs=["row"], ys={"sum": "sums"})(
        row="rows", total="start", scale="scale", sum="last", sums="sums"
    )
    model.expose_keys("last", "sums")
    pm = ml.compile(
        model, ml.CpuBackend(dtype=ml.float64), data_keys={"x", "m", "start", "scale"},
        shapes={"start": [2], "scale": [2]},
    )  # fmt: skip
    data = {"x": PAIRS, "m": mask, "start": np.ones(2), "scale": np.array([2.0, 3.0])}
    seeds = {"last": np.ones(2), "sums": np.ones((mask.sum(), 2))}
    found = pm.evaluate({}, data, output_gradients=seeds, wrt=["x", "scale"])
    sums = 1 + np.cumsum(PAIRS[mask] * data["scale"], axis=0)
    np.testing.assert_allclose(found.outputs["sums"], sums)
    np.testing.assert_allclose(found.outputs["last"], sums[-1] if len(sums) else np.ones(2))
    slopes = np.zeros_like(PAIRS)
    counts = np.arange(mask.sum(), 0, -1.0)[:, None] + 1
    slopes[mask] = counts * data["scale"]
    np.testing.assert_allclose(found.gradients["x"], slopes)
    np.testing.assert_allclose(found.gradients["scale"], (counts * PAIRS[mask]).sum(0))


@pytest.mark.device
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches_take_what_a_mask_gave(sign):
    model = rows_of()
    taken, other = ml.Model.create(y=IOKey("v").exp()), ml.Model.create(y=IOKey("v") * 2.0)
    model |= ml.Sum()(input="x", output="s")
    model |= ml.Greater()(left="s", right=0.0, output="p")
    model |= ml.Cond(taken, other)(predicate="p", v="rows", y="y")
    model.expose_keys("y")
    pm = ml.compile(model, ml.CpuBackend(dtype=ml.float64), data_keys={"x", "m"}, inference=True)
    x = sign * np.abs(PAIRS)
    want = np.exp(x[ROWS]) if sign > 0 else 2 * x[ROWS]
    np.testing.assert_allclose(pm.evaluate({}, {"x": x, "m": ROWS})["y"], want)


INSIDE = "the size of a result depends on the data, in a loop or a branch"


@pytest.mark.device
@on_plans
def test_loops_and_branches_hold_no_such_sizes(planned):
    body = ml.Model()
    body |= ml.Indexer()(input="row", index=IOKey("keep", type=ml.Tensor[bool]), output="kept")
    body |= ml.Sum()(input="kept", output="part")
    body |= ml.Add()(left="total", right="part", output="sum")
    body.expose_keys("sum")
    model = ml.Model()
    model |= ml.Scan(body, carry={"total": "sum"}, xs=["row", "keep"])(
        row="x", keep="m", total="start", sum="y"
    )
    model.set_shapes(x=["n", 3], m=["n", 3], start=[])
    model.expose_keys("y")
    pm = ml.compile(model, backend_of(planned), data_keys={"x", "m", "start"}, inference=True)
    data = {"x": SQUARE, "m": PLANE, "start": np.zeros(())}
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=INSIDE):
            pm.evaluate({}, data)


# --- what is refused, and changes nothing ---------------------------------------------------------


@pytest.mark.device
def test_a_mask_of_other_sizes():
    model = ml.Model.create(
        y=IOKey("x", shape=["n", 2])[IOKey("m", shape=["k"], type=ml.Tensor[bool])]
    )
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x", "m"}, inference=True)
    for mask in (np.ones(3, bool), np.ones(5, bool), np.ones(1, bool)):
        with pytest.raises(ShapeError, match="a mask must have the sizes of the axes"):
            pm.evaluate({}, {"x": PAIRS, "m": mask})
    assert pm.evaluate({}, {"x": PAIRS, "m": ROWS})["y"].shape == (3, 2)


@pytest.mark.device
@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_gradients_of_other_sizes(count):
    pm = ml.compile(
        ml.Model.create(y=IOKey("x", shape=["n"])[IOKey("m", shape=["n"], type=ml.Tensor[bool])]),
        ml.CpuBackend(), data_keys={"x", "m"},
    )  # fmt: skip
    data = {"x": PAIRS[:, 0], "m": ROWS}
    with pytest.raises(ShapeError, match="y"):
        pm.evaluate({}, data, output_gradients={"y": np.ones(count, "f4")}, wrt=["x"])
    found = pm.evaluate({}, data, output_gradients={"y": np.ones(3, "f4")}, wrt=["x"])
    assert found.gradients["x"].tolist() == [1, 0, 1, 1]


@pytest.mark.device
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_sizes_that_do_not_go_together(count):
    x, m = IOKey("x", shape=["n"]), IOKey("m", shape=["n"], type=ml.Tensor[bool])
    pm = ml.compile(
        ml.Model.create(y=x[m] + IOKey("t", shape=["k"]), z=x[m].reshape((2, -1))),
        ml.CpuBackend(), data_keys={"x", "m", "t"}, inference=True,
    )  # fmt: skip
    mask = np.arange(4) < count
    data = {"x": PAIRS[:, 0], "m": mask, "t": np.ones(2)}
    if count == 2:
        assert pm.evaluate({}, data)["z"].shape == (2, 1)
        return
    with pytest.raises(ShapeError):
        pm.evaluate({}, data)


@pytest.mark.device
def test_an_index_that_is_out_of_bounds_behind_a_mask():
    x, m = IOKey("x", shape=["n"]), IOKey("m", shape=["n"], type=ml.Tensor[bool])
    model = ml.Model.create(y=x[m][IOKey("i", shape=["k"], type=ml.Tensor[int])])
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x", "m", "i"}, inference=True)
    data = {"x": PAIRS[:, 0], "m": ROWS}
    with pytest.raises(DataIndexError, match="3"):
        pm.evaluate({}, data | {"i": np.array([0, 3])})
    assert pm.evaluate({}, data | {"i": np.array([0, -1])})["y"].shape == (2,)


# --- what plans tell of themselves ----------------------------------------------------------------


@pytest.mark.device
@on_plans
def test_plans_are_told_for_the_largest_sizes(planned):
    pm = fitted(backend_of(planned, dtype=ml.float64))
    shapes = {"x": [100, 3], "t": [100, 1], "m": [100]}
    told = str(pm.explain(shapes=shapes))
    assert "bounded_places" in told and "gather" in told
    plan = pm.memory_plan(shapes=shapes)
    assert plan.inputs == 100 * (3 * 8 + 8 + 1)
    assert plan.peak >= 100 * 8 + 8  # the places, at most


@pytest.mark.device
def test_there_may_be_no_plan_for_the_largest_sizes():
    x = IOKey("x", shape=["n"])
    model = ml.Model.create(y=x[x > 0.0].reshape((2, 1)))
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, inference=True)
    assert pm.evaluate({}, {"x": np.array([1.0, -1.0, 2.0])})["y"].tolist() == [[1], [2]]
    with pytest.raises(UnsupportedError, match="sizes follow from"):
        pm.memory_plan(shapes={"x": [3]})
    with pytest.raises(UnsupportedError, match="sizes follow from"):
        pm.explain(shapes={"x": [3]})


@pytest.mark.device
@on_plans
def test_profiles_have_the_steps_of_all_segments(planned):
    pm = fitted(backend_of(planned, dtype=ml.float64))
    data = {"x": SQUARE, "t": SQUARE[:, :1], "m": ROWS}
    with pm.profile() as told:
        pm.evaluate({"w": np.ones((3, 1))}, data)
    told = str(told)
    assert "bounded_places" in told or planned == "c"  # which has one row for all steps


@pytest.mark.device
def test_only_models_with_such_sizes_have_segments():
    make, _, data = CASES["a mean by a mask of a mean"]
    pm = ml.compile(make(), ml.CpuBackend(), data_keys=set(data), inference=True)
    graph = pm._compilation.program.compiled.forward
    assert len(ml._core.cut_at_sizes(graph)) == 3
    plain = ml.compile(
        ml.Model.create(y=IOKey("x", shape=["n"]).exp()), ml.CpuBackend(), data_keys={"x"}
    )
    assert ml._core.cut_at_sizes(plain._compilation.program.compiled.forward) == []


@pytest.mark.device
def test_many_counts_are_kept_in_a_bounded_cache():
    pm = compiled("computed", "cpu", inference=True)
    x = np.linspace(-1, 1, 60).reshape(4, 3, 5)
    for shift in range(130):
        shifted = x + (shift - 65) / 65
        assert pm.evaluate({}, {"x": shifted})["y"].shape == ((shifted > 0.5).sum(),)


@pytest.mark.device
def test_c_has_no_such_sizes(tmp_path):
    pm = ml.compile(CASES["rows"][0](), ml.CBackend(), data_keys={"x", "m"}, inference=True)
    with pytest.raises(UnsupportedError, match="export_c: sizes follow from data"):
        pm.export_c(tmp_path / "out")
    assert not (tmp_path / "out").exists()

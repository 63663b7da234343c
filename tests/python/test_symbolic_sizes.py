"""Sizes as expressions, seen from Python: normal forms, solving backwards, bounds, names kept."""

from __future__ import annotations

import mithril as ml
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inference_cases import Case, each, use, value_of
from mithril.errors import MithrilError, ShapeError

TWO = {"input": lambda: [ml.IOKey("a"), ml.IOKey("b")], "output": "out"}


def of_shape(expression, **wires):
    """A model of one expression over the wire x."""

    def make():
        x = ml.IOKey("x")
        return ml.Model.create(out=expression(x))

    return make


FORWARD = [
    Case(
        "concat",
        use("Concat", axis=0, wires=TWO),
        shapes={"a": ["N", 3], "b": [1, 3]},
        found={"out": ["N+1", 3]},
    ),
    Case(
        "concat of two symbols",
        use("Concat", axis=0, wires=TWO),
        shapes={"a": ["N", 3], "b": ["M", 3]},
        found={"out": ["N+M", 3]},
    ),
    Case(
        "flatten",
        use("Flatten", start_dim=0),
        shapes={"input": ["H", "W"]},
        found={"output": ["H*W"]},
    ),
    Case(
        "reshape to rows",
        of_shape(lambda x: x.reshape((x.shape[0], -1))),
        shapes={"x": ["N", "H", 4]},
        found={"out": ["N", "4*H"]},
    ),
    Case(
        "reshape to halves",
        of_shape(lambda x: x.reshape((2, -1, x.shape[1]))),
        shapes={"x": [6, "W"]},
        found={"out": [2, 3, "W"]},
    ),
    Case(
        "reshape to a multiple",
        of_shape(lambda x: x.reshape((x.shape[0] * 2, -1))),
        shapes={"x": ["N", 4]},
        found={"out": ["2*N", 2]},
    ),
    Case(
        "strided convolution",
        use("Convolution2D", 3, 8, stride=2, padding=1),
        shapes={"input": ["n", 3, "H", "W"]},
        found={"output": ["n", 8, "floor((H+1)/2)", "floor((W+1)/2)"]},
    ),
    Case(
        "convolution of stride 1",
        use("Convolution2D", 3, 8),
        shapes={"input": [2, 3, "H", "W"]},
        found={"output": [2, 8, "H-2", "W-2"]},
    ),
    Case(
        "pool",
        use("MaxPool2D", 2),
        shapes={"input": [2, 3, "H", "W"]},
        found={"output": [2, 3, "floor(H/2)", "floor(W/2)"]},
    ),
    Case(
        "slice in steps",
        of_shape(lambda x: x[::2, ::-1]),
        shapes={"x": ["N", "M"]},
        found={"out": ["floor((N+1)/2)", "M"]},
    ),
    Case(
        "slice to a known part",
        of_shape(lambda x: x[: x.shape[0]]),
        shapes={"x": ["N", 4]},
        found={"out": ["N", 4]},
    ),
    Case(
        "arange",
        of_shape(lambda x: ml.Arange()(stop=x.shape[0] * 2 + 1)),
        shapes={"x": ["N", 4]},
        found={"out": ["2*N+1"]},
    ),
    Case(
        "arange in steps",
        of_shape(lambda x: ml.Arange(step=3)(stop=x.shape[0])),
        shapes={"x": ["N"]},
        found={"out": ["floor((N+2)/3)"]},
    ),
    Case(
        "pad",
        use("Pad", ((1, 2), (0, 1))),
        shapes={"input": ["N", "M"]},
        found={"output": ["N+3", "M+1"]},
    ),
    Case(
        "split",
        of_shape(lambda x: ml.models.Split(2, 0)(x)[0]),
        shapes={"x": ["N", 3]},
        found={"x": ["2*u1", 3], "out": ["u1", 3]},
    ),
    Case("size", use("Size"), shapes={"input": [2, 3]}, known={"output": 6}),
]


@each(FORWARD)
def test_sizes_are_expressions(case):
    case.check()


SOLVED = [
    Case(
        "concat",
        use("Concat", axis=0, wires=TWO),
        shapes={"a": ["N", 3], "b": ["N", 3], "out": [8, 3]},
        found={"a": [4, 3], "b": [4, 3]},
    ),
    Case(
        "flatten",
        use("Flatten", start_dim=0),
        shapes={"input": ["H", 4], "output": [12]},
        found={"input": [3, 4]},
    ),
    Case(
        "arange",
        of_shape(lambda x: ml.Arange()(stop=x.shape[0] * 2 + 1)),
        shapes={"x": ["N", 4], "out": [7]},
        found={"x": [3, 4]},
    ),
    Case(
        "reshape to a product",
        of_shape(lambda x: x.reshape((x.shape[0], x.shape[1] * x.shape[2]))),
        shapes={"x": ["N", "H", 8], "out": [None, 48]},
        found={"x": ["N", 6, 8], "out": ["N", 48]},
    ),
    Case(
        "slice without the first two",
        of_shape(lambda x: x[2:]),
        shapes={"x": ["N"], "out": [3]},
        found={"x": [5]},
    ),
    Case(
        "slice without the last three",
        of_shape(lambda x: x[1:-3]),
        shapes={"x": ["N"], "out": [4]},
        found={"x": [8]},
    ),
    Case(
        "a size of two that the wires decide",
        use("MaxPool2D", 2),
        shapes={"input": [2, 3, "H", 8], "output": [2, 3, 4, None]},
        found={"input": [2, 3, "H", 8], "output": [2, 3, 4, 4]},
    ),
    Case(
        "one symbol for two sizes",
        use("Pad", ((1, 2), (0, 0))),
        shapes={"input": ["N", "N"], "output": [5, None]},
        found={"input": [2, 2], "output": [5, 2]},
    ),
]


@each(SOLVED)
def test_sizes_are_solved_for(case):
    case.check()


@pytest.mark.parametrize(
    ("make", "shapes", "impossible"),
    [
        (of_shape(lambda x: ml.Arange()(stop=x.shape[0] * 2 + 1)), {"x": ["N"]}, [4]),
        (of_shape(lambda x: ml.Arange()(stop=x.shape[0] + 2)), {"x": ["N"]}, [1]),
        (of_shape(lambda x: x[2:5]), {"x": ["N"]}, [4]),
        (use("Pad", ((1, 2),), wires={"input": "x", "output": "out"}), {"x": ["N"]}, [2]),
    ],
)
def test_sizes_that_no_number_gives(make, shapes, impossible):
    model = make()
    model.set_shapes(shapes)
    before = model._node.dump()
    with pytest.raises(ShapeError):
        model.set_shapes(out=impossible)
    assert model._node.dump() == before


def test_equal_expressions_are_one_size():
    """N+1 made twice is one size: the sum of both has no broadcast left open."""
    model = ml.Model()
    x, row = ml.IOKey("x", shape=["N", 3]), ml.IOKey("row", shape=[1, 3])
    model |= ml.Concat(axis=0)(input=[x, row], output="behind")
    model |= ml.Concat(axis=0)(input=[row, x], output="before")
    model |= ml.Add()(left="behind", right="before", output="out")
    assert model.shapes["out"] == ["N+1", 3]


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.NumpyBackend])
@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda x: x / x.shape[-1].tensor().sqrt(), [[0.5] * 4] * 2),
        (lambda x: (x.shape[0] * x.shape[1] + 1).tensor(), 9),
        (lambda x: x.shape.tensor(), [2, 4]),
        (lambda x: ml.ToTensor()(((x.shape[0], 2.5), (1, x.shape[1]))), [[2.0, 2.5], [1.0, 4.0]]),
    ],
)
def test_open_sizes_become_tensors(backend, made, expected):
    x = ml.IOKey("x", shape=["N", "K"])
    pm = ml.compile(ml.Model.create(y=made(x)), backend(), data_keys={"x"})
    found = pm.evaluate({}, {"x": np.ones((2, 4), "float32")})["y"]
    np.testing.assert_array_equal(found, expected)
    assert np.asarray(found).dtype.kind == np.asarray(expected).dtype.kind


def read_by_a_weight() -> ml.Model:
    """f is known to be 12 wide, which no size of x tells."""
    model = ml.Model()
    model |= ml.Flatten(start_dim=1)(input="x", output="f")
    w = ml.IOKey("w", shape=[5, 12])
    model |= ml.Linear(5, use_bias=False)(input="f", weight=w, output="y")
    model.set_shapes(x=["batch", "s", "t"])
    return model


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.NumpyBackend])
def test_a_size_that_only_a_reader_knows(backend):
    pm = ml.compile(read_by_a_weight(), backend(), trainable_keys={"x"})
    w = np.arange(60.0, dtype="float32").reshape(5, 12)
    ones = np.ones((2, 5), "float32")
    for s, t in ((3, 4), (6, 2)):
        x = np.arange(24.0, dtype="float32").reshape(2, s, t)
        outputs, gradients = pm.evaluate({"w": w, "x": x}, {}, output_gradients={"y": ones})
        np.testing.assert_array_equal(outputs["y"], x.reshape(2, 12) @ w.T)
        np.testing.assert_array_equal(gradients["x"], (ones @ w).reshape(2, s, t))
        np.testing.assert_array_equal(gradients["w"], ones.T @ x.reshape(2, 12))


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.NumpyBackend])
def test_a_call_that_contradicts_a_known_size(backend):
    pm = ml.compile(read_by_a_weight(), backend(), data_keys={"x"})
    params = {"w": np.ones((5, 12), "float32")}
    with pytest.raises(ShapeError, match="'f' must have size 12 in axis 1, got 15") as raised:
        pm.evaluate(params, {"x": np.ones((2, 3, 5), "float32")})
    assert raised.value.code == "MTH108"
    assert raised.value.hint


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.NumpyBackend])
def test_known_sizes_are_checked_one_by_one(backend):
    """As many elements, but in other axes."""
    model = ml.Model()
    model |= ml.MaxPool2D(2)(input="x", output="y")
    model |= ml.Add()(left="y", right=ml.IOKey("b", shape=[1, 1, 4, 9]), output="z")
    model.set_shapes(x=["N", 1, "h", "w"], y=["N", 1, 4, 9])
    pm = ml.compile(model, backend(), data_keys={"x", "b"})
    b = np.zeros((1, 1, 4, 9), "float32")
    for h, w in ((8, 18), (9, 19)):
        found = pm.evaluate({}, {"x": np.ones((2, 1, h, w), "float32"), "b": b})["z"]
        assert found.shape == (2, 1, 4, 9)
    with pytest.raises(ShapeError):
        pm.evaluate({}, {"x": np.ones((2, 1, 18, 8), "float32"), "b": b})


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.NumpyBackend])
@pytest.mark.parametrize("shapes", [{}, {"h": ["N", 2], "x": ["M", 3]}])
def test_sizes_that_only_results_have(backend, shapes):
    """What is left of N rows after the first M is no expression: max(N - M, 0)."""
    model = ml.Model()
    model |= ml.Buffer()(input="h")
    model |= ml.Buffer()(input="x")
    model |= ml.Concat(axis=0)(input=[model.h[model.x.shape[0] :], model.h[:1]], output="y")
    pm = ml.compile(model, backend(), shapes=shapes, data_keys={"h", "x"})
    for n, m in [(5, 3), (4, 4), (2, 3), (5, 0)]:
        h, x = np.arange(2.0 * n, dtype="float32").reshape(n, 2), np.ones((m, 3), "float32")
        y = np.concatenate([h[m:], h[:1]])
        ones = {"y": np.ones_like(y)}
        outputs, gradients = pm.evaluate({}, {"h": h, "x": x}, output_gradients=ones, wrt=["h"])
        np.testing.assert_array_equal(outputs["y"], y)
        rows = 1.0 * (np.arange(n) >= m) + (np.arange(n) < 1)
        np.testing.assert_array_equal(gradients["h"], np.repeat(rows[:, None], 2, 1))


def test_named_sizes_survive_to_the_summary(capsys):
    model = ml.Model()
    model |= ml.Convolution2D(3, 8, stride=2, padding=1)(input="image", output="features")
    model |= ml.Flatten(start_dim=1)(input="features", output="flat")
    model.set_shapes(image=["batch", 3, "height", "width"])
    model.summary(symbolic=True)
    shown = capsys.readouterr().out
    for name in ("batch", "height", "width", "floor((height+1)/2)"):
        assert name in shown


def test_names_of_a_child_survive_in_its_parent():
    child = ml.Model()
    child |= ml.Relu()(input="x", output="y")
    child.set_shapes(x=["batch", 4])
    parent = ml.Model()
    parent |= child(x="a", y="b")
    assert parent.shapes["b"] == ["batch", 4]


# --- slices as Python has them -------------------------------------------------------------------

BOUNDS = st.one_of(st.none(), st.integers(-6, 6))


@given(size=st.integers(0, 9), start=BOUNDS, stop=BOUNDS, step=st.sampled_from([-3, -1, 1, 2]))
def test_lengths_of_slices_are_pythons(size, start, stop, step):
    model = ml.models.Indexer(index=slice(start, stop, step))
    model.set_shapes(input=[size])
    assert model.shapes["output"] == [len(range(size)[start:stop:step])]


@given(size=st.integers(0, 9), start=BOUNDS, stop=BOUNDS, step=st.sampled_from([-3, -1, 1, 2]))
def test_the_length_of_a_slice_keeps_every_size_that_gives_it(size, start, stop, step):
    """Backwards nothing true is excluded; a size that remains alone gives the length."""
    length = len(range(size)[start:stop:step])
    model = ml.models.Indexer(index=slice(start, stop, step))
    model.set_shapes(input=["N"], output=[length])
    (found,) = model.shapes["input"]
    if isinstance(found, int):
        assert found == size
    else:
        model.set_shapes(input=[size])


@given(
    start=st.integers(-9, 9),
    stop=st.integers(-9, 9),
    step=st.sampled_from([-4, -1, 1, 2, 3]),
    open_end=st.sampled_from(["start", "stop"]),
)
def test_the_length_of_a_range_keeps_every_end_that_gives_it(start, stop, step, open_end):
    ends = {"start": start, "stop": stop}
    known = ends.pop(open_end)
    model = ml.Model()
    model |= ml.Arange(start=ml.models.TBD, step=step)(
        **ends, **{open_end: ml.IOKey("end", type=int)}, output="out"
    )
    model.set_shapes(out=[len(range(start, stop, step))])
    found = value_of(model, "end")
    assert found is ml.models.TBD or found == known
    model.set_values(end=known)


# --- intervals -----------------------------------------------------------------------------------


def rows_of(interval):
    """x with n rows, n in the interval, and the sum with one row of its own."""
    model = ml.Model()
    n = ml.IOKey("n", type=int, interval=interval)
    model |= ml.models.Ones()(shape=(n, 3), output="ones")
    model |= ml.Add()(left="ones", right="other", output="out")
    model.set_types(other=ml.Tensor)
    return model


def test_an_interval_keeps_sizes_in_it():
    model = rows_of((2, 8))
    before = model._node.dump()
    with pytest.raises(ShapeError):
        model.set_shapes(ones=[9, 3])
    assert model._node.dump() == before
    model.set_shapes(ones=[8, 3])
    assert value_of(model, "n") == 8


def test_an_interval_without_1_decides_broadcasting():
    assert rows_of((2, None)).shapes["out"][-2:] != [None, 3]
    model = rows_of((2, None))
    model.set_shapes(other=["m", 3])
    assert model.shapes["out"] == model.shapes["ones"]
    undecided = rows_of((0, None))
    undecided.set_shapes(other=["m", 3])
    assert undecided.shapes["out"] != undecided.shapes["ones"]


def test_an_interval_of_one_number_is_its_value():
    assert value_of(rows_of((4, 4.5)), "n") == 4


def test_two_intervals_of_one_wire_meet():
    model = ml.Model()
    model |= ml.Buffer()(input=ml.IOKey("a", type=int, interval=(0, 5)))
    model |= ml.Buffer()(input=ml.IOKey("b", type=int, interval=(5, 9)))
    model.merge_connections("a", "b", name="a")
    assert value_of(model, "a") == 5


@pytest.mark.parametrize("value", [3, 0.5, 2.5])
def test_values_in_the_interval_are_taken(value):
    model = ml.Model()
    model |= ml.Buffer()(input=ml.IOKey("a", interval=(0.5, 3)), output="b")
    model.set_values(a=value)
    assert value_of(model, "b") == value


@pytest.mark.parametrize("value", [4, 0.25, -1, "text"])
def test_values_outside_are_refused(value):
    model = ml.Model()
    model |= ml.Buffer()(input=ml.IOKey("a", interval=(0.5, 3)), output="b")
    before = model._node.dump()
    with pytest.raises(MithrilError):
        model.set_values(a=value)
    assert model._node.dump() == before
    with pytest.raises(MithrilError):
        ml.IOKey("a", value=value, interval=(0.5, 3))


def test_elements_of_a_constant_lie_in_the_interval():
    def made(values):
        model = ml.Model()
        key = ml.IOKey("a", value=ml.Tensor(values), interval=(0, 1))
        model |= ml.Relu()(input=key, output="b")
        return model

    assert made([0.0, 0.5, 1.0]).shapes["b"] == [3]
    with pytest.raises(MithrilError, match=r"(?s)\[0, 1\].*1\.5"):
        made([0.0, 1.5])


@pytest.mark.parametrize("bad", [3, (1,), (1, 2, 3), (2, 1), ("a", 2), (True, 2), float("nan")])
def test_what_is_no_interval(bad):
    with pytest.raises(MithrilError, match="interval"):
        ml.IOKey("a", interval=bad)


# --- widths as facts -----------------------------------------------------------------------------


def lookup():
    model = ml.Model()
    model |= ml.Embedding(5, 3)(input="tokens", weight="table", output="out")
    return model


@pytest.mark.parametrize("width", [ml.int32, "int32", np.int32, np.dtype("int64")])
def test_the_width_of_an_input_is_stated_at_compile(width):
    pm = ml.compile(
        lookup(), ml.CpuBackend(), shapes={"tokens": [4]}, types={"tokens": width}, inference=True
    )
    expected = ml.types.as_dtype(width)
    (tokens,) = (key for key in pm._compilation.compiled.keys if key["name"] == "tokens")
    assert tokens["dtype"] == expected
    table = np.arange(15, dtype="float32").reshape(5, 3)
    out = pm.evaluate({"table": table}, {"tokens": np.array([0, 4, 1, 1], expected.numpy())})
    np.testing.assert_array_equal(out["out"], table[[0, 4, 1, 1]])


def test_widths_promote_what_is_made_of_them():
    model = ml.Model()
    model |= ml.Add()(left="a", right="b", output="out")
    model.set_types(a=ml.Tensor, b=ml.Tensor)
    shapes = {"a": [2], "b": [2]}
    types = {"a": ml.int8, "b": ml.float64}
    pm = ml.compile(
        model, ml.CpuBackend(), shapes=shapes, types=types, data_keys={"a", "b"}, inference=True
    )
    out = pm.evaluate({}, {"a": np.array([1, 2], "int8"), "b": np.array([0.5, 1e-12])})["out"]
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out, [1.5, 2 + 1e-12])


def test_widths_that_clash_with_the_model_are_refused():
    with pytest.raises(MithrilError, match="float"):
        ml.compile(lookup(), ml.CpuBackend(), types={"tokens": ml.float32})
    with pytest.raises(MithrilError, match="'out' is no input"):
        ml.compile(lookup(), ml.CpuBackend(), types={"out": ml.float16})

"""Hostile arguments: data that do not fit, and composition with anything in any place.

Every call ends in a typed error, or in the right result; whatever fails changes nothing.
"""

import contextlib
import io
import subprocess
import sys
import warnings

import mithril as ml
import numpy as np
import pytest
from mithril.errors import (
    ArgumentError,
    DTypeError,
    InternalError,
    KeyNotFound,
    MithrilError,
    ShapeError,
    SignatureError,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(5, 3)).astype(np.float32)
W = rng.normal(size=(4, 3)).astype(np.float32)
B = rng.normal(size=4).astype(np.float32)


@pytest.fixture
def backend(backend_name):
    return ml.get_backend(backend_name)


def model():
    m = ml.Model()
    m |= ml.Linear(4)(input="input", weight="w", bias="b", output="h")
    m += ml.Tanh()(output="output")
    return m


def expected(x, w=W, b=B):
    return np.tanh(np.float64(x) @ np.float64(w).T + np.float64(b))


class Failing:
    """Whatever is asked of it fails, in a class of its own."""

    ndim, dtype = 2, "q"

    def fail(self, *args, **kwargs):
        raise ZeroDivisionError("boom")

    __array__ = __index__ = __repr__ = __hash__ = __float__ = fail


def deep(make, levels=10**4):
    value = 1.0
    for _ in range(levels):
        value = make(value)
    return value


def cyclic():
    value = []
    value.append(value)
    return value


# --- data that are taken ----------------------------------------------------------------------


class Subclass(np.ndarray):
    pass


def misaligned(x):
    return np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)


def read_only(x):
    copy = x.copy()
    copy.flags.writeable = False
    return copy


TAKEN = {
    "list": lambda x: x.tolist(),
    "tuple": lambda x: tuple(map(tuple, x.tolist())),
    "memoryview": memoryview,
    "float64": np.float64,
    "float16": np.float16,
    "integers": lambda x: (x * 9).astype(np.int8),
    "unsigned": lambda x: np.abs(x * 9).astype(np.uint32),  # JAX's integers have 32 bits
    "uint64": lambda x: np.full(x.shape, 7, np.uint64),
    "bool": lambda x: x > 0,
    "fortran": np.asfortranarray,
    "negative strides": lambda x: x[::-1, ::-1],
    "zero strides": lambda x: np.broadcast_to(x[:1], x.shape),
    "every other": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "read-only": read_only,
    "big-endian": lambda x: x.astype(">f4"),
    "misaligned": misaligned,
    "subclass": lambda x: x.view(Subclass),
    "matrix": np.asmatrix,
    "nan": lambda x: np.where(x > 0, np.nan, x),
    "inf": lambda x: np.where(x > 0, np.inf, x),
    "no rows": lambda x: x[:0],
    "one row": lambda x: x[:1],
}


@pytest.mark.parametrize("how", TAKEN)
@pytest.mark.parametrize("key", ["input", "w"])
@pytest.mark.filterwarnings("ignore::mithril.errors.DTypeWarning")
def test_data_in_any_form(backend, key, how):
    if key == "w" and how == "no rows":
        pytest.skip("a weight without rows is of another shape")
    pm = ml.compile(model(), backend)
    values = {"input": X, "w": np.vstack([W, W])[:4]}
    values[key] = TAKEN[how](values[key])
    if key == "w" and how == "one row":
        values["b"] = B[:1]
        with pytest.raises(ShapeError):
            pm.evaluate({"w": values["w"], "b": B}, {"input": X})
        return
    out = pm.evaluate({"w": values["w"], "b": B}, {"input": values["input"]})["output"]
    with np.errstate(invalid="ignore"):
        wanted = expected(values["input"], values["w"])
    np.testing.assert_allclose(backend.to_numpy(out), wanted, atol=2e-6)


def test_bfloat16(backend):
    x = np.float32(X).astype(ml.bfloat16.numpy())
    out = ml.compile(model(), backend).evaluate({"w": W, "b": B}, {"input": x})["output"]
    np.testing.assert_allclose(backend.to_numpy(out), expected(np.float32(x)), atol=2e-6)


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["cpu", "numpy", "torch", "jax", "mlx"])
def test_foreign_tensors(name):
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    mx = pytest.importorskip("mlx.core")
    backend = ml.get_backend(name)
    pm = ml.compile(model(), backend)
    exact = torch.tensor(X)
    for x in (
        exact,
        exact.clone().requires_grad_(),
        exact.bfloat16(),
        exact.T.contiguous().T,
        torch.complex(exact, -exact).conj().imag,
        jax.numpy.asarray(X),
        jax.numpy.asarray(X).astype("bfloat16"),
        mx.array(np.float32(X)),
        mx.array(np.float32(X)).astype(mx.bfloat16),
    ):
        out = pm.evaluate({"w": W, "b": B}, {"input": x})["output"]
        if isinstance(x, mx.array):
            x = np.asarray(x.astype(mx.float32))
        wanted = expected(x.float().numpy(force=True) if hasattr(x, "detach") else np.float32(x))
        np.testing.assert_allclose(backend.to_numpy(out), wanted, atol=2e-6)
    deleted = jax.numpy.array(X)
    deleted.delete()
    for x in (deleted, torch.empty(5, 3, device="meta"), exact.to_sparse(), exact.to_sparse_csr()):
        with pytest.raises(ArgumentError, match="'input': "):
            pm.evaluate({"w": W, "b": B}, {"input": x})


# --- data that are refused --------------------------------------------------------------------

REFUSED = {
    "none": (lambda: None, DTypeError),
    "text": (lambda: "x", DTypeError),
    "bytes": (lambda: b"x", DTypeError),
    "ragged": (lambda: [[1, 2, 3], [4]], ArgumentError),
    "mixed": (lambda: [[1, "a", 3]], DTypeError),
    "generator": (lambda: (i for i in range(3)), DTypeError),
    "set": (lambda: {1, 2}, DTypeError),
    "dictionary": (dict, DTypeError),
    "object": (object, DTypeError),
    "objects": (lambda: X.astype(object), DTypeError),
    "strings": (lambda: X.astype(str), DTypeError),
    "dates": (lambda: np.zeros((5, 3), "M8[s]"), DTypeError),
    "records": (lambda: np.zeros((5, 3), [("a", "f4")]), DTypeError),
    "void": (lambda: np.zeros((5, 3), "V4"), DTypeError),
    "complex": (lambda: X * 1j, DTypeError),
    "long double": (lambda: X.astype(np.longdouble), DTypeError),
    "huge": (lambda: 10**400, DTypeError),
    "masked": (lambda: np.ma.masked_array(X, X > 0), ArgumentError),
    "deep": (lambda: deep(lambda v: [v]), ArgumentError),
    "cyclic": (cyclic, ArgumentError),
    "failing": (Failing, ArgumentError),
    "a model": (ml.Model, DTypeError),
    "a connection": (lambda: ml.IOKey("x"), (DTypeError, ArgumentError)),
    "a symbolic tensor": (lambda: ml.Tensor(X), DTypeError),
    "rank 0": (lambda: np.float32(1), ShapeError),
    "a number": (lambda: 3, ShapeError),
    "wrong size": (lambda: X[:, :2], ShapeError),
    "no columns": (lambda: X[:, :0], ShapeError),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("key", ["input", "w"])
@pytest.mark.parametrize("shapes", [{}, {"input": [None, 3]}], ids=["any shape", "known shape"])
def test_data_that_do_not_fit(backend, shapes, key, what):
    make, error = REFUSED[what]
    pm = ml.compile(model(), backend, shapes=shapes)
    data, params = {"input": X.copy()}, {"w": W.copy(), "b": B.copy()}
    before = pm.evaluate(params, data)["output"]
    bad = {**data, **params, key: make()}
    given = {"w": bad["w"], "b": bad["b"]}, {"input": bad["input"]}
    with pytest.raises(error) as caught:
        pm.evaluate(*given)
    assert not isinstance(caught.value, InternalError)
    assert caught.value.code.startswith("MTH") and len(str(caught.value)) < 2000
    assert key in str(caught.value) or "input" in str(caught.value)  # the other side of the clash
    assert given[0].keys() == params.keys() and given[1].keys() == data.keys()
    after = pm.evaluate(params, data)["output"]
    np.testing.assert_array_equal(backend.to_numpy(before), backend.to_numpy(after))


def test_wrong_parameters(backend):
    pm = ml.compile(model(), backend, shapes={"input": [None, 3]})
    good = {"w": W, "b": B}
    for bad in ({"w": W.T}, {"w": W[None]}, {"w": W[0]}, {"b": B[:3]}, {"b": B[None]}, {"b": 1.0}):
        ((key, value),) = bad.items()
        with pytest.raises(ShapeError, match=f"'{key}'") as caught:
            pm.evaluate(good | bad, {"input": X})
        assert str(list(np.shape(value))) in str(caught.value)
        assert str(list(np.shape(good[key]))) in str(caught.value)
    for bad in ({}, {"w": W}, {"W": W, "b": B}, {1: W, None: B}):
        if bad:
            with pytest.raises(KeyNotFound, match="params must have"):
                pm.evaluate(bad, {"input": X})
    for bad in ([], 3, "w", W, [("w", W)], {"w", "b"}, Failing()):
        with pytest.raises(SignatureError, match="params: requires a dictionary"):
            pm.evaluate(bad, {"input": X})
        with pytest.raises(SignatureError, match="data: requires a dictionary"):
            pm.evaluate(good, bad)


def test_keys_that_are_no_names(backend):
    pm = ml.compile(model(), backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = pm.evaluate({"w": W, "b": B, 1: 2, (3,): 4}, {"input": X, None: 5, "\ud800": 6})
    np.testing.assert_allclose(backend.to_numpy(out["output"]), expected(X), atol=2e-6)


# --- composition ------------------------------------------------------------------------------


def small():
    m = ml.Model()
    m |= ml.Linear(4)(input="x", weight="w", output="h")
    m.set_shapes(w=[4, 3])
    return m


def snapshot(m):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        m.summary(shapes=True, types=True, symbolic=True)
    return m.input_keys, m.output_keys, m.external_keys, m.get_shapes(), text.getvalue()


VALUES = {
    "-1": -1,
    "2**31": 2**31,
    "2**62": 2**62,
    "2**63": 2**63,
    "10**400": 10**400,
    "nan": float("nan"),
    "inf": float("inf"),
    "fraction": 1.5,
    "bool": True,
    "none": None,
    "complex": 1j,
    "text": "zz",
    "empty text": "",
    "bytes": b"x",
    "long name": "x" * 10**6,
    "nul": "a\0b",
    "surrogate": "\ud800",
    "automatic": "$1",
    "unicode": "名\u2028",
    "path": "../../x",
    "dunder": "__class__",
    "keyword": "class",
    "deep tuple": deep(lambda v: (v,)),
    "deep list": deep(lambda v: [v]),
    "cyclic": cyclic(),
    "range": range(10**9),
    "sizes": (2**31,) * 40,
    "object": object(),
    "failing": Failing(),
    "array": np.ones(3),
    "no elements": np.ones((0, 3)),
    "objects": np.array([object()]),
    "strings": np.array(["a"]),
    "uint64": np.uint64(2**64 - 1),
    "dictionary": {},
    "type": int,
    "function": len,
    "class": ml.Relu,
    "dtype": ml.float32,
    "constant": ml.Constant.EPSILON,
    "to be decided": ml.TBD,
    "slice": slice(1, 2, 0),
    "ellipsis": ...,
    "a Tensor": lambda m: ml.Tensor([1.0]),
    "the model": lambda m: m,
    "its wire": lambda m: m["w"],
    "a foreign wire": lambda m: small()["w"],
    "a new wire": lambda m: ml.IOKey("q"),
}

CALLS = {
    "set_shapes": lambda m, v: m.set_shapes(v),
    "set_shapes of a key": lambda m, v: m.set_shapes(x=v),
    "set_shapes of a size": lambda m, v: m.set_shapes(x=[v, 3]),
    "set_shapes of a rank": lambda m, v: m.set_shapes(x=[(v, ...), 3]),
    "set_types": lambda m, v: m.set_types(x=v),
    "set_values": lambda m, v: m.set_values(x=v),
    "set_differentiability": lambda m, v: m.set_differentiability(x=v),
    "set_cin": lambda m, v: m.set_cin(v),
    "set_cout": lambda m, v: m.set_cout(v),
    "expose_keys": lambda m, v: m.expose_keys(v),
    "expose_keys as": lambda m, v: m.expose_keys(name=v),
    "rename_key": lambda m, v: m.rename_key(v, "new"),
    "rename_key to": lambda m, v: m.rename_key("x", v),
    "merge_connections": lambda m, v: m.merge_connections("x", v),
    "merge_connections as": lambda m, v: m.merge_connections("x", "w", name=v),
    "bind_state_keys": lambda m, v: m.bind_state_keys("x", "h", v),
    "why": lambda m, v: m.why(v),
    "summary": lambda m, v: m.summary(depth=v),
    "summary of": lambda m, v: m.summary(name=v),
    "getitem": lambda m, v: m[v],
    "|=": lambda m, v: m.__ior__(v),
    "+=": lambda m, v: m.__iadd__(v),
    "extend": lambda m, v: m.extend(v),
    "input": lambda m, v: m.__ior__(ml.Relu()(input=v)),
    "output": lambda m, v: m.__ior__(ml.Relu()(input="h", output=v)),
    "operand": lambda m, v: m.__ior__(ml.Add()(left=v, right="h")),
    "add": lambda m, v: m["h"] + v,
    "index": lambda m, v: m["h"][v],
    "reshape": lambda m, v: m.__ior__(ml.Reshape(v)(input="h")),
    "broadcast": lambda m, v: m.__ior__(ml.BroadcastTo(v)(input="h")),
    "sum": lambda m, v: m["h"].sum(v),
    "cast": lambda m, v: m["h"].cast(v),
    "Linear": lambda m, v: m.__ior__(ml.Linear(v)(input="h")),
    "name": lambda m, v: ml.Linear(3, name=v),
    "Model": lambda m, v: ml.Model(v),
    "Convolution2D": lambda m, v: m.__ior__(ml.Convolution2D(3, v)(input="i", stride=v, padding=v)),
    "Dropout": lambda m, v: m.__ior__(ml.Dropout(v)(input="h")),
    "Softmax": lambda m, v: m.__ior__(ml.Softmax(axis=v)(input="h")),
    "Transpose": lambda m, v: m.__ior__(ml.Transpose(v)(input="h")),
    "Arange": lambda m, v: m.__ior__(ml.Arange(v)(output="r")),
    "Embedding": lambda m, v: m.__ior__(ml.Embedding(v, v)(input="t")),
    "IOKey": lambda m, v: ml.IOKey(v),
    "IOKey value": lambda m, v: ml.IOKey("q", value=v),
    "IOKey shape": lambda m, v: ml.IOKey("q", shape=[v]),
    "IOKey type": lambda m, v: ml.IOKey("q", type=v),
    "IOKey differentiable": lambda m, v: ml.IOKey("q", differentiable=v),
    "Tensor": lambda m, v: ml.Tensor(v),
    "Tensor[]": lambda m, v: ml.Tensor[v],
    "create": lambda m, v: ml.Model.create(out=v),
    "compile model": lambda m, v: ml.compile(v, ml.NumpyBackend()),
    "compile backend": lambda m, v: ml.compile(m, v),
}
OPTIONS = (
    "shapes data_keys constant_keys trainable_keys discard_keys types mode jit autodiff jit_options"
    " strict inference"
)
for option in OPTIONS.split():
    CALLS[f"compile {option}"] = lambda m, v, o=option: ml.compile(m, ml.NumpyBackend(), **{o: v})
for option in ("shapes", "constant_keys", "types"):
    CALLS[f"compile {option} of a key"] = lambda m, v, o=option: ml.compile(
        m, ml.NumpyBackend(), **{o: {"x": v}}
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.device
def test_anything_in_any_place(call):
    for name, value in VALUES.items():
        m = small()
        value = value(m) if getattr(value, "__name__", "") == "<lambda>" else value
        before = snapshot(m)
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                CALLS[call](m, value)
        except InternalError:
            raise
        except MithrilError as error:
            assert len(str(error)) < 10_000, name
            assert snapshot(m) == before, name
        except Exception as error:
            pytest.fail(f"{call} of {name}: {type(error).__name__}: {str(error)[:300]}")
        snapshot(m)


@pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning")
@pytest.mark.parametrize("name", ["../../x", "__class__", "class", "名", "a b", "a\0b", "'", "\n"])
@pytest.mark.device
def test_names_are_only_names(name, tmp_path):
    m = ml.Model()
    m |= ml.Linear(4)(input=name, weight="w", output="h")
    m += ml.Tanh()(output="out" + name)
    pm = ml.compile(m, ml.NumpyBackend(), data_keys={name}, file_path=str(tmp_path / "m.py"))
    bias = next(key for key in pm.param_keys if key != "w")
    out = pm.evaluate({"w": W, bias: B}, {name: X})
    np.testing.assert_allclose(out["out" + name], expected(X), atol=2e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["m.py"]


def line_of(text):
    with open(__file__) as file:
        return next(i for i, line in enumerate(file, 1) if line.strip().startswith(text))


def test_clashes_of_shapes_name_both_facts():
    m = small()
    before = snapshot(m)
    with pytest.raises(ShapeError) as caught:
        m.set_shapes(x=["N", 7])  # 7 meets 3
    text = str(caught.value)
    assert "7" in text and "3" in text
    assert f"test_bad_input.py:{line_of('m.set_shapes(x=')}" in text
    assert f"test_bad_input.py:{line_of('m.set_shapes(w=')}" in text
    assert snapshot(m) == before


def test_clashes_of_dtypes_name_both_facts():
    m = ml.Model()
    m |= ml.Embedding(10, 4)(input="tokens", output="e")
    before = snapshot(m)
    with pytest.raises(DTypeError) as caught:
        m.set_types(tokens=ml.Tensor[float])
    text = str(caught.value)
    assert "tokens" in text and "float" in text and "int" in text
    assert f"test_bad_input.py:{line_of('m.set_types(tokens')}" in text
    assert f"test_bad_input.py:{line_of('m |= ml.Embedding(10')}" in text
    assert snapshot(m) == before


def test_structure_that_cannot_be():
    m = small()
    m |= ml.Relu()(input="h", output="y")
    before = snapshot(m)
    other = small()
    for bad, error in (
        (lambda: m.__ior__(m), ValueError),
        (lambda: m.__ior__(ml.Relu()(input="y", output="x")), KeyError),  # a cycle
        (lambda: m.__ior__(ml.Relu()(input="y", output="y")), (KeyError, ValueError)),
        (lambda: m.__ior__(ml.Relu()(input="w", output="y")), ValueError),  # two writers
        (lambda: m.merge_connections("x", "y"), (KeyError, ValueError)),
        (lambda: m.__ior__(ml.Relu()(input=other["h"])), (KeyError, ValueError)),
        (lambda: m.expose_keys(other["h"]), (KeyError, ValueError)),
        (lambda: m.set_shapes({other["x"]: [1, 2]}), (KeyError, ValueError)),
    ):
        with pytest.raises(error) as caught:
            bad()
        assert isinstance(caught.value, MithrilError)
        assert not isinstance(caught.value, InternalError)
        assert snapshot(m) == before


def test_operators_of_wrong_kinds():
    x = ml.IOKey("x")
    for bad in (
        lambda: x + "text",
        lambda: x + object(),
        lambda: x @ {},
        lambda: 3 @ x @ 4,
        lambda: ml.Relu()(1, 2, 3, 4),
        lambda: ml.Relu()(nope=1),
        lambda: ml.Relu()("a", input="b"),
        lambda: ml.Add("a", "b", "c", "d", "e"),
    ):
        with pytest.raises((MithrilError, TypeError)):
            bad()


def test_a_small_stack_is_enough():
    code = """
import mithril as ml
value = 1
for _ in range(10**4):
    value = (value,)
m = ml.Model()
for bad in (lambda: m.__ior__(ml.Relu()(input=value)), lambda: m.set_shapes(value)):
    try:
        bad()
        print("taken")
    except ml.errors.MithrilError:
        print("refused")
"""
    shell = ["bash", "-c", 'ulimit -s 256; exec "$0" "$@"', sys.executable, "-c", code]
    out = subprocess.run(shell, capture_output=True, text=True, timeout=60)
    assert out.stdout.split() == ["refused", "refused"], out.stderr[-500:]


@pytest.mark.parametrize("approximate", ["tanh", "none", 1, 0.0, None])
def test_gelu_is_approximate_or_not(approximate):
    """`approximate` is a bool (logical reference 4.1); PyTorch's words are refused, not ignored."""
    with pytest.raises(ml.errors.MithrilError, match="approximate"):
        model = ml.Model()
        model |= ml.Gelu(approximate=approximate)(input="x", output="y")


# --- what holds for some sizes only --------------------------------------------------------------

OPEN = {
    "reshape": (lambda x: x.reshape((5, -1)), (5, 4), (2, 4)),
    "reshape in the middle": (lambda x: x.reshape((x.shape[0], 4, -1)), (2, 8), (2, 6)),
    "index": (lambda x: x[3], (4, 1), (3, 1)),
    "index from the end": (lambda x: x[:, -3], (1, 3), (1, 2)),
    "window": (lambda x: ml.MaxPool2D(3)(input=x[None, None]), (3, 4), (2, 4)),
}


@pytest.mark.device
@pytest.mark.parametrize("engine", ["CpuBackend", "NumpyBackend"])
@pytest.mark.parametrize("name", OPEN)
def test_sizes_of_a_call_that_an_op_does_not_take(name, engine):
    template, good, bad = OPEN[name]
    model = ml.Model()
    model |= ml.models.Buffer()(input=template(ml.IOKey("x", shape=["n", "m"])), output="y")
    pm = ml.compile(model, getattr(ml, engine)(), data_keys={"x"}, inference=True)
    for _ in range(2):
        assert pm.evaluate({}, {"x": np.ones(good, "float32")})["y"].size > 0
        with pytest.raises((ShapeError, ArgumentError), match="in model"):
            pm.evaluate({}, {"x": np.ones(bad, "float32")})


@pytest.mark.parametrize("cls", [ml.HardShrink, ml.SoftShrink])
def test_shrinking_by_less_than_nothing_is_refused(cls):
    model = ml.Model()
    with pytest.raises(MithrilError, match="'lambd' must not be negative, got -1.0"):
        model |= cls(-1.0)(input="x")
    assert model.input_keys == []

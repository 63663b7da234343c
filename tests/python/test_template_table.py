"""Expression templates (reference 2.8, and `%`, unary `+`, reflected `@`, `abs()`, `len()`): each
one's value is NumPy's in float64, on the engine and on NumPy."""

import mithril as ml
import numpy as np
import pytest

X = np.array([[1.5, -2.0, 0.5], [3.0, 4.0, -1.0]])
Y = np.array([[2.0, 0.5, -1.5], [1.0, 2.0, 3.0]])
I = np.array([[5, -3, 2], [7, 0, 1]])  # noqa: E741
J = np.array([[2, 1, 3], [1, 2, 1]])
B = np.array([[True, False, True], [False, False, True]])
C = np.array([[True, True, False], [False, True, True]])
TYPES = {"x": float, "y": float, "i": int, "j": int, "b": bool, "c": bool}
DATA = {"x": X, "y": Y, "i": I, "j": J, "b": B, "c": C}

# Text, as a template and as NumPy reads it; where they differ there are two texts.
SAME = """
x + y | x - y | x * y | x / y | x // y | x ** 2 | 2.0 ** x | 1 + x | 1 - x | 3 * x | 3 / x
5 // x | x % y | 7.0 % y | i % j | +x | -x | abs(x) | abs(i) | x @ y.T | i @ j.T
x > y | x >= 0.5 | x < y | x <= y | 1 > x | 2 <= x | b & c | True & b
b ^ c | True ^ b | ~b | i & j | i << j | i >> j | 2 << j | 64 >> j
x.mean() | x.mean(axis=1) | x.mean(axis=(0, 1)) | x.sum(axis=-1) | i.sum()
x.max(axis=0) | x.min(axis=1) | x.prod(axis=1) | x.var(axis=0) | x.T | x.transpose((1, 0))
x.reshape((3, 2)) | x.reshape((-1,)) | x.reshape((x.shape[1], -1)) | x.reshape(x.shape)
x[0] | x[-1] | x[None] | x[...] | x[0, 1] | x[:, 1] | x[:, 1:] | x[::-1] | x[1, ..., 0]
x[..., ::2] | x[[1, 0]] | x[[0, 1], [2, 0]] | x[:, [2, 0]] | x[0:1, None, 1:] | x[[[0, 1], [1, 0]]]
x[0, :2] * 2 | x[:, 0] + y[:, 1] | (x + y)[1] | (-x).sum() | x[0:x.shape[0] - 1]
x[x.shape[0] - 1] | x[0, 1:x.shape[1]] | x[:, x.shape[1] - 2]
divmod(x, 2.0)[0] | divmod(x, 2.0)[1] | divmod(7.0, y)[1] | x * x.shape[0] | x / x.shape[1]
""".replace("\n", " | ")
ROWS = {text.strip(): text.strip() for text in SAME.split(" | ") if text.strip()} | {
    "b | c": "b | c",
    "True | b": "True | b",
    "i | j": "i | j",
    "x.eq(y)": "x == y",
    "x.ne(1.5)": "x != 1.5",
    "x.abs()": "abs(x)",
    "(x * x).sqrt()": "np.sqrt(x * x)",
    "x.exp()": "np.exp(x)",
    "x.sin()": "np.sin(x)",
    "x.cos()": "np.cos(x)",
    "x.floor()": "np.floor(x)",
    "x.var(axis=1, correction=1.0)": "x.var(axis=1, ddof=1)",
    "x.mean(0, keepdim=True)": "x.mean(0, keepdims=True)",
    "x.sum(axis=1, keepdim=True)": "x.sum(1, keepdims=True)",
    "x.clamp(-1.0, 2.0)": "np.clip(x, -1, 2)",
    "x.clamp(min_val=0.0)": "np.clip(x, 0, None)",
    "x.clamp()": "x",
    "x.cast()": "x",
    "x.cast(ml.int64)": "x.astype(np.int64)",
    "i.cast(ml.float64)": "i.astype(float)",
    "ml.Tensor([[1.0, 2.0]]) @ x": "np.array([[1.0, 2.0]]) @ x",
    "np.array([[1.0, 2.0]]) @ x": "np.array([[1.0, 2.0]]) @ x",
    "np.ones(3) + x": "np.ones(3) + x",
    "x * np.float64(2)": "x * 2",
    "x + ml.Tensor([1.0, 2.0, 3.0])": "x + np.array([1.0, 2, 3])",
    "x[ml.Tensor([1, 0])]": "x[[1, 0]]",
    "x[np.array([1, 0, 1])]": "x[[1, 0, 1]]",
    "x[:, j[1] - 1]": "x[:, [0, 1, 0]]",
    "x[0, j[1] - 1]": "x[0, [0, 1, 0]]",
    "x[j[1, 0] - 1]": "x[0]",
    "x[ml.Tensor([1]), 1:]": "x[[1], 1:]",
    "x.shape[1] * x": "3 * x",
    "x.size() * y": "6 * y",
    "x.size(0) * y": "2 * y",
    "x.len() * y": "2 * y",
    "x[x.len() - 1]": "x[1]",
    "(x.shape[0] * 1.0).tensor() + x": "2.0 + x",
    "x[0, 0:1].item() * y": "1.5 * y",
}


def values_of(texts, backend):
    """What one model of these templates computes, by template."""
    wires = {key: ml.IOKey(key, type=ml.Tensor[kind]) for key, kind in TYPES.items()}
    model = ml.Model()
    for i, text in enumerate(texts):
        result = eval(text, {"ml": ml, "np": np, **wires})
        model |= ml.models.Buffer()(input=result, output=f"out{i}")
    data = {key: DATA[key] for key in model.input_keys if key in DATA}
    shapes = {key: list(value.shape) for key, value in data.items()}
    pm = ml.compile(model, backend, shapes=shapes, data_keys=set(data), inference=True)
    found = pm.evaluate({}, data)
    return {text: np.asarray(found[f"out{i}"]) for i, text in enumerate(texts)}


def rows_of(engine):
    return [text for text in ROWS if engine != "CpuBackend" or ".item()" not in text]


def check(values):
    wrong = {}
    for text, found in values.items():
        expected = eval(ROWS[text], {"np": np, **DATA})
        same = found.shape == np.shape(expected) and np.allclose(found, expected, 1e-12, 1e-12)
        if not same:
            wrong[text] = (found, expected)
    assert not wrong


@pytest.mark.device
@pytest.mark.parametrize("engine", ["NumpyBackend", "CpuBackend"])
def test_values(engine):
    backend = getattr(ml, engine)(dtype="float64")
    rows = rows_of(engine)
    values = {}
    for text in rows:
        values |= values_of([text], backend)
    check(values)
    print(f"{len(rows)} templates on {engine}")


@pytest.mark.device
@pytest.mark.parametrize("engine", ["NumpyBackend", "CpuBackend"])
def test_all_templates_of_one_model(engine):
    rows = rows_of(engine)
    for order in (rows, rows[::-1]):
        check(values_of(order, getattr(ml, engine)(dtype="float64")))


def test_lengths():
    image = ml.IOKey("image", shape=["N", 3, 8, 9])
    batch, channels, height, width = image.shape
    model = ml.Model()
    model |= ml.models.Buffer()(input=image.reshape((batch, channels * height * width)), output="o")
    assert model.shapes["o"] == ["N", 216]
    assert len(image.shape) == 4 and len(ml.IOKey(shape=[5, 2])) == 5
    assert len(model.image.shape) == 4
    rows = list(ml.IOKey(shape=[3, "M"]))
    assert len(rows) == 3
    for unknown in (ml.IOKey(), ml.IOKey(shape=["N"]), ml.IOKey(shape=[("V", ...)]).shape):
        with pytest.raises(TypeError, match="not known yet"):
            len(unknown)


def test_kinds_of_templates():
    x = ml.IOKey("x", type=ml.Tensor[float])
    i = ml.IOKey("i", type=ml.Tensor[int])
    model = ml.Model()
    rows = {
        "a": x > 1,
        "b": i / 2,
        "c": i // 2,
        "d": i * 2,
        "e": x.shape,
        "g": i + x,
    }
    for name, wire in rows.items():
        model |= ml.models.Buffer()(input=wire, output=name)
    kinds = {name: model.conns.get_type(name) for name in rows}
    assert kinds == {
        "a": "bool tensor",
        "b": "float tensor",
        "c": "int tensor",
        "d": "int tensor",
        "e": "tuple",
        "g": "float tensor",
    }

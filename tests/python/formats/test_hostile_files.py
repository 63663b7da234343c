"""Files that are changed where it hurts: nothing but typed errors, no hang, little memory.

They are loaded by another process (`loading.py`), so that a crash is a failure like others.
`pytest --hypothesis-profile=thorough` runs thirty times as many.
"""
# Covers: model/files/read.cc model/files/build.cc model/files/value.cc

import functools
import hashlib
import io
import json
import struct
import zipfile

import numpy as np
import pytest
import test_model_file as written
from formats import mutate, test_original, test_schema
from formats.loading import Loader
from hypothesis import given
from hypothesis import strategies as st
from mithril import _core
from mithril.formats import write_safetensors
from mithril.testing.op_matrix import cases
from test_random_calls import Pick

BAD = ("CRASHES", "HANGS", "TAKES", "UNTYPED", "INTERNAL")


@pytest.fixture(scope="module")
def loader():
    with Loader() as made:
        yield made


def check(loader, kind, raw):
    answer = loader.load(kind, raw)
    assert not answer.startswith(BAD), (answer, raw[:5000])
    return answer


# --- model files ---------------------------------------------------------------------------------


@functools.cache
def documents():
    """Models of every kind, with and without history, and every op."""
    makes = [*written.MODELS, test_schema.trained]
    texts = [make().to_json(history=history) for make in makes for history in (False, True)]
    ops = [cases(op)[0].text for op in _core.ops() if op["samples"]]
    small = [json.loads(text) for text in texts if len(text) < 20_000]
    return [small, [json.loads(text) for text in ops], [test_schema.base()]]


@pytest.mark.parametrize("group", range(3), ids=["models", "ops", "everything"])
@given(data=st.data())
def test_changed_models(loader, group, data):
    pick = Pick(data)
    document = mutate.mutated(pick, pick.of(documents()[group]))
    check(loader, "model", mutate.text_of(pick, document))


def test_a_reader_of_one(loader):
    document = written.mlp().to_json()
    broken = {**json.loads(document)}
    broken["model"]["readers"] = {"input": [0]}
    check(loader, "model", json.dumps(broken).encode())


def test_a_kernel_without_sizes(loader):
    op = next(op for op in _core.ops() if op["name"] == "convolution2d")
    document = json.loads(cases(op)[0].text)
    document["model"]["parts"][0]["attrs"]["kernel_size"] = []
    check(loader, "model", json.dumps(document).encode())


DEPTHS = {
    "the file": b"%s",
    "the model": b'{"format":"mithril-model","version":"1.0","model":%s}',
    "what is not known": b'{"format":"mithril-model","version":"1.0","x":%s}',
    "training": b'{"format":"mithril-model","version":"1.0","model":{"wires":[]},"training":%s}',
    "history": b'{"format":"mithril-model","version":"1.0","model":{"wires":[]},"history":%s}',
    "a value": b'{"format":"mithril-model","version":"1.0","model":{"wires":["a"],'
    b'"initial":{"a":%s}}}',
}
OPEN, CLOSE = ("[", '{"a":', '{"tuple":[', '{"model":{"parts":['), ("]", "}", "]}", "]}}")


@pytest.mark.parametrize("place", DEPTHS)
@pytest.mark.parametrize("marks", list(zip(OPEN, CLOSE, strict=True)), ids=OPEN)
def test_nests_of_100000(loader, place, marks):
    for depth in (200, 300, 100_000):
        for inner in (b"1", b""):
            nest = marks[0].encode() * depth + inner + (marks[1].encode() * depth if inner else b"")
            assert check(loader, "model", DEPTHS[place] % nest) != "loaded" or depth == 200


def test_parts_in_a_circle(loader):
    """Submodels that hold each other, themselves, or the same one."""
    for parts in (["a"], ["a", "b"], ["b", "a"], ["a", "a"], ["b", "b"]):
        part = [{"model": id_, "wires": {"x": "x"}} for id_ in parts]
        submodels = {
            "a": {"wires": ["x"], "parts": [{"model": "b", "wires": {"x": "x"}}]},
            "b": {"wires": ["x"], "parts": [{"model": "a", "wires": {"x": "x"}}]},
        }
        document = {"format": "mithril-model", "version": "1.0", "submodels": submodels}
        document["model"] = {"wires": ["x"], "parts": part}
        assert check(loader, "model", json.dumps(document).encode()) == "ParseError"


def test_parts_in_either_order(loader):
    """A chain of 10^4 whose parts stand as they depend on each other, and the other way round."""
    wires = [f"w{i}" for i in range(10_001)]
    parts = [
        {"op": "relu", "wires": {"input": a, "output": b}}
        for a, b in zip(wires, wires[1:], strict=False)
    ]
    document = {"format": "mithril-model", "version": "1.0"}
    for order in (1, -1):
        document["model"] = {"wires": wires, "parts": parts[::order], "couts": wires[-1:]}
        assert check(loader, "model", json.dumps(document).encode()) == "loaded"


# --- saved models --------------------------------------------------------------------------------


def tensors(tmp_path_factory):
    path = tmp_path_factory.mktemp("tensors") / "w"
    write_safetensors(path, {"a": np.ones((2, 3), "float32"), "b": np.zeros(3, "int8"),
                             "c": np.float64(1.0)})  # fmt: skip
    return path.read_bytes()


def header_of(raw):
    (length,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + length]), raw[8 + length :]


def with_header(text, data):
    return struct.pack("<Q", len(text)) + text + data


def zipped(members, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return out.getvalue()


def saved(model, params):
    """The members of a saved model; their checksums hold."""
    members = {"model.json": model, "params.safetensors": params}
    sums = {
        name: {"size": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
        for name, raw in members.items()
    }
    metadata = {"format": "mithril-saved-model", "version": "1.0", "members": sums}
    return members, metadata


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return written.mlp().to_json(history=True).encode(), tensors(tmp_path_factory)


def test_what_is_not_changed_is_loaded(loader, parts):
    """The files that the tests below change."""
    model, params = parts
    members, metadata = saved(model, params)
    members["metadata.json"] = json.dumps(metadata).encode()
    assert loader.load("saved", zipped(members)) == "loaded"
    assert loader.load("saved", zipped(members, zipfile.ZIP_STORED)) == "loaded"
    assert loader.load("tensors", params) == "loaded"
    header, data = header_of(params)
    assert loader.load("tensors", with_header(json.dumps(header).encode(), data)) == "loaded"
    assert loader.load("dictionary", json.dumps(test_original.LINEARS).encode()) == "loaded"
    for group in documents():
        for document in group:
            assert loader.load("model", json.dumps(document).encode()) == "loaded"


@given(st.data())
def test_changed_headers_of_tensors(loader, parts, data):
    pick = Pick(data)
    header, rest = header_of(parts[1])
    text = mutate.text_of(pick, mutate.mutated(pick, header))
    check(loader, "tensors", with_header(text, rest[: pick.of([None, 0, -1, 5])]))


@given(st.data())
def test_saved_models_whose_checksums_hold(loader, parts, data):
    """Model, parameters or metadata are others than were written, and nobody can tell."""
    pick = Pick(data)
    model, params = parts
    which = pick.below(3)
    if which == 0:
        document = mutate.mutated(pick, json.loads(model))
        model = mutate.text_of(pick, document)
    elif which == 1:
        header, rest = header_of(params)
        params = with_header(mutate.text_of(pick, mutate.mutated(pick, header)), rest)
    members, metadata = saved(model, params)
    text = json.dumps(metadata).encode()
    if which == 2:
        text = mutate.text_of(pick, mutate.mutated(pick, metadata))
    check(loader, "saved", zipped({**members, "metadata.json": text}))


FIELDS = [(b"PK\1\2", 46), (b"PK\3\4", 30), (b"PK\5\6", 22)]  # headers of a zip, and their sizes


@given(st.data())
def test_changed_headers_of_zips(loader, parts, data):
    pick = Pick(data)
    members, metadata = saved(*parts)
    members["metadata.json"] = json.dumps(metadata).encode()
    raw = bytearray(zipped(members, pick.of([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])))
    starts = [
        (at, size)
        for mark, size in FIELDS
        for at in range(len(raw))
        if raw.startswith(mark, at)
    ]  # fmt: skip
    for _ in range(1 + pick.below(3)):
        at, size = pick.of(starts)
        value = pick.of([0, 1, 8, 0xFF, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF, len(raw), len(raw) - 1])
        width = pick.of([1, 2, 4])
        place = at + 4 + pick.below(size - 4 - width + 1)
        raw[place : place + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    if pick.below(4) == 0:
        del raw[pick.below(len(raw)) :]
    check(loader, "saved", bytes(raw))


# --- the original's dictionaries -----------------------------------------------------------------

DICTIONARIES = [
    test_original.LINEARS,
    {
        "name": "Model",
        "submodels": {
            "m_0": {"name": "Add", "args": {}},
            "m_1": {"name": "Mean", "args": {"axis": [0, 1], "keepdim": True}, "tuples": ["axis"]},
        },
        "connections": {
            "m_0": {
                "left": {"tensor": [[1.0, 2.0]]},
                "right": {"key": {"name": "x", "shape": ["a", "V, ..."],
                                  "type": {"Tensor": ["float"]}, "differentiable": True}},
            },
            "m_1": {"input": {"key": {"connect": [["m_0", "output"]], "name": "s"}}},
        },
        "assigned_types": [["s", {"Tensor": ["float"]}]],
        "assigned_differentiabilities": [["x", True]],
        "assigned_cins": ["x"],
        "assigned_couts": [["m_1", 3]],
    },
    {
        "is_train_model": True,
        "model": test_original.LINEARS,
        "losses": [{"model": {"name": "SquaredError"}, "reduce_steps": [{"name": "Mean"}],
                    "args": {"input": "out", "target": {"tensor": [[1.0], [2.0]]}}}],
        "regularizations": [{"model": {"name": "Sum", "args": {}}, "coef": 0.1,
                             "args": {"input": {"pattern": "^w"}}}],
    },
    {"name": "MaxPool2D", "args": {"kernel_size": [2, 2], "padding": 1}, "tuples": ["kernel_size"],
     "enums": {"padding": "PaddingType"}},
]  # fmt: skip


@given(st.data())
def test_changed_dictionaries(loader, data):
    pick = Pick(data)
    document = mutate.mutated(pick, pick.of(DICTIONARIES))
    check(loader, "dictionary", json.dumps(document).encode())

"""The safetensors format: the bytes that its specification asks for, and files that lie."""

import json
import os
import struct

import mithril as ml
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mithril.errors import ArgumentError, MithrilError, ParseError
from mithril.formats import read_safetensors, write_safetensors

from tests.python.rows.common import backend_of

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", ml_dtypes.bfloat16,
          "float32", "float64"]  # fmt: skip


def arrays():
    random = np.random.default_rng(0)
    out = {f"t{i}": random.integers(0, 2, (2, i)).astype(d) for i, d in enumerate(DTYPES)}
    return out | {"scalar": np.float32(2.5), "empty": np.zeros((0, 3)), "é\n": np.ones(1)}


def file_of(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "w.safetensors"
    write_safetensors(path, arrays())
    got = read_safetensors(path)
    want = {name: np.asarray(array) for name, array in arrays().items()}
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape)
        assert got[name].tobytes() == array.tobytes()
    got["scalar"][...] = 1.0  # an array of its own
    again = tmp_path / "again.safetensors"
    write_safetensors(again, dict(reversed(read_safetensors(path).items())))
    assert again.read_bytes() == path.read_bytes()


def test_the_bytes_are_those_of_the_specification(tmp_path):
    path = tmp_path / "w.safetensors"
    write_safetensors(path, {"b": np.array([1, 2], "int8"), "a": np.array([[0.5]], "float32")})
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    assert length % 8 == 0
    assert json.loads(raw[8 : 8 + length]) == {
        "a": {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]},
        "b": {"dtype": "I8", "shape": [2], "data_offsets": [4, 6]},
    }
    assert raw[8 + length :] == struct.pack("<f2b", 0.5, 1, 2)


def test_any_byte_but_0_is_true(tmp_path):
    path = tmp_path / "bools.safetensors"
    write_safetensors(path, {"m": np.ones((3, 1), bool)})
    raw = path.read_bytes()
    path.write_bytes(raw[:-3] + b"\x02\x00\xff")
    found = read_safetensors(path)["m"]
    assert found.dtype == bool and found.shape == (3, 1)
    assert found.tobytes() == b"\x01\x00\x01"


@pytest.mark.parametrize("backend", [ml.NumpyBackend(), ml.CpuBackend()])
def test_bools_of_other_buffers_count_as_one(backend):
    foreign = np.frombuffer(b"\x02\x00\xff", bool)
    assert backend.to_numpy(backend.array(foreign)).tobytes() == b"\x01\x00\x01"
    one = backend.array(np.frombuffer(b"\x02", bool).reshape(()))
    assert isinstance(one, np.ndarray) and one.tobytes() == b"\x01"


def test_the_package_of_the_format_agrees(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "w.safetensors"
    plain = {n: np.asarray(a) for n, a in arrays().items() if a.dtype != ml_dtypes.bfloat16}
    write_safetensors(path, plain)
    theirs = safetensors.load_file(path)
    assert {n: a.tobytes() for n, a in theirs.items()} == {n: a.tobytes() for n, a in plain.items()}
    safetensors.save_file(plain, path)
    ours = read_safetensors(path)
    assert {n: a.tobytes() for n, a in ours.items()} == {n: a.tobytes() for n, a in plain.items()}


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
LIES = {
    "nothing": b"",
    "too short": b"1234567",
    "length beyond the file": file_of({}, length=1 << 40),
    "length of 2**64 - 1": b"\xff" * 8,
    "no header": file_of(b""),
    "no object": file_of([]),
    "malformed": file_of(b"{"),
    "nested deep": file_of(b'{"a":' * 10_000),
    "not unicode": file_of(b'{"\xff": 1}'),
    "too few bytes": file_of({"a": ENTRY}, b"123"),
    "too many bytes": file_of({"a": ENTRY}, b"12345"),
    "overlap": file_of({"a": ENTRY, "b": ENTRY}, b"1234"),
    "hole": file_of({"a": {**ENTRY, "data_offsets": [4, 8]}}, b"12345678"),
    "huge shape": file_of({"a": {**ENTRY, "shape": [1 << 62, 4]}}, b"1234"),
    "huge offset": file_of({"a": {**ENTRY, "data_offsets": [0, 1 << 64]}}, b"1234"),
    "negative": file_of({"a": {**ENTRY, "shape": [-1]}}, b"1234"),
    "unknown dtype": file_of({"a": {**ENTRY, "dtype": "F8_E5M2"}}, b"1234"),
    "a name twice": file_of(
        b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
        b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b"1234"),
}  # fmt: skip


@pytest.mark.parametrize("raw", LIES.values(), ids=LIES)
def test_a_file_that_lies_is_refused(tmp_path, raw):
    path = tmp_path / "w.safetensors"
    path.write_bytes(raw)
    with pytest.raises(ParseError) as caught:
        read_safetensors(path)
    assert caught.value.code in ("MTH601", "MTH603", "MTH604")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_changed_bytes_never_do_harm(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    path = folder / "w.safetensors"
    write_safetensors(path, {"a": np.ones((2, 2), "float32"), "b": np.zeros(3, "int8")})
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(raw)
    try:
        found = read_safetensors(path)
    except MithrilError:
        return
    assert sum(array.nbytes for array in found.values()) <= len(raw)


def checkpoint():
    random = np.random.default_rng(3)
    kept = {slot: {"fc.weight": random.normal(size=(2, 3)), "b": np.ones(2)} for slot in "mv"}
    scale = {"scale": 2.0**20, "good": 7}
    return {"opt_state": {"step": 5, **kept, "loss_scale": scale}, "state": {}, "params": kept["m"]}


def equal_nests(found, want):
    assert isinstance(found, dict) == isinstance(want, dict)
    if not isinstance(want, dict):
        assert found.dtype == np.asarray(want).dtype
        np.testing.assert_array_equal(found, want)
        return
    assert found.keys() == want.keys()
    for name in want:
        equal_nests(found[name], want[name])


def test_dictionaries_of_dictionaries_come_back(tmp_path):
    path = tmp_path / "w.safetensors"
    write_safetensors(path, checkpoint())
    equal_nests(read_safetensors(path, nested=True), checkpoint())
    names = {"opt_state/step", "opt_state/m/fc.weight", "opt_state/loss_scale/good", "state/"}
    assert names < set(read_safetensors(path))
    plain = {"a/b": np.ones(2), "a/c": np.zeros(1)}  # names of others stay as they are
    write_safetensors(path, plain)
    equal_nests(read_safetensors(path), plain)
    equal_nests(read_safetensors(path, nested=True), {"a": {"b": np.ones(2), "c": np.zeros(1)}})


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["torch", "jax", "mlx"])
def test_the_state_of_optimizers_of_any_framework_is_written(tmp_path, name):
    backend, path = backend_of(name), tmp_path / "adam.safetensors"
    adam = ml.optim.Adam(lr=0.5)
    params = {"w": backend.array(np.array([1.0, 2.0], "float32"))}
    _, opt_state = adam.update(params, params, adam.init(params))
    write_safetensors(path, opt_state)
    found = read_safetensors(path, nested=True)
    np.testing.assert_allclose(found["m"]["w"], [0.1, 0.2], rtol=1e-6)
    assert found["step"] == 1


def test_nests_that_have_no_names_in_a_file_are_refused(tmp_path):
    path, endless = tmp_path / "w.safetensors", {}
    endless["again"] = endless
    for bad, said in (
        ({"m": {"a/b": np.ones(1)}}, "a name requires text without '/', got 'a/b'"),
        ({"m": {}, "a/b": np.ones(1)}, "a name requires text without '/', got 'a/b'"),
        ({"m": {"": np.ones(1)}}, "a name requires text without '/', got ''"),
        ({"m": {3: np.ones(1)}}, "a name requires text without '/', got 3"),
        (endless, "at most 100 deep"),
    ):
        with pytest.raises(ArgumentError, match=said):
            write_safetensors(path, bad)
    assert os.listdir(tmp_path) == []
    for names in (["a", "a/b"], ["a/b", "a/b/c"], ["a/"], ["/" * 200 + "a"]):
        write_safetensors(path, {name: np.ones(1) for name in names})
        with pytest.raises(ParseError, match="is no name of an array|lies deeper"):
            read_safetensors(path, nested=True)
    with pytest.raises(MithrilError, match="nested: requires True or False"):
        read_safetensors(path, nested="yes")


def test_what_is_no_dictionary_of_arrays_is_refused(tmp_path):
    path = tmp_path / "w.safetensors"
    for bad in ([], None, {1: np.ones(2)}, {"a": object()}, {"a": "text"}, {"a": [[1], [1, 2]]},
                {"\ud800": np.ones(1)}, {"__metadata__": np.ones(1)}):  # fmt: skip
        with pytest.raises(MithrilError):
            write_safetensors(path, bad)
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        read_safetensors(path)
    with pytest.raises(MithrilError):
        read_safetensors(3.5)
    assert ml.formats.read_safetensors is read_safetensors

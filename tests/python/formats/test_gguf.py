"""GGUF files: what is written the package `gguf` reads, what it writes is read, and files that
say of themselves what is not so are refused."""

import contextlib
import os
import struct

import mithril as ml
import ml_dtypes
import numpy as np
import pytest
from mithril.errors import ArgumentError, DTypeError, MithrilError, ParseError, ShapeError, shown

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")

RANDOM = np.random.default_rng(0)
ARRAYS = {
    "w": RANDOM.standard_normal((3, 5)).astype("float32"),
    "half": RANDOM.standard_normal((2, 3, 4, 5)).astype("float16"),
    "wide": RANDOM.standard_normal(7),
    "bf": RANDOM.standard_normal((4, 4)).astype(ml_dtypes.bfloat16),
    "i8": np.arange(-3, 3, dtype="int8"),
    "i16": np.arange(4, dtype="int16"),
    "i32": np.arange(6, dtype="int32").reshape(2, 3),
    "i64": np.array([2**62, -5]),
    "none": np.zeros((0, 3), "float32"),
}
METADATA = {
    "general.name": "néw",
    "epochs": 3,
    "large": 2**64 - 1,
    "rate": 0.25,
    "on": True,
    "tokens": ["a", "", "bc"],
    "sizes": [1, -2, 3],
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.gguf"


def test_arrays_and_metadata_come_back(path):
    ml.save_gguf(path, ARRAYS, metadata=METADATA)
    found = ml.load_gguf(path)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert found[name].flags.writeable
    assert found.metadata["general.architecture"] == "mithril"
    for key, value in METADATA.items():
        np.testing.assert_array_equal(found.metadata[key], value)


def test_the_package_reads_what_is_written(path):
    ml.save_gguf(path, {k: v for k, v in ARRAYS.items() if v.size}, metadata=METADATA)
    reader = gguf.GGUFReader(path)
    assert bytes(reader.fields["general.name"].parts[-1]).decode() == "néw"
    assert reader.fields["epochs"].parts[-1][0] == 3
    for tensor in reader.tensors:
        want = ARRAYS[tensor.name]
        assert tensor.shape.tolist() == list(want.shape[::-1])
        assert tensor.data.tobytes() == want.tobytes()


QUANTIZED = [kind for kind in gguf.GGMLQuantizationType if kind in gguf.quants._type_traits]


def written_by_the_package(path, kind, blocks):
    writer = gguf.GGUFWriter(path, "test")
    writer.add_tensor("w", blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", QUANTIZED, ids=lambda kind: kind.name)
def test_blocks_are_dequantized(path, kind):
    """Bytes of random blocks; the package's own values are the reference."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = RANDOM.integers(0, 60, (3, 2 * size)).astype(np.uint8)
    written_by_the_package(path, kind, blocks)
    found = ml.load_gguf(path)["w"]
    want = gguf.quants.dequantize(blocks, kind).astype(found.dtype)
    assert found.shape == (3, 2 * block)
    np.testing.assert_array_equal(found, want)


def test_files_cut_at_every_byte_are_refused(path, tmp_path):
    ml.save_gguf(path, {"w": ARRAYS["w"], "i": ARRAYS["i32"]}, metadata={"a": [1, 2], "b": "c"})
    whole = path.read_bytes()
    end = len(whole) - (-ARRAYS["i32"].nbytes % 32)  # the last padding is no data
    cut = tmp_path / "cut.gguf"
    for size in range(end):
        cut.write_bytes(whole[:size])
        with pytest.raises(ParseError):
            ml.load_gguf(cut)


def test_every_byte_changed_is_a_typed_error_or_other_values(path, tmp_path):
    ml.save_gguf(path, {"w": ARRAYS["i8"], "v": ARRAYS["i16"]}, metadata={"a": [1.5], "b": "c"})
    whole = bytearray(path.read_bytes())
    bad = tmp_path / "bad.gguf"
    for at in range(len(whole)):
        for value in (0, 1, 0x7F, 0xFF):
            changed = bytearray(whole)
            changed[at] = value
            bad.write_bytes(changed)
            with contextlib.suppress(MithrilError):
                ml.load_gguf(bad)


def header(tensors=0, entries=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


def text(value):
    return struct.pack("<Q", len(value)) + value


def tensor(name=b"w", shape=(4,), kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


LIES = {
    "other magic": b"GGML" + header()[4:],
    "other version": header(version=1),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "tensors": header(2**63),
    "entries": header(0, 2**40),
    "length of a key": header(0, 1) + struct.pack("<Q", 2**62) + bytes(64),
    "type of a value": header(0, 1) + text(b"k") + struct.pack("<I", 99) + bytes(64),
    "length of an array": header(0, 1) + text(b"k") + struct.pack("<IIQ", 9, 4, 2**61) + bytes(64),
    "deep arrays": header(0, 1) + text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9,
    "key twice": header(0, 2) + (text(b"k") + struct.pack("<IB", 0, 1)) * 2,
    "no unicode": header(0, 1) + text(b"\xff\xfe") + struct.pack("<IB", 0, 1),
    "alignment of true": header(0, 1) + text(b"general.alignment") + struct.pack("<IB", 7, 1),
    "alignment of 0": header(0, 1) + text(b"general.alignment") + struct.pack("<II", 4, 0),
    "alignment of 24": header(0, 1) + text(b"general.alignment") + struct.pack("<II", 4, 24),
    "axes": header(1) + text(b"w") + struct.pack("<I", 2**31) + bytes(64),
    "size": header(1) + tensor(shape=(2**62, 2**62)) + bytes(64),
    "size beside 0": header(1) + tensor(shape=(0, 2**63)) + bytes(64),
    "offset": header(1) + tensor(offset=2**63) + bytes(64),
    "type": header(1) + tensor(kind=99) + bytes(64),
    "rows that are no blocks": header(1) + tensor(shape=(33,), kind=8) + bytes(64),
    "name twice": header(2) + tensor() + tensor(offset=32) + bytes(128),
    "one over the other": header(2) + tensor() + tensor(b"v", offset=8) + bytes(128),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused(path, lie):
    path.write_bytes(LIES[lie])
    with pytest.raises(ParseError):
        ml.load_gguf(path)


@pytest.mark.parametrize("offset", [2**62, 2**64 - 1])
def test_empty_arrays_lie_anywhere(path, offset):
    path.write_bytes(header(1) + tensor(shape=(0, 3), offset=offset) + bytes(64))
    assert ml.load_gguf(path)["w"].shape == (3, 0)


def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "uint16", "uint64", "complex64", "O", "U3", "M8[s]", "f4,i4", "float8_e5m2"],
)
def test_elements_that_the_format_lacks(path, dtype):
    array = np.zeros((2, 3), getattr(ml_dtypes, dtype, dtype))
    with pytest.raises(DTypeError) as raised:
        ml.save_gguf(path, {"ok": np.ones(2), "blk.0.w": array})
    assert str(raised.value).startswith(
        f"save_gguf: 'blk.0.w': the format has no elements of type {array.dtype}\n"
    )
    assert raised.value.hint == (
        "it has float32, float16, int8, int16, int32, int64, float64, bfloat16"
    )
    assert not path.exists()


def test_elements_of_frameworks_that_the_format_lacks(path):
    torch = pytest.importorskip("torch")
    with pytest.raises(DTypeError, match="'w': the format has no elements of type torch.complex64"):
        ml.save_gguf(path, {"w": torch.ones(2, dtype=torch.complex64, requires_grad=True)})


def test_what_the_format_cannot_hold_is_refused(path):
    with pytest.raises(ShapeError, match=r"'w': ggml has 4 axes, got shape \[1, 1, 1, 1, 1\]"):
        ml.save_gguf(path, {"w": np.ones((1,) * 5, "float32")})
    with pytest.raises(ArgumentError, match="1 to 63 bytes, got 64"):
        ml.save_gguf(path, {"w" * 64: np.ones(1, "float32")})
    with pytest.raises(ArgumentError, match="by name, got 'k': {}"):
        ml.save_gguf(path, {}, metadata={"k": {}})
    with pytest.raises(ArgumentError, match="by name"):
        ml.save_gguf(path, {}, metadata={"k": [1, "a"]})
    with pytest.raises(ArgumentError, match="by name"):
        ml.save_gguf(path, {}, metadata={"k": 2**64})
    itself = []
    itself.append(itself)
    for value in (nested(2), nested(10**5), itself):
        with pytest.raises(ArgumentError, match="by name"):
            ml.save_gguf(path, {}, metadata={"k": value})
    assert not path.exists()


def test_a_failed_save_leaves_the_old_file(path):
    ml.save_gguf(path, {"w": ARRAYS["w"]})
    before = path.read_bytes()
    with pytest.raises(DTypeError):
        ml.save_gguf(path, {"w": np.ones(2, bool)})
    assert path.read_bytes() == before


# --- files of another kind ------------------------------------------------------------------------


@pytest.mark.parametrize("read", [ml.load_gguf, ml.load, ml.formats.read_safetensors])
def test_what_is_no_file(read, tmp_path):
    """A pipe would wait for somebody who writes."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, kind in {"folder": "a folder", "pipe": "a pipe or a device"}.items():
        with pytest.raises(ArgumentError, match=f"requires the path of a file, got {kind}: "):
            read(tmp_path / name)
    with pytest.raises(ArgumentError, match="got a pipe or a device: '/dev/zero'"):
        read("/dev/zero")
    (tmp_path / "folder" / "w.gguf").touch()
    with pytest.raises(ArgumentError) as raised:
        read(tmp_path / "folder")
    assert raised.value.hint == f"it holds {shown(str(tmp_path / 'folder' / 'w.gguf'))}"
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")


KINDS = {
    b"": ("it is empty", ""),
    b"GGU": ("does not begin with GGUF but with b'GGU'", ""),
    b"FUGG\3\0\0\0": ("does not begin with GGUF", ""),
    b"lmgg\1\0\0\0": ("does not begin with GGUF", "llama.cpp converts it"),
    b"PK\3\4": ("does not begin with GGUF", "torch.load"),
    b"\x02\0\0\0\0\0\0\0{}": ("does not begin with GGUF", "read_safetensors"),
    b"<!DOCTYPE html>": ("does not begin with GGUF", "web page"),
    b"version https://git-lfs.github.com/spec/v1": ("does not begin with GGUF", "git lfs pull"),
    b"GGUF\1\0\0\0": ("version 1, where 2 and 3 are known", "the package gguf"),
    b"GGUF\0\0\0\3": ("version 3, big-endian, where 2 and 3", "the package gguf"),
    b"GGUF\3\0\0": ("the file ends too early", ""),
}


@pytest.mark.parametrize("data", KINDS, ids=str)
def test_files_of_another_kind(data, path):
    path.write_bytes(data)
    with pytest.raises(ParseError) as raised:
        ml.load_gguf(path)
    problem, hint = KINDS[data]
    assert problem in str(raised.value) and hint in raised.value.hint
    assert bool(raised.value.hint) == bool(hint)

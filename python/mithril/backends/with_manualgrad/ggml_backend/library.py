"""Finds the ggml library and declares what is called of it. Nothing here knows models or arrays.

Tensors are addresses (integers); `Tensor` reads and writes the struct at one. Functions of ggml
call abort() where an argument is not as they want it: callers check first.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

from mithril import _core
from mithril.errors import DeviceNotAvailable, shown

HINT = "pip install ggml-python==0.0.45, or set MITHRIL_GGML_LIB to a libggml of yours"
MOST_SOURCES = 10  # GGML_MAX_SRC
DIMENSIONS = 4
MOST_THREADS = 512
ALL_THREADS = -1  # GGML_N_TASKS_MAX

F32, F16, I8, I16, I32, I64, F64, BF16 = 0, 1, 24, 25, 26, 27, 28, 30

_LETTERS = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "l": ctypes.c_int64,
    "z": ctypes.c_size_t,
    "f": ctypes.c_float,
    "b": ctypes.c_bool,
    "s": ctypes.c_char_p,
    "v": None,
}

CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)

ABORT_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)


class InitParams(ctypes.Structure):
    _fields_ = [
        ("mem_size", ctypes.c_size_t),
        ("mem_buffer", ctypes.c_void_p),
        ("no_alloc", ctypes.c_bool),
    ]


class Tensor(ctypes.Structure):
    """ggml_tensor, as far as it is read here."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * DIMENSIONS),
        ("nb", ctypes.c_size_t * DIMENSIONS),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * MOST_SOURCES),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
        ("extra", ctypes.c_void_p),
        ("padding", ctypes.c_char * 8),
    ]


class TypeTraits(ctypes.Structure):
    """ggml_type_traits, as far as it is read here."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("block", ctypes.c_int64),
        ("block_interleaved", ctypes.c_int64),
        ("size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.c_void_p),
    ]


# Name -> result and arguments, a letter each.
_UNARY = (
    "abs neg sgn step tanh elu relu sigmoid gelu_erf silu exp expm1 log sin cos sqr sqrt floor ceil"
    " trunc softplus cont sum sum_rows mean transpose"
)
_BINARY = "add sub mul div mul_mat out_prod get_rows"
_SIGNATURES = {
    **{f"ggml_{name}": "ppp" for name in _UNARY.split()},
    **{f"ggml_{name}": "pppp" for name in _BINARY.split()},
    "ggml_free": "vp",
    "ggml_used_mem": "zp",
    "ggml_tensor_overhead": "z",
    "ggml_graph_overhead_custom": "zzb",
    "ggml_new_tensor_4d": "ppillll",
    "ggml_new_graph_custom": "ppzb",
    "ggml_build_forward_expand": "vpp",
    "ggml_graph_n_nodes": "ip",
    "ggml_graph_node": "ppi",
    "ggml_set_output": "vp",
    "ggml_nbytes": "zp",
    "ggml_scale_bias": "pppff",
    "ggml_scale": "pppf",
    "ggml_clamp": "pppff",
    "ggml_repeat_4d": "pppllll",
    "ggml_reshape_4d": "pppllll",
    "ggml_view_4d": "pppllllzzzz",
    "ggml_permute": "pppiiii",
    "ggml_concat": "ppppi",
    "ggml_soft_max_ext": "ppppff",
    "ggml_norm": "pppf",
    "ggml_rms_norm": "pppf",
    "ggml_group_norm": "pppif",
    "ggml_pool_2d": "pppiiiiiff",
    "ggml_im2col": "ppppiiiiiibi",
    "ggml_pad_ext": "pppiiiiiiii",
    "ggml_rope_ext": "pppppiiiffffff",
    "ggml_flash_attn_ext": "ppppppfff",
    "ggml_custom_4d": "ppillllpipip",
    "ggml_custom_inplace": "ppppipip",
    "ggml_get_type_traits": "pi",
    "ggml_type_name": "si",
    "ggml_type_size": "zi",
    "ggml_blck_size": "li",
    "ggml_row_size": "zil",
    "ggml_is_quantized": "bi",
    "ggml_quantize_requires_imatrix": "bi",
    "ggml_quantize_chunk": "zipplllp",
    "ggml_version": "s",
    "ggml_commit": "s",
    "ggml_backend_cpu_init": "p",
    "ggml_backend_cpu_set_n_threads": "vpi",
    "ggml_backend_cpu_set_abort_callback": "vppp",
    "ggml_backend_graph_compute": "ipp",
    "ggml_backend_free": "vp",
}
_OPTIONAL = {"ggml_version", "ggml_commit"}  # of the library, which say nothing of what it can do


class Library:
    """An opened ggml, its functions by their names without ``ggml_``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._parts = _opened(path)
        for name, letters in _SIGNATURES.items():
            setattr(self, name.removeprefix("ggml_"), self._function(name, letters))
        self.init = self._raw("ggml_init")
        self.init.restype, self.init.argtypes = ctypes.c_void_p, [InitParams]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"ggml_{name} is not declared")

    def _raw(self, name: str) -> Any:
        for part in self._parts:
            try:
                return part[name]
            except AttributeError:
                continue
        raise DeviceNotAvailable(f"GGMLBackend: {self.path} has no function {name}", hint=HINT)

    def _function(self, name: str, letters: str) -> Any:
        if name in _OPTIONAL and not any(hasattr(part, name) for part in self._parts):
            return lambda: b"unknown"
        function = self._raw(name)
        function.restype = _LETTERS[letters[0]]
        function.argtypes = [_LETTERS[letter] for letter in letters[1:]]
        return function

    def __reduce__(self) -> Any:
        return Library, (self.path,)


def _opened(path: Path) -> list[Any]:
    """The library and its parts, which lie beside it."""
    suffix = "".join(path.suffixes) or ".so"
    parts = [path.with_name(f"libggml-{part}{suffix}") for part in ("base", "cpu")]
    try:
        return [ctypes.CDLL(str(p)) for p in (*parts, path) if p == path or p.is_file()][::-1]
    except OSError as error:
        raise DeviceNotAvailable(f"GGMLBackend: cannot open {path}: {error}", hint=HINT) from None


def find() -> Path:
    """The file of the library: MITHRIL_GGML_LIB, or that of ggml-python."""
    named = _core.ggml_library()
    if named:
        path = Path(named)
        if not path.is_file():
            raise DeviceNotAvailable(
                f"GGMLBackend: MITHRIL_GGML_LIB names no file: {shown(named)}", hint=HINT
            )
        return path
    spec = importlib.util.find_spec("ggml")
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "lib" / f"libggml{suffix}"
        if path.is_file():
            return path
    raise DeviceNotAvailable("GGMLBackend: ggml is not installed", hint=HINT)


@functools.cache
def opened(path: Path) -> Library:
    """The library at a path, which must have passed its self-test."""
    return Library(path)

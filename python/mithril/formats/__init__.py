"""Files: whole models with their parameters, safetensors, GGUF, and the original's dictionaries."""

from mithril.formats.gguf import GGUFTensors, load_gguf, save_gguf
from mithril.formats.original import dict_to_model
from mithril.formats.safetensors import read_safetensors, write_safetensors
from mithril.formats.saved_model import Saved, load, save

__all__ = [
    "GGUFTensors",
    "Saved",
    "dict_to_model",
    "load",
    "load_gguf",
    "read_safetensors",
    "save",
    "save_gguf",
    "write_safetensors",
]

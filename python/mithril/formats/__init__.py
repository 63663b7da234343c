"""Files: whole models with their parameters, safetensors, GGUF, and the original's dictionaries."""

from mithril.formats.gguf import GGUFTensors, load_gguf, save_gguf
from mithril.formats.original import dict_to_model
from mithril.formats.safetensors import read_safetensors, write_safetensors
from mithril.formats.saved_model import Saved, load, save
from mithril.formats.state_dict import load_state_dict

__all__ = [
    "GGUFTensors",
    "Saved",
    "dict_to_model",
    "load",
    "load_gguf",
    "load_state_dict",
    "read_safetensors",
    "save",
    "save_gguf",
    "write_safetensors",
]

"""Files: whole models with their parameters, safetensors, and the original's dictionaries."""

from mithril.formats.original import dict_to_model
from mithril.formats.safetensors import read_safetensors, write_safetensors
from mithril.formats.saved_model import Saved, load, save
from mithril.formats.state_dict import load_state_dict

__all__ = [
    "Saved",
    "dict_to_model",
    "load",
    "load_state_dict",
    "read_safetensors",
    "save",
    "write_safetensors",
]

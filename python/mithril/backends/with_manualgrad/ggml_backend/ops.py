"""The functions that emitted text calls: ggml's where it has one for the operands, else NumPy's as
custom nodes of its graph. On NumPy arrays they are NumPy's.
"""

from __future__ import annotations

import numpy as _np

from ..numpy_backend import ops as _numpy
from . import attention as _attention
from . import norms as _norms
from .table import operation as _operation

_table = {**vars(_numpy), **_norms.composites, **_attention.composites}
for _name, _value in _table.items():
    if callable(_value) and not _name.startswith("_") and not isinstance(_value, type):
        globals()[_name] = _operation(_name, _value)
    elif isinstance(_value, _np.dtype):
        globals()[_name] = _value
del _name, _value

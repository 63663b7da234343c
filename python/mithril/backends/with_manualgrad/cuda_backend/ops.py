"""The functions that methods of the backend run: those of NumPy, as on the engine.

Ops of compiled models are CUDA C; `csrc/backends/cuda` prints it.
"""

from mithril.backends.with_manualgrad.numpy_backend.ops import *  # noqa: F403

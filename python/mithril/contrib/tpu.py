"""JAX's backend on Google's TPUs, for programs that must not run on anything else.

On a machine with TPUs `ml.JaxBackend()` computes on them, too; where there is none it takes what
there is, and `TPUBackend()` says so.
"""

from __future__ import annotations

import contextlib
from typing import Any

from mithril.backends.with_autograd.jax_backend.backend import JaxBackend
from mithril.base.checks import checked_size
from mithril.base.public import public
from mithril.errors import DeviceNotAvailable
from mithril.types import Dtype, DTypeLike

__all__ = ["TPUBackend"]


class _JaxMissing(DeviceNotAvailable, ImportError):
    """The document's own error for it."""


class TPUBackend(JaxBackend):
    """JAX on a TPU.

    Parameters
    ----------
    index : which of the TPUs
    dtype : bfloat16 or float32 (default), in which everything is kept and computed
    precision : of products: "float32" (default) or "bfloat16", in which TPUs are quickest
    jit_compile, pre_allocate, device_mesh, seed : as those of `ml.JaxBackend`

    JAX is asked for the platforms "tpu,cpu" while it looks for devices, and for what it was asked
    before afterwards; what it found the first time in a process, it keeps.

    Raises
    ------
    ImportError : JAX is not installed
    DeviceNotAvailable : there is no such TPU; it lists the devices that are there
    """

    @public
    def __init__(
        self,
        index: int = 0,
        dtype: DTypeLike = Dtype.float32,
        *,
        pre_allocate: bool | None = None,
        device_mesh: Any = None,
        precision: Any = None,
        jit_compile: bool | None = None,
        seed: int = 0,
    ) -> None:
        _look_for_tpus()
        super().__init__(
            f"tpu:{checked_size('TPUBackend: index', index, least=0)}",
            dtype,
            pre_allocate,
            device_mesh,
            precision=precision,
            jit_compile=jit_compile,
            seed=seed,
        )


def _look_for_tpus() -> None:
    """Makes JAX find them; that it has no such platform, or cannot open it, its caller will see."""
    try:
        import jax
    except ImportError as error:
        raise _JaxMissing(
            "JAX is required for TPUBackend. Please install jax and jaxlib."
        ) from error
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", "tpu,cpu")
    try:
        with contextlib.suppress(RuntimeError):
            jax.devices("tpu")
    finally:
        jax.config.update("jax_platforms", before)

"""Functions over several devices: a later version's. Until then they say so by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from mithril.errors import UnsupportedError

__all__ = ["data_parallel"]


def data_parallel(
    fn: Callable[..., Any], *, backend: Any = None, num_devices: int | None = None
) -> NoReturn:
    """Refuses to share a batch out among devices: this version computes on one.

    Raises
    ------
    UnsupportedError : always

    >>> try:
    ...     data_parallel(lambda batch: batch, num_devices=4)
    ... except NotImplementedError as error:
    ...     print(str(error).splitlines()[0])
    data_parallel: this version computes on one device, got num_devices=4
    """
    raise UnsupportedError(
        f"data_parallel: this version computes on one device, got num_devices={num_devices!r}",
        hint="call the function on the whole batch",
    )

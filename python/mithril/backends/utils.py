"""Widths of element types."""

from __future__ import annotations

import enum


class DtypeBits(enum.IntEnum):
    """Bits that one element takes.

    >>> DtypeBits.float16.value
    16
    """

    bool = 8
    uint8 = 8
    int8 = 8
    int16 = 16
    float16 = 16
    bfloat16 = 16
    int32 = 32
    float32 = 32
    int64 = 64
    float64 = 64


__all__ = ["DtypeBits"]

"""Memory figures in one form."""

from __future__ import annotations

from mithril.errors import ArgumentError, SignatureError, shown

_MIB = 2.0**20
_MOST_BYTES = 2**63 - 1


def memory_report(used: int, peak: int, limit: int) -> dict[str, float]:
    """Bytes as the dictionary that `get_memory_info` returns."""
    exact = {"used": used, "peak": peak, "limit": limit}
    return {k: v / _MIB for k, v in exact.items()} | {f"{k}_bytes": v for k, v in exact.items()}


def process_memory() -> tuple[int, int, int]:
    """Resident bytes of this process, their peak, and the machine's memory."""
    import os
    import resource

    page = os.sysconf("SC_PAGE_SIZE")
    limit = page * os.sysconf("SC_PHYS_PAGES")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            used = int(file.read().split()[1]) * page
    except OSError:  # not Linux
        used = peak
    return used, max(peak, used), limit  # the kernel counts the peak later than what is used


def parse_size(size: int | str, name: str = "a size of memory") -> int:
    """Bytes of `4 * 1024**3`, "4GB" (decimal) or "512MiB" (binary)."""
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise SignatureError(f"{name} requires bytes or text, got {shown(size)}")
    try:
        found = size if isinstance(size, int) else _parse_text(size.strip().lower())
    except (ValueError, OverflowError):
        found = -1
    if found < 0:
        raise ArgumentError(f"{name} is bytes, '4GB' or '512MiB', got {shown(size)}")
    if found > _MOST_BYTES:
        raise ArgumentError(f"{name} must be less than 2^63 bytes, got {shown(size)}")
    return found


def _parse_text(text: str) -> int:
    for exponent, letter in enumerate("kmgt", start=1):
        for suffix, base in ((f"{letter}ib", 1024), (f"{letter}b", 1000), (letter, 1024)):
            if text.endswith(suffix):
                return int(float(text.removesuffix(suffix)) * base**exponent)
    return int(text.removesuffix("b"))

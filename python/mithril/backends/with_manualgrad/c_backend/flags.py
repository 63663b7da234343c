"""The flags that a C compiler may get: for optimization and warnings, none that change results."""

from __future__ import annotations

import re
import shlex
from typing import Any

from mithril.base.checks import checked_list, checked_str
from mithril.errors import ArgumentError, shown

__all__ = ["FIXED_FLAGS", "checked_flags"]

# Results have the engine's bits by these: no other rounding than the text says. The arena holds
# values of one type after those of another, and copies move elements as integers of their size.
FIXED_FLAGS = (
    "-std=c99",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-strict-aliasing",
)
_INSTRUCTIONS = (
    r"(no-)?(sse|ssse|avx|fma|f16c|bmi|abm|lzcnt|popcnt|movbe|adx|aes|vaes|gfni|amx|neon|crypto)"
    r"[\w.]*"
)
_GENERATED = (
    r"(no-)?(unroll|peel|tree|slp|vect|inline|ipa|ira|lra|sched|gcse|if-conv|loop|split|prefetch"
    r"|reorder|align|partial-inl|web|rename-reg|section-anchors|omit-frame-p|stack-p|stack-c|lto"
    r"|function-sec|data-sec|semantic-int|plt|code-hoist|crossj|move-loop|predict|jump-t|guess-b"
    r"|asynchronous-unw|unwind-t|cf-protection|diagnostics|color|openmp|graphite|modulo|save-opt"
    r"|wrapv|delete-null|isolate-er|ssa-phi|store-merg|thread-jumps|expensive-opt|hoist-adj)[\w=-]*"
)
_KINDS = {
    "-O0 to -O3, -Og, -Os, -Oz": r"-O[0123gsz]?",
    "processors (-march= -mtune= -mcpu=) and their instructions (-mavx2 -mno-fma …)": (
        rf"-m(arch|tune|cpu)=[\w.+-]+|-m{_INSTRUCTIONS}|-m(prefer|memory-)[\w=-]+"
    ),
    "how code is generated (-funroll-loops -fno-tree-vectorize -flto …)": (
        rf"-f{_GENERATED}|-f(pic|PIC)|--param=[\w-]+=\d+"
    ),
    "warnings (-Wall -Werror -w …)": r"-W(?![lap],)[\w=+-]*|-w|-pedantic|-pedantic-errors",
    "-g, -pipe": r"-g[\w.-]*|-pipe",
    "where libraries are (-L -Wl,-rpath, -fuse-ld= --sysroot=)": (
        r"-L.+|-Wl,-rpath,[^,]+|-fuse-ld=[\w.-]+|--(sysroot|gcc-toolchain)=.+"
    ),
    "the flags that are always there": "|".join(map(re.escape, FIXED_FLAGS)),
}
# What those ask for that are refused: other numbers, in this process's other code too (GCC's
# start-up code of fast mathematics sets the processor's mode), other programs, other files.
_REFUSED = {
    r"-Ofast|-ffast-math|-f(unsafe|finite|associative|reciprocal)-math.*|-ffinite-math-only"
    r"|-fno-signed-zeros|-fsingle-precision-constant|-fapprox-func|-fdenormal-fp-math.*"
    r"|-ffp-.*|-mdaz-ftz|-mrecip.*|-fstrict-aliasing|-std=.*|-ansi|-mfpmath=.*"
    r"|-fexcess-precision=.*|-fcx-.*": "changes results",
    r"-fsanitize=.*": "needs a runtime that Python does not have",
    r"-[EScroxvMPH]|-M.*|-(o|x).+|-fsyntax-only|-shared|-static.*|-pie|-no-pie|-###|--help"
    r"|--version|-dumpmachine|-save-temps.*": "makes no shared object, or another file",
    r"-[DU].*|-include.*|-imacros.*|-I.*|-i(quote|system|dirafter).*|-trigraphs"
    r"|-f(un)?signed-.*|-f(no-)?short-.*|-fpack-.*": "changes what the text means",
    r"-fvisibility.*|-fleading-.*|-s|-nostdlib|-nodefaultlibs|-nostartfiles": (
        "takes functions from the object"
    ),
    r"-m(32|x32|16|64|abi=.*|regparm.*|cmodel=.*|long-double.*)|--target=.*|-target": (
        "makes code for other callers"
    ),
    r"--coverage|-pg?|-fprofile.*|-ftest-coverage|-finstrument-.*": (
        "makes models write files or call what is not there"
    ),
    r"(?!-).*|-|@.*": "is no flag: its value belongs to the same word, as in --param=name=1",
}


def checked_flags(flags: Any) -> tuple[str, ...] | None:
    """Splits flags, given as text or a list, into checked words; returns None for None.

    Raises
    ------
    ArgumentError : one changes what the program means, or is of no kind that is known here
    """
    if flags is None:
        return None
    what = "CBackend: flags"
    try:
        words = shlex.split(flags) if isinstance(flags, str) else checked_list(what, flags, "flags")
    except ValueError as error:  # quotes that are left open
        raise ArgumentError(f"{what}: {error}, got {shown(flags)}") from None
    for flag in words:
        if "\0" in checked_str(what, flag):
            raise ArgumentError(f"{what}: no flag is {shown(flag)}")
        if not any(re.fullmatch(pattern, flag) for pattern in _KINDS.values()):
            raise ArgumentError(f"{what}: {shown(flag)} {_problem(flag)}", hint=_hint())
    return tuple(words)


def _problem(flag: str) -> str:
    reasons = (why for pattern, why in _REFUSED.items() if re.fullmatch(pattern, flag))
    return next(reasons, "is of no kind that is taken")


def _hint() -> str:
    return f"taken are {'; '.join(_KINDS)}"

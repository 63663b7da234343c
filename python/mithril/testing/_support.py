"""The support table: how each backend runs each op in each element type, as the tests found it.

`python -m mithril.testing._support FILE …` joins the tables of several runs and prints them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from mithril.types import Dtype

DTYPES = tuple(str(dtype) for dtype in Dtype)
FALLBACK = "fallback"
OWN = "own"  # by the method of a user's class
UNSUPPORTED, WRONG = "unsupported", "wrong"  # "unsupported: why"
WAYS = (
    OWN,
    FALLBACK,
    "native",
    "decomposed",
    "inlined",
    "folded",
)  # the first one that was met counts
Rows = dict[str, dict[str, dict[str, list[str]]]]  # op -> backend -> element type -> what was found


class Support:
    """A table of how each backend runs each op in each element type, with the number of checks.

    >>> table = Support()
    >>> table.note("exp", "numpy", "float32", "native")
    >>> table.note("exp", "numpy", "int8", "unsupported: no integers")
    >>> print("\\n".join(table.lines()))
    exp
      numpy: unsupported int8; native float32
    unsupported:
      no integers: exp (numpy int8)
    1 op, 1 backend, 2 element types: 1 native, 1 unsupported, 0 wrong
    """

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.checks: Counter[str] = Counter()

    def note(self, op: str, backend: str, dtype: str, how: str) -> None:
        found = self.rows.setdefault(op, {}).setdefault(backend, {}).setdefault(dtype, [])
        if how not in found:
            found.append(how)

    def merge(self, rows: Rows, checks: Mapping[str, int]) -> None:
        self.checks.update(checks)
        for op, backends in rows.items():
            for backend, dtypes in backends.items():
                for dtype, found in dtypes.items():
                    for how in found:
                        self.note(op, backend, dtype, how)

    # --- text -------------------------------------------------------------------------------------

    def lines(self) -> list[str]:
        """Ops with equal rows together, then why something is unsupported, then counts."""
        if not self.rows:
            return []
        groups: dict[tuple[str, ...], list[str]] = {}
        for op in sorted(self.rows):
            row = tuple(f"{name}: {text}" for name, text in self._row(op).items())
            groups.setdefault(_joined(row), []).append(op)
        out = []
        for row, ops in sorted(groups.items(), key=lambda group: (-len(group[1]), group[1])):
            out += [", ".join(ops), *(f"  {line}" for line in row)]
        return [*out, *self._reasons(), self.summary()]

    def summary(self) -> str:
        cells = Counter(
            cell(found).removeprefix("partly ")
            for backends in self.rows.values()
            for dtypes in backends.values()
            for found in dtypes.values()
        )
        backends = {name for row in self.rows.values() for name in row}
        dtypes = {name for row in self.rows.values() for types in row.values() for name in types}
        kinds = [*dict.fromkeys(["native", *WAYS])]
        counts = [f"{cells[way]} {way}" for way in (*kinds, UNSUPPORTED) if cells[way]]
        sizes = [
            _counted(len(self.rows), "op"),
            _counted(len(backends), "backend"),
            _counted(len(dtypes), "element type"),
        ]
        return f"{', '.join(sizes)}: {', '.join([*counts, f'{cells[WRONG]} wrong'])}"

    def checked(self) -> str:
        """Returns the number of checks of each kind: "12 checks: 8 gradients, 4 values"."""
        told = (f"{count} {kind}" for kind, count in sorted(self.checks.items()))
        return f"{sum(self.checks.values())} checks: {', '.join(told)}"

    def _row(self, op: str) -> dict[str, str]:
        return {name: grouped(dtypes) for name, dtypes in sorted(self.rows[op].items())}

    def _reasons(self) -> list[str]:
        return [*self._told(UNSUPPORTED), *self._told(WRONG)]

    def _told(self, word: str) -> list[str]:
        """Lists the reasons of cells that begin with `word`, each with its ops and backends."""
        places: dict[str, dict[str, dict[str, list[str]]]] = {}
        for op, backend, dtype, how in self._found():
            if how.startswith(word):
                by_op = places.setdefault(how.removeprefix(f"{word}: "), {}).setdefault(op, {})
                by_op.setdefault(backend, []).append(dtype)
        out = [f"{word}:"] if places else []
        for reason, ops in sorted(places.items()):
            where = (
                f"{op} ({'; '.join(f'{name} {_types(types)}' for name, types in by_op.items())})"
                for op, by_op in ops.items()
            )
            out.append(f"  {reason}: {', '.join(where)}")
        return out

    def _found(self) -> Iterator[tuple[str, str, str, str]]:
        for op, backends in sorted(self.rows.items()):
            for backend, dtypes in sorted(backends.items()):
                for dtype, found in dtypes.items():
                    yield from ((op, backend, dtype, how) for how in found)

    def to_markdown(self) -> str:
        """Every op, backend and element type in a cell of its own."""
        head = ["op", "backend", *DTYPES]
        out = [self.summary(), "", _cells(head), _cells(["---"] * len(head))]
        for op, backends in sorted(self.rows.items()):
            for backend, dtypes in sorted(backends.items()):
                found = (cell(dtypes[d]) if d in dtypes else "" for d in DTYPES)
                out.append(_cells([op, backend, *found]))
        return "\n".join([*out, "", *self._reasons()]) + "\n"

    # --- files ------------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"rows": self.rows, "checks": self.checks}))

    def read(self, path: Path) -> None:
        document = json.loads(path.read_text())
        self.merge(document["rows"], document["checks"])


def cell(found: Iterable[str]) -> str:
    """One word for what was found; an op that runs in some cases only is "partly" what it is."""
    found = list(found)
    if any(how.startswith(WRONG) for how in found):
        return WRONG
    runs = [how for how in found if not how.startswith(UNSUPPORTED)]
    if not runs:
        return UNSUPPORTED if found else "-"
    best = next(how for how in WAYS if how in runs)
    return best if len(runs) == len(found) else f"partly {best}"


def grouped(dtypes: Mapping[str, Iterable[str]]) -> str:
    """The element types of one row by what was found in them.

    >>> grouped({"float32": ["native"], "int8": ["native"], "bool": ["unsupported: none"]})
    'native int8 float32; unsupported bool'
    """
    cells: dict[str, list[str]] = {}
    for dtype in DTYPES:
        if dtype in dtypes:
            cells.setdefault(cell(dtypes[dtype]), []).append(dtype)
    return "; ".join(f"{how} {_types(names)}" for how, names in cells.items())


def _joined(row: tuple[str, ...]) -> tuple[str, ...]:
    """Joins backends with equal cells in one line."""
    names: dict[str, list[str]] = {}
    for line in row:
        name, _, text = line.partition(": ")
        names.setdefault(text, []).append(name)
    return tuple(f"{', '.join(which)}: {text}" for text, which in names.items())


def _types(names: Iterable[str]) -> str:
    names = list(names)
    return "all" if set(names) == set(DTYPES) else " ".join(names)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(paths: Iterable[str]) -> None:
    """Prints the joined table and writes all of it beside the first file."""
    table = Support()
    files = [Path(path) for path in paths]
    for path in files:
        table.read(path)
    whole = files[0].parent / "support.md"
    whole.write_text(table.to_markdown())
    print("\n".join(table.lines()))
    print(table.checked())
    print(f"every op, backend and element type: {whole}")


if __name__ == "__main__":
    main(sys.argv[1:])

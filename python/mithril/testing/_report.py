"""The report of the conformance suite on a backend: counts, a row for each op, Markdown, HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mithril.testing._support import FALLBACK, OWN, UNSUPPORTED, grouped

if TYPE_CHECKING:
    from mithril.testing.op_dtypes import Found

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_COLUMNS = ("op", "outcome", "runs", "element types", "checks", "seconds", "reasons")
_MOST_REASONS = 5  # of one row, in tables; the row itself has all


@dataclass(frozen=True)
class Row:
    """One op (or way to make arrays) on one backend."""

    name: str
    outcome: str  # "passed", "failed", "skipped"
    # "own", "native", "decomposed", "inlined", "folded", "fallback"; "": in no case
    runs: str = ""
    checks: int = 0
    reasons: tuple[str, ...] = ()  # why it failed or is unsupported; "case: what is wrong"
    seconds: float = 0.0
    # Element type -> how the op runs in it: as `runs`, or "unsupported: why", "wrong: what".
    dtypes: Mapping[str, str] = field(default_factory=dict)
    is_stopped: bool = False  # one check did not end, and others may be left out

    def with_dtypes(self, found: Mapping[str, Found], seconds: float) -> Row:
        """The row with what was found in further element types."""
        problems = tuple(problem for one in found.values() for problem in one.problems)
        told = {dtype: one.told for dtype, one in found.items()}
        reasons = tuple(f"{dtype} {how}" for dtype, how in told.items() if UNSUPPORTED in how)
        count = sum(one.values + one.gradients for one in found.values())
        return replace(
            self,
            outcome=FAILED if problems else self.outcome,
            checks=self.checks + count,
            reasons=(*self.reasons, *problems, *reasons)
            if self.outcome == FAILED
            else (*problems, *self.reasons, *reasons),
            seconds=self.seconds + seconds,
            dtypes={**self.dtypes, **told},
        )

    def _more(self, shown: int) -> str:
        """ "7 more", as far as is known."""
        return f"{'at least ' if self.is_stopped else ''}{len(self.reasons) - shown} more"

    def _cells(self) -> tuple[str, ...]:
        shown = [*self.reasons[:_MOST_REASONS]]
        if len(self.reasons) > _MOST_REASONS:
            shown.append(f"and {self._more(_MOST_REASONS)}")
        counts = (str(self.checks), f"{self.seconds:.2f}")
        types = grouped({dtype: [how] for dtype, how in self.dtypes.items()})
        runs = self.runs or "-"
        return (self.name, self.outcome, runs, types or "-", *counts, "\n".join(shown))


@dataclass(frozen=True)
class BackendReport:
    """The result of `run_backend_tests`: true when nothing failed.

    `total` rows are `passed`, `failed` or `skipped` (the backend says that it does not support
    them). Those that passed run `native`, by functions of the backend, whole or composed of
    others, or by `fallback`, on NumPy; `own` of the native ones by methods of the user's class.
    `notes` tell of methods of the class that are no ops.

    >>> rows = [Row("add", "passed", "native", 12), Row("exp", "failed", "native", 4, ("wrong",))]
    >>> report = BackendReport("MyBackend", rows)
    >>> report.passed, report.total, report.failed, bool(report)
    (1, 2, 1, False)
    >>> print(report)
    MyBackend: 1 of 2 passed (1 native, 0 by fallback), 1 failed, 0 skipped, 16 checks
      failed exp: wrong
    """

    backend: str
    rows: list[Row] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    def _count(self, outcome: str) -> int:
        return sum(row.outcome == outcome for row in self.rows)

    @property
    def passed(self) -> int:
        return self._count(PASSED)

    @property
    def failed(self) -> int:
        return self._count(FAILED)

    @property
    def skipped(self) -> int:
        return self._count(SKIPPED)

    @property
    def total(self) -> int:
        return len(self.rows)

    @property
    def fallback(self) -> int:
        return sum(row.outcome == PASSED and row.runs == FALLBACK for row in self.rows)

    @property
    def native(self) -> int:
        return self.passed - self.fallback

    @property
    def own(self) -> int:
        return sum(row.outcome == PASSED and row.runs == OWN for row in self.rows)

    @property
    def checks(self) -> int:
        """Comparisons made: values, gradients, kinks and errors of all cases."""
        return sum(row.checks for row in self.rows)

    @property
    def failures(self) -> dict[str, tuple[str, ...]]:
        """The reasons of each failed row, by name."""
        return {row.name: row.reasons for row in self.rows if row.outcome == FAILED}

    def row(self, name: str) -> Row:
        """The row of an op."""
        return next(row for row in self.rows if row.name == name)

    def __bool__(self) -> bool:
        return self.failed == 0

    def _headline(self) -> str:
        own = f", {self.own} of them own" if self.own else ""
        ways = f"{self.native} native{own}, {self.fallback} by fallback"
        return (
            f"{self.backend}: {self.passed} of {self.total} passed ({ways}),"
            f" {self.failed} failed, {self.skipped} skipped, {self.checks} checks"
        )

    def __str__(self) -> str:
        lines = [self._headline()]
        for row in self.rows:
            if row.outcome != PASSED:
                more = f" (and {row._more(1)})" if len(row.reasons) > 1 else ""
                lines.append(f"  {row.outcome} {row.name}: {''.join(row.reasons[:1])}{more}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    __repr__ = __str__

    def to_markdown(self) -> str:
        """The counts and a table with a line for each row."""
        lines = [
            self._headline(),
            "",
            _markdown_row(_COLUMNS),
            _markdown_row(["---"] * len(_COLUMNS)),
        ]
        lines += [_markdown_row(map(_markdown, row._cells())) for row in self.rows]
        lines += [f"\n{_markdown(note)}" for note in self.notes]
        return "\n".join(lines) + "\n"

    def to_html(self) -> str:
        """The counts and a table; what backends say is escaped."""
        rows = [_html_row("th", _COLUMNS), *(_html_row("td", row._cells()) for row in self.rows)]
        notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in self.notes)
        head = f"<p>{html.escape(self._headline())}</p>\n"
        return f"{head}<table>\n{''.join(rows)}</table>\n{notes}"

    def _repr_html_(self) -> str:
        return self.to_html()


def _markdown_row(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(cell: str) -> str:
    escaped = html.escape(cell, quote=False).replace("|", "\\|")
    return "<br>".join(escaped.splitlines())


def _html_row(tag: str, cells: Iterable[str]) -> str:
    inner = "".join(
        f"<{tag}>{'<br>'.join(html.escape(cell).splitlines())}</{tag}>" for cell in cells
    )
    return f"<tr>{inner}</tr>\n"


__all__ = ["BackendReport", "Row"]

"""The results of the benchmarks: values, their limits, and the table that shows both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

HEAD = ("measure", "Holdfast", "floor", "compared", "bar", "verdict")
NO_FLOOR = "–"

Verdict = Literal["held", "NOT HELD", "noted"]


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit on the value itself, on its ratio to the baseline, or on its difference from the baseline."""

    of: Literal["value", "ratio", "added"]
    limit: float
    at_most: bool = True

    def holds(self, row: Row) -> bool:
        judged = row.judged(self.of)
        return judged <= self.limit if self.at_most else judged >= self.limit

    def text(self, unit: str) -> str:
        sign = "≤" if self.at_most else "≥"
        return f"{sign} {self.limit:g} ×" if self.of == "ratio" else f"{sign} {shown(self.limit, unit)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. Without a limit it is informative only."""

    measure: str
    value: float
    unit: str
    floor: float | None = None
    bar: Bar | None = None
    note: str = ""

    def judged(self, of: Literal["value", "ratio", "added"]) -> float:
        if of == "value":
            return self.value
        assert self.floor is not None, f"{self.measure} has nothing to be compared with."
        return self.value / self.floor if of == "ratio" else self.value - self.floor

    @property
    def verdict(self) -> Verdict:
        if self.bar is None:
            return "noted"
        return "held" if self.bar.holds(self) else "NOT HELD"

    def compared(self) -> str:
        if self.floor is None:
            return NO_FLOOR
        if self.bar is not None and self.bar.of == "added":
            return f"{self.judged('added'):+.3g} {self.unit}"
        return f"{self.judged('ratio'):.2f} ×"

    def cells(self) -> tuple[str, ...]:
        floor = NO_FLOOR if self.floor is None else shown(self.floor, self.unit)
        bar = NO_FLOOR if self.bar is None else self.bar.text(self.unit)
        return (self.measure, shown(self.value, self.unit), floor, self.compared(), bar, self.verdict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}


def shown(value: float, unit: str) -> str:
    """The value with three significant digits."""
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{number} {unit}".rstrip()


def table(rows: Sequence[Row]) -> str:
    lines = [HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    text = ["  ".join(_aligned(line, widths)).rstrip() for line in lines]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:], *_notes(rows)])


def _aligned(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Aligned cells: text to the left, numbers to the right."""
    left = {0, 5}
    return [
        cell.ljust(width) if at in left else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = [f"  {row.measure}: {row.note}" for row in rows if row.note]
    return ["", "How to read it:", *notes] if notes else []

"""A chart as SVG: axes, points with intervals, lines and bars. Colours are the page's, by class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from markupsafe import Markup, escape

_WIDTH: Final = 640
_HEIGHT: Final = 340
_LEFT: Final = 64
_RIGHT: Final = 16
_TOP: Final = 36  # for the unit above the axis, in a phone's letters too
_BOTTOM: Final = 62
_TICKS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point of a chart.

    Attributes:
        x, y: where.
        low, high: ends of its interval in y; None without one.
        kind: the class of its colour, such as `z2`.
        says: shown when somebody points at it, and read aloud.
        is_cross: whether it is a cross instead of a disc.
        is_hollow: whether it is a ring instead of a disc.
    """

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    kind: str = ""
    says: str = ""
    is_cross: bool = False
    is_hollow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart.

    Attributes:
        title: what it shows, for people who cannot see it.
        x_label, y_label: of the axes, with units.
        marks: its points.
        lines: paths through points, each with the class of its colour.
        edges: vertical lines, each with its x and the class of its colour.
        is_log: whether x is a logarithmic axis.
        is_square: whether both axes have the same range, with the diagonal drawn.
    """

    title: str
    x_label: str
    y_label: str
    marks: Sequence[Mark]
    lines: Sequence[tuple[Sequence[tuple[float, float]], str]] = ()
    edges: Sequence[tuple[float, str]] = ()
    is_log: bool = False
    is_square: bool = False
    _range: tuple[float, float, float] = field(init=False, default=(0.0, 1.0, 1.0))

    def __post_init__(self) -> None:
        xs = [m.x for m in self.marks] + [x for line, _ in self.lines for x, _ in line] + [x for x, _ in self.edges]
        ys = [m.high or m.y for m in self.marks] + [y for line, _ in self.lines for _, y in line]
        most = max([y for y in ys if math.isfinite(y)], default=1.0) * 1.08 or 1.0
        low, high = min(xs, default=0.0), max(xs, default=1.0)
        if self.is_square:
            low, high = 0.0, max(most, high * 1.08)
            most = high
        elif self.is_log:
            low, high = low / 1.3, high * 1.3
        else:
            low, high = min(0.0, low), high * 1.04 or 1.0
        object.__setattr__(self, "_range", (low, high, most))

    def svg(self) -> Markup:
        """The chart."""
        parts = [*self._grid()]
        parts += [self._edge(x, kind) for x, kind in self.edges]
        parts += [self._line(points, kind) for points, kind in self.lines]
        parts += [self._mark(mark) for mark in self.marks]
        return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            _WIDTH, _HEIGHT, self.title, Markup("").join(parts)
        )

    def _x(self, x: float) -> float:
        low, high, _ = self._range
        share = math.log(x / low) / math.log(high / low) if self.is_log else (x - low) / (high - low or 1.0)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def _y(self, y: float) -> float:
        return round(_HEIGHT - _BOTTOM - y / self._range[2] * (_HEIGHT - _TOP - _BOTTOM), 1)

    def _grid(self) -> list[Markup]:
        parts = []
        for value in ticks(self._range[2]):
            y = self._y(value)
            parts.append(
                Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(_LEFT, _WIDTH - _RIGHT, y, y)
            )
            parts.append(
                Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(_LEFT - 6, y + 4, shown(value))
            )
        low, high, _ = self._range
        marked = [2.0**n for n in range(21) if low <= 2**n <= high] if self.is_log else ticks(high)
        for value in marked if self.is_square else map(int, filter(float.is_integer, marked)):  # runs, or samples
            place = Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>')
            parts.append(place.format(self._x(value), _HEIGHT - _BOTTOM + 22, shown(value)))
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(middle, _HEIGHT - 8, self.x_label)
        )
        parts.append(Markup('<text x="0" y="{}">{}</text>').format(_TOP - 16, self.y_label))
        if self.is_square:
            parts.append(self._line([(low, low), (high, high)], "grid"))
        return parts

    def _edge(self, x: float, kind: str) -> Markup:
        place = Markup('<line class="edge {}" x1="{}" x2="{}" y1="{}" y2="{}"/>')
        return place.format(kind, self._x(x), self._x(x), _TOP, _HEIGHT - _BOTTOM)

    def _line(self, points: Sequence[tuple[float, float]], kind: str) -> Markup:
        path = " ".join(f"{self._x(x)},{self._y(y)}" for x, y in points)
        return Markup('<polyline class="line {}" points="{}"/>').format(kind, path)

    def _mark(self, mark: Mark) -> Markup:
        x, y, said = self._x(mark.x), self._y(mark.y), Markup("<title>%s</title>") % mark.says
        if mark.is_cross:
            path = f"M{x - 4},{y - 4}l8,8m0,-8l-8,8"
            return Markup('<path class="cross %s" d="%s">%s</path>') % (mark.kind, path, said)
        shape = "ring" if mark.is_hollow else "dot"
        circle = Markup('<circle class="%s %s" cx="%s" cy="%s" r="4">%s</circle>') % (shape, mark.kind, x, y, said)
        if mark.low is None or mark.high is None:
            return circle
        ends = (x, x, self._y(max(0.0, mark.low)), self._y(mark.high))
        return Markup('<line class="bar %s" x1="%s" x2="%s" y1="%s" y2="%s"/>') % (mark.kind, *ends) + circle


def stacked(title: str, rows: Sequence[tuple[str, Sequence[tuple[str, float]]]], unit: str) -> Markup:
    """Horizontal bars of parts, each below its name: each row a name and its parts (class, value)."""
    most = max((sum(value for _, value in parts) for _, parts in rows), default=1.0) or 1.0
    height, width = 60, _WIDTH - 110
    drawn = []
    for index, (name, parts) in enumerate(rows):
        y, x = index * height, 0.0
        drawn.append(Markup('<text x="0" y="{}">{}</text>').format(y + 24, name))
        for kind, value in parts:
            wide = round(value / most * width, 1)
            bar = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="16"><title>{} {} {}</title></rect>')
            drawn.append(bar.format(kind, round(x, 1), y + 32, wide, kind, shown(value), unit))
            x += wide
        total = Markup('<text x="{}" y="{}">{} {}</text>')
        drawn.append(total.format(round(x, 1) + 6, y + 46, shown(sum(value for _, value in parts)), unit))
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, len(rows) * height + 8, title, Markup("").join(drawn)
    )


def ticks(most: float) -> list[float]:
    """Round numbers from 0 up to the most."""
    if not (most > 0 and math.isfinite(most)):
        return [0.0]
    raw = most / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [round(index * step, 10) for index in range(int(most / step) + 1)]


def shown(value: float) -> str:
    """A number of an axis."""
    return str(escape(f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"))

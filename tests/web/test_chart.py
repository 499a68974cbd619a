"""Charts as SVG."""

from xml.etree import ElementTree

import pytest

from dsopt.web.chart import Chart, Mark, shown, stacked, ticks


@pytest.mark.parametrize(
    ("most", "expected"),
    [(10.0, [0, 2, 4, 6, 8, 10]), (1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0.0, [0]), (float("inf"), [0])],
)
def test_ticks_are_round_numbers_up_to_the_most(most: float, expected: list[float]) -> None:
    assert ticks(most) == expected


@pytest.mark.parametrize(("value", "text"), [(0.25, "0.25"), (1234567.0, "1,234,567"), (999.4, "999")])
def test_numbers_of_an_axis_are_short(value: float, text: str) -> None:
    assert shown(value) == text


def test_a_chart_is_whole_and_escapes_what_it_is_given() -> None:
    marks = [
        Mark(x=1, y=5, low=4, high=6, kind="z1", says="<script>alert(1)</script> & more"),
        Mark(x=8, y=0, kind="z2", says="out of memory", is_cross=True),
        Mark(x=4, y=3, kind="z2", says="< 3", is_hollow=True),
    ]
    chart = Chart(title='"quoted"', x_label="a < b", y_label="samples/s", marks=marks, edges=[(8, "z2")], is_log=True)
    drawn = ElementTree.fromstring(chart.svg())
    assert drawn.get("aria-label") == '"quoted"'
    titles = [title.text for title in drawn.iter("title")]
    assert titles == ["<script>alert(1)</script> & more", "out of memory", "< 3"]
    assert [circle.get("class") for circle in drawn.iter("circle")] == ["dot z1", "ring z2"]
    circle = next(drawn.iter("circle"))
    cross = next(path for path in drawn.iter("path"))
    assert 64 < float(circle.get("cx", "")) < 624
    assert cross.get("class") == "cross z2"


def test_higher_is_further_up_and_more_is_further_right() -> None:
    marks = [Mark(x=1, y=1), Mark(x=2, y=3), Mark(x=4, y=2)]
    drawn = ElementTree.fromstring(Chart(title="t", x_label="x", y_label="y", marks=marks, is_log=True).svg())
    xs = [float(circle.get("cx", "")) for circle in drawn.iter("circle")]
    ys = [float(circle.get("cy", "")) for circle in drawn.iter("circle")]
    assert xs == sorted(xs)
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.2)  # a logarithmic axis
    assert sorted(range(3), key=lambda index: ys[index]) == [1, 2, 0]


def test_bars_of_parts_are_as_long_as_their_values() -> None:
    drawn = ElementTree.fromstring(stacked("t", [("a", [("forward", 1.0), ("backward", 3.0)])], "ms"))
    widths = [float(bar.get("width", "")) for bar in drawn.iter("rect")]
    assert widths[1] == pytest.approx(3 * widths[0], rel=0.01)

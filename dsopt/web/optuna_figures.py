"""Charts of a part of a study as plotly reads them, for optuna-dashboard. They are made anew whenever it asks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dsopt.report.standing import Standing
from dsopt.study.part import Part
from dsopt.web import plots
from dsopt.web.chart import Chart
from dsopt.web.study_page import StudyPage

_COLOURS: Final = {"z0": "#8250df", "z1": "#1f77d0", "z2": "#2da44e", "z3": "#d9730d"}
_TEXT: Final = "#7a828c"  # can be read on white and on black
_GRID: Final = "rgba(128,128,128,.3)"
_NOTHING: Final = "Nothing was measured yet. Panels beside this one are empty until then."
_NO_ESTIMATE: Final = "Nothing was launched a second time yet, and there is no result."
_NO_PARAMETERS: Final = "<br><sub>These runs have no parameters to tune: Hyperparameter Importance stays empty.</sub>"


def figures_of(page: StudyPage, part: Part) -> Mapping[str, Mapping[str, Any]]:
    """By id, the charts of a part; a chart with nothing to show says why. A comparison has none."""
    standing = page.standing
    if standing is None:
        return {}
    if part.stage is None:
        return {"dsopt-estimates": _estimated(standing)}
    own = replace(standing, rows=[row for row in standing.rows if row.stage == part.stage])
    chart = plots.by_micro_batch(own)
    title = f"{standing.metric} by micro-batch size, ZeRO stage {part.stage}"
    return {"dsopt-micro-batch": _empty(title, _NOTHING) if chart is None else _figure(chart, title)}


def _figure(chart: Chart, title: str) -> dict[str, Any]:
    dots, crosses = ([mark for mark in chart.marks if mark.is_cross is is_cross] for is_cross in (False, True))
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "x": [mark.x for mark in marks],
            "y": [mark.y for mark in marks],
            "text": [mark.says for mark in marks],
            "hoverinfo": "text",
            "name": name,
            "marker": {"symbol": symbol, "size": 9, "color": [_COLOURS.get(mark.kind, _TEXT) for mark in marks]},
            "error_y": {
                "type": "data",
                "array": [0.0 if mark.high is None else mark.high - mark.y for mark in marks],
                "arrayminus": [0.0 if mark.low is None else mark.y - mark.low for mark in marks],
                "color": _TEXT,
            },
        }
        for name, symbol, marks in (("measured", "circle", dots), ("out of memory", "x", crosses))
        if marks
    ]
    x_axis = {"title": {"text": chart.x_label}, "type": "log" if chart.is_log else "linear"}
    return {"data": data, "layout": _layout(title, x_axis, chart.y_label)}


def _estimated(standing: Standing) -> dict[str, Any]:
    """The metric of the result, the user's own configuration and what was launched again, by all runs together."""
    title = f"{standing.metric}, estimate by all runs{_NO_PARAMETERS}"
    rows = [row for row in standing.rows if row.estimate is not None]
    if not rows:
        return _empty(title, _NO_ESTIMATE)
    values = [row.estimate or 0.0 for row in rows]
    ends = [row.estimate_interval or (value, value) for row, value in zip(rows, values, strict=True)]
    bars = {
        "type": "bar",
        "x": [row.label for row in rows],
        "y": values,
        "marker": {"color": [_COLOURS.get(f"z{row.stage}", _TEXT) for row in rows]},
        "error_y": {
            "type": "data",
            "array": [high - value for (_, high), value in zip(ends, values, strict=True)],
            "arrayminus": [value - low for (low, _), value in zip(ends, values, strict=True)],
            "color": _TEXT,
        },
    }
    return {"data": [bars], "layout": _layout(title, {"type": "category", "automargin": True}, standing.unit)}


def _empty(title: str, why: str) -> dict[str, Any]:
    note = {"text": why, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5, "showarrow": False}
    hidden = {"visible": False}
    return {"data": [], "layout": {**_layout(title, hidden, ""), "yaxis": hidden, "annotations": [note]}}


def _layout(title: str, x_axis: Mapping[str, Any], y_label: str) -> dict[str, Any]:
    clear = "rgba(0,0,0,0)"  # the page is light or dark
    return {
        "title": {"text": title},
        "xaxis": {"gridcolor": _GRID, **x_axis},
        "yaxis": {"title": {"text": y_label}, "rangemode": "tozero", "gridcolor": _GRID},
        "font": {"color": _TEXT},
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "showlegend": False,
    }

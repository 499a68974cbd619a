"""Turns data into HTML, with everything in it escaped."""

from functools import lru_cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dsopt.report.diff import shown
from dsopt.report.durations import short_duration
from dsopt.report.numbers import number
from dsopt.version import __version__
from dsopt.web.chart import Chart


def render(template: str, *, is_part: bool = False, up: str = "./", **values: Any) -> str:  # noqa: ANN401 - of the page
    """A page as text.

    Args:
        template: its name, without `.html`.
        is_part: whether only what changes on the page is wanted.
        up: the relative address of the overview: the pages work under any path.
        values: what the template shows.
    """
    layout = "part.html" if is_part else "layout.html"
    found = _environment().get_template(f"{template}.html")
    return found.render(layout=layout, up=up, version=__version__, **values)


def style() -> str:
    """The style sheet, for pages that stand alone."""
    return resources.files("dsopt.web").joinpath("style.css").read_text("utf-8")


def standing_alone(chart: Chart) -> str:
    """A chart as a picture in a file of its own."""
    head = Markup('<svg xmlns="http://www.w3.org/2000/svg" width="640" height="300" ')
    return str(chart.svg()).replace("<svg ", head, 1).replace(">", f"><style>{escape(style())}</style>", 1)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dsopt.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "duration": short_duration,
        "gib": _gib,
        "value_of": _value_of,
        "whole_pieces": _whole_pieces,
    }
    return environment


def _whole_pieces(label: str) -> Markup:
    """The name of a configuration, which breaks only between its pieces: not within `(ZeRO 1 · 1 × 1)`'s `1 × 1`."""
    pieces = [Markup('<span class="whole">{}</span>').format(piece) for piece in label.split(" · ")]
    return Markup(" · ").join(pieces)


def _value_of(value: object, key: str) -> str:
    return shown(key, value)


def _gib(size: float | None) -> str:
    return "" if size is None else f"{size / 2**30:.1f} GiB"

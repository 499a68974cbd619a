"""Markdown tables with aligned columns."""

from collections.abc import Sequence


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], to_right: Sequence[bool]) -> str:
    """A Markdown table; `to_right` says for each column whether it is right-aligned."""
    table = [header, *rows]
    widths = [max(2, *(len(row[column]) for row in table)) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, to_right, strict=True)
        ]
        return f"| {' | '.join(cells)} |"

    rule = [
        ("-" * (width - 1) + ":") if is_right else ":" + "-" * (width - 1)
        for width, is_right in zip(widths, to_right, strict=True)
    ]
    return "\n".join([line(header), line(rule), *(line(row) for row in rows)])

"""What a study shows, for people who may not know its secrets: a script may have said anything."""

from collections.abc import Sequence
from dataclasses import replace

from dsopt.report.answer import Answer
from dsopt.report.compare import ComparisonTable
from dsopt.report.secrets import without_secrets
from dsopt.report.standing import Standing


def standing_for_others(standing: Standing, secrets: Sequence[str]) -> Standing:
    """Where a study stands, without these secrets and whatever looks like one."""
    return replace(
        standing,
        good=without_secrets(standing.good, secrets),
        rows=[
            replace(
                row,
                message=without_secrets(row.message, secrets),
                unconfirmed=None if row.unconfirmed is None else without_secrets(row.unconfirmed, secrets),
            )
            for row in standing.rows
        ],
        stages=[(stage, without_secrets(verdict, secrets)) for stage, verdict in standing.stages],
        now=[without_secrets(line, secrets) for line in standing.now],
        advice=[without_secrets(line, secrets) for line in standing.advice],
        doubts=[without_secrets(line, secrets) for line in standing.doubts],
    )


def table_for_others(table: ComparisonTable, secrets: Sequence[str]) -> ComparisonTable:
    """The table of a comparison, likewise."""
    rows = [
        row if row.reason is None else replace(row, reason=without_secrets(row.reason, secrets)) for row in table.rows
    ]
    return replace(table, rows=rows)


def answer_for_others(answer: Answer, secrets: Sequence[str]) -> Answer:
    """The result of a study, likewise; its headline quotes what a failed run said."""
    return replace(answer, headline=without_secrets(answer.headline, secrets))

"""Reports for others hide secrets wherever a script's own words stand."""

from dsopt.report.answer import Answer
from dsopt.report.compare import ComparedRow, ComparisonTable
from dsopt.report.for_others import answer_for_others, table_for_others

SAID = "the hub refused hf_abcdefghijklmnopqrstuvwxyz012345, and s3cret-of-mine"
KNOWN = ["s3cret-of-mine"]


def test_the_reasons_of_a_comparison_hide_them() -> None:
    rows = [ComparedRow(name="yours", with_deepspeed=True, reason=SAID), ComparedRow(name="b", with_deepspeed=True)]
    table = ComparisonTable(
        study="s", state="finished", metric="throughput", unit="samples/s", reference=None, rounds=1, rows=rows,
        fastest=None, probability=None,
    )  # fmt: skip
    found = table_for_others(table, KNOWN)
    assert [row.reason for row in found.rows] == ["the hub refused ***, and ***", None]
    assert "s3cret" not in str(found.to_json())


def test_the_headline_of_an_answer_hides_them() -> None:
    answer = Answer(
        study="s", simulated=None, headline=SAID, certainty="", rows=[], file="f", command="c", doubts=0
    )  # fmt: skip
    assert answer_for_others(answer, KNOWN).headline == "the hub refused ***, and ***"

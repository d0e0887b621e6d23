"""Exports of gradings, preferences, attempts and the judges' ledger; the trials table has no verdicts."""

import json
from decimal import Decimal

import pytest

from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.grading.scoring import grade
from grading_app.models import Rubric
from grading_app.publish.export.file_formats import export_chunks
from tests.factories.engine import drain
from tests.factories.judges import build_judge, make_grader, make_rubric


def export_rows(experiment, table):
    text = b"".join(export_chunks(experiment, table, "jsonl")).decode()
    return [json.loads(line) for line in text.split("\n") if line]


@pytest.fixture
def judged(answered, wave):
    request_verdicts(answered, [make_grader()], [wave], by="test")
    drain(build_judge(0.5, cost_usd=Decimal("0.00003")))
    read_verdicts(answered)
    return answered


def test_an_exported_grading_contains_its_judge_rubric_and_cost(judged):
    (row, *others) = export_rows(judged, "gradings")
    assert len(others) == 11
    assert {name: row[name] for name in ("grader", "rubric", "score", "score_raw", "parse_ok", "grade_reasoning")} == {
        "grader": "judge-a", "rubric": "standard", "score": 0.5, "score_raw": "0.5", "parse_ok": True,
        "grade_reasoning": "It is so.",
    }  # fmt: skip
    assert row["rubric_hash"] == Rubric.objects.get().content_hash
    assert Decimal(str(row["grade_cost_usd"])) == Decimal("0.00003")
    assert row["grade_condition_id"].startswith("judge-a_standard--")
    assert row["model"] in ("small", "large")  # The design cell belongs to the answer, not to the judge.


def test_gradings_of_rules_and_judges_share_one_table(judged):
    grade(judged, scorers=["exact_match"], by="test")
    kinds = {(row["scorer"], row["grader"], row["grade_reasoning"]) for row in export_rows(judged, "gradings")}
    assert kinds == {("", "judge-a", "It is so."), ("exact_match", None, None)}


def test_the_trials_table_has_only_generation_and_attempts_have_a_stage(judged):
    assert len(export_rows(judged, "trials")) == 12
    stages = [row["stage"] for row in export_rows(judged, "attempts")]
    assert (stages.count("generate"), stages.count("judge")) == (12, 12)
    ledger = [
        row for row in export_rows(judged, "ledger") if row["stage"] == "judge"
    ]  # One row for each quarter of an hour.
    assert {row["model"] for row in ledger} == {"judge"}
    assert sum(row["attempts"] for row in ledger) == 12


def test_preferences_have_a_separate_table(answered, wave):
    request_verdicts(answered, [make_grader(rubric=make_rubric("duel", "pairwise"))], [wave], by="test")
    drain(build_judge(lambda request: {"winner": "B", "reasoning": "Better."}))
    read_verdicts(answered)
    rows = export_rows(answered, "preferences")
    assert len(rows) == 12
    assert {(row["winner"], row["grade_reasoning"], row["parse_ok"]) for row in rows} == {("b", "Better.", True)}
    assert {frozenset((row["model"], row["rival_model"])) for row in rows} == {frozenset({"small", "large"})}
    assert export_rows(answered, "gradings") == []

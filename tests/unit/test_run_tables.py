"""The cells of the tables of waves, preflights and verdicts."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.utils.html import strip_tags

from grading_app.models import GradeCondition, Grading, Preference, SupersededVerdict
from grading_app.views.trials import VerdictTable, list_former_verdicts, list_gradings, list_preferences
from runs_app.models import Endpoint, LanguageModel, Preflight, Wave
from runs_app.models.totals import Totals
from runs_app.monitoring.progress import WaveTotals
from runs_app.tables.experiments import WaveTable
from runs_app.tables.trials import PreflightTable

NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)
JUDGE = GradeCondition(kind="judge", grade_condition_id="strict")


def read_cells(table, *names):
    return [tuple(strip_tags(str(row.get_cell(name))).strip() for name in names) for row in table.rows]


def test_a_wave_shows_its_trials_and_cost():
    table = WaveTable([WaveTotals(Wave(label="march"), Totals(done=2, failed=1, pending=1), Decimal("1.5"))])
    assert read_cells(table, *table.columns.names())[0][0] == "march"
    assert read_cells(table, "done", "failed", "remaining", "spent_usd") == [("2 of 4", "1", "1", "$1.50")]


def test_a_wave_without_known_costs_shows_no_amount():
    imported = WaveTotals(Wave(label="march"), Totals(done=2, unpriced=2), Decimal(0))
    partly_known = WaveTotals(Wave(label="june"), Totals(done=2, unpriced=1), Decimal("1.5"))
    assert read_cells(WaveTable([imported, partly_known]), "spent_usd") == [("unknown",), ("$1.50",)]


def make_preflight(changed_at=None, **fields):
    model = LanguageModel(endpoint=Endpoint(), route_changed_at=changed_at)
    return Preflight(model=model, status="ok", actor="ada", asked_at=NOW, latency_ms=5, **fields)


def test_a_preflight_shows_a_cost_only_if_its_call_was_made():
    made = make_preflight(started_at=NOW, finished_at=NOW, cost_usd=Decimal("0.02"))
    table = PreflightTable([made, make_preflight(cost_usd=Decimal("0.02"))])
    assert [cost for (cost,) in read_cells(table, "cost_usd")] == ["$0.02", "–"]
    assert read_cells(table, "result_text", "actor")[0] == ("Answered in 5 ms as an unnamed model.", "ada")


def test_a_preflight_before_a_change_of_its_endpoint_is_marked():
    table = PreflightTable([make_preflight(), make_preflight(changed_at=NOW + timedelta(1))])
    assert [text for (text,) in read_cells(table, "status")] == ["Ok", "Ok checked before the endpoint changed"]


@pytest.mark.parametrize(
    ("fields", "score", "reason"),
    [
        ({"score": 0.5, "reasoning": "Half."}, "0.5", "Half. The judge's call"),
        ({"score": 1, "score_raw": "x" * 200}, "1", f"read {'x' * 159}… The judge's call"),
        ({"score": 1, "judged_by_id": 7}, "1", "–"),
        ({"score": 1, "detail": {"criteria": {"clear": True}}, "judged_by_id": None}, "1", "clear: met"),
        ({"parse_ok": False, "parse_error": "no_score", "judged_by_id": None}, "no_score", "–"),
    ],
)
def test_a_grading_shows_its_score_and_reason(fields, score, reason):
    grading = Grading(**{"condition": JUDGE, "parse_ok": True, "judged_by_id": 9, "created_at": NOW} | fields)
    ((by, *cells),) = read_cells(VerdictTable(list_gradings([grading], 7)), "by", "verdict", "reason")
    assert by.endswith(" strict")
    assert cells == [score, reason]


@pytest.mark.parametrize(
    ("winner", "position", "text"),
    [
        ("a", "a", "This answer shown first, compared with trial 8"),
        ("a", "b", "The other answer shown second, compared with trial 8"),
        ("tie", "a", "Tie shown first, compared with trial 8"),
        ("b", "", "The second"),
    ],
)
def test_a_preference_names_the_winner_from_the_view_of_this_answer(winner, position, text):
    row = Preference(condition=JUDGE, winner=winner, created_at=NOW)
    entry = {"row": row, "position": position, "other": 8 if position else None, "won": winner == position}
    assert read_cells(VerdictTable(list_preferences([entry], 7)), "verdict", "reason") == [(text, "–")]


def test_a_former_verdict_shows_its_score_or_winner():
    contents = [
        {"score": 0.5, "score_raw": "half"},
        {"winner": "a", "reasoning": "Better."},
        {"parse_error": "no_score"},
    ]
    verdicts = [
        SupersededVerdict(
            condition=JUDGE, rival_id=8, content=content | {"created_at": NOW.isoformat()}, superseded_at=NOW
        )
        for content in contents
    ]
    assert read_cells(VerdictTable(list_former_verdicts(verdicts)), "verdict", "reason") == [
        ("0.5", "read half"), ("A against trial 8", "Better."), ("no_score", "–"),
    ]  # fmt: skip

"""Columns about the origin of gradings: grader, settings and call, recomputed from the rows in every format."""

import csv
import io
import json

import pyarrow.parquet as pa_parquet
import pytest

from grading_app.grading.judging import panels
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.grading.scoring import grade
from grading_app.models import Adjudication, Grading, Panel
from grading_app.models.rubrics import Scale
from grading_app.publish.export.file_formats import TABLES, export_chunks
from grading_app.results.raters.disagreements import adjudicate
from runs_app.models import TextSet, Trial
from tests import factories
from tests.factories.engine import drain
from tests.factories.judges import build_judge, make_grader, make_rubric, write_ledger
from tests.factories.tampering import allow_deletions

ADDED = [
    "trial_id",
    "kind",
    "parameters",
    "rubric_version",
    "item_texts",
    "judge_model",
    "judge_endpoint",
    "judge_sampler",
    "judge_served_model",
    "judge_trial_id",
    "unasked",
    "label",
    "truncated",
    "refused",
    "detail",
    "adjudicated_by",
    "graded_at",
]
LABELS = [{"name": "right", "score": 1}, {"name": "wrong", "score": 0}]


@pytest.fixture
def answered(transactional_db):
    """Return answers to three items by two models with two samples. The first answer is long and truncated."""
    experiment = factories.make_experiment(
        samples=2, models=[factories.make_model("small"), factories.make_model("large")]
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda *cell, run=run: f"7 by {run.pk}")
    first = experiment.runs.first()
    with allow_deletions():
        Trial.objects.filter(run=first).delete()
    factories.plan_trials(
        first, answer=lambda item, _, index: {"answer": "word " * (1 if index else 20), "truncated": not index}
    )
    write_ledger(experiment)
    return experiment


@pytest.fixture
def graded(answered):
    """Return answers graded by a rule with a parameter, two judges, their panel, and a person who changed a verdict.

    The judge of labels finds some answers too long; the other judge rates criteria.
    """
    wave = answered.waves.get()
    texts = TextSet.objects.create(name="notes", dataset=answered.dataset, status="approved")
    terse = make_grader("terse", rubric=make_rubric("labels", "label", labels=LABELS), longest_answer=50)
    fond = make_grader("fond", rubric=make_rubric(), model=factories.make_model("other"), text_set=texts)
    request_verdicts(answered, [terse, fond], [wave], by="test")
    drain(build_judge(lambda request: {"label": "wrong", "score": 0, "reasoning": "No."}, served_model="judge-2026"))
    read_verdicts(answered)
    panel = Panel.objects.create(name="both", rule="mean")
    panel.graders.set([fond, make_grader("kin", model=factories.make_model("third"), rubric=fond.rubric)])
    request_verdicts(answered, [panel.graders.get(name="kin")], [wave], by="test")
    drain(build_judge(1.0))
    read_verdicts(answered)
    panels.add_panel(answered, panel)
    grade(answered, scorers=[{"name": "regex", "pattern": "by"}], by="test")
    for score, who in ((0.0, "first"), (1.0, "second")):
        person = factories.make_user(who)
        adjudicate(
            Trial.objects.filter(truncated=True).first(),
            scale=Scale(0, 1),
            score=score,
            reason=f"So says the {who}.",
            by=person,
        )
    return answered


def export_gradings(experiment, file_format):
    return b"".join(export_chunks(experiment, "gradings", file_format))


def build_expected_columns(grading):
    """Return the added columns of one grading, computed from its rows."""
    condition, detail, call = (
        grading.condition,
        grading.detail or {},
        Trial.objects.filter(pk=grading.judged_by_id).first(),
    )
    judged = condition.judge_condition
    texts = condition.grader and condition.grader.text_set
    word = Adjudication.objects.filter(condition=condition, trial=grading.trial).order_by("pk").last()
    return {
        "trial_id": grading.trial_id,
        "kind": condition.kind,
        "parameters": condition.parameters,
        "rubric_version": condition.rubric and condition.rubric.version,
        "item_texts": str(texts) if texts else None,
        "judge_model": judged and judged.model.name,
        "judge_endpoint": judged and judged.model.endpoint.name,
        "judge_sampler": judged and judged.sampler.name,
        "judge_served_model": call and call.served_model,
        "judge_trial_id": grading.judged_by_id,
        "unasked": detail.get("code"),
        "label": detail.get("label"),
        "truncated": grading.trial.truncated,
        "refused": grading.trial.refused,
        "detail": grading.detail,
        "adjudicated_by": word and word.by.username,
        "graded_at": grading.created_at,
    }


def get_key(row):
    return (row["kind"], row["grader"] or "", int(row["trial_id"]))


def test_added_columns_follow_the_documented_columns():
    assert [column.name for column in TABLES["gradings"].columns][29:] == ADDED


@pytest.mark.slow
def test_every_column_equals_the_rows_in_every_format(graded):
    stored = [build_expected_columns(grading) for grading in Grading.objects.all()]
    exact = [json.loads(line) for line in export_gradings(graded, "jsonl").decode().split("\n") if line]
    by_key = {get_key(row): row for row in exact}
    assert len(by_key) == len(exact) == len(stored) == 12 * 5 + 1
    for row in exact:
        row["graded_at"] = row["graded_at"].removesuffix("Z")
    wanted = [row | {"graded_at": f"{row['graded_at']:%Y-%m-%dT%H:%M:%S.%f}"} for row in stored]
    assert sorted(({name: row[name] for name in ADDED} for row in exact), key=str) == sorted(wanted, key=str)
    parquet = pa_parquet.read_table(io.BytesIO(export_gradings(graded, "parquet"))).to_pylist()
    for row in parquet:
        same = by_key[get_key(row)]
        assert json.loads(row["parameters"]) == same["parameters"]
        assert (json.loads(row["detail"]) if row["detail"] else None) == same["detail"]
        plain = [name for name in ADDED if name not in ("parameters", "detail", "graded_at")]
        assert {name: row[name] for name in plain} == {name: same[name] for name in plain}
        assert f"{row['graded_at']:%Y-%m-%dT%H:%M:%S.%f}" == same["graded_at"]
    for row in csv.DictReader(io.StringIO(export_gradings(graded, "csv").decode(), newline="")):
        same = by_key[get_key(row)]
        assert (row["unasked"], row["judge_model"]) == (same["unasked"] or "", same["judge_model"] or "")
        assert json.loads(row["parameters"]) == same["parameters"]


@pytest.mark.slow
def test_a_score_without_a_call_is_distinguished_from_a_judges_zero(graded):
    rows = [json.loads(line) for line in export_gradings(graded, "jsonl").decode().split("\n") if line]
    zeros = [(row["unasked"], row["label"], row["judge_trial_id"] is None) for row in rows if row["grader"] == "terse"]
    assert {row["score"] for row in rows if row["grader"] == "terse"} == {0}
    assert sorted(zeros, key=str) == [("answer_too_long", None, True)] * 3 + [(None, "wrong", False)] * 9


@pytest.mark.slow
def test_an_adjudicated_row_has_the_last_adjudicator_and_reason(graded):
    (row,) = [
        line for line in map(json.loads, export_gradings(graded, "jsonl").splitlines()) if line["kind"] == "adjudicated"
    ]
    assert (row["adjudicated_by"], row["score"], row["grade_reasoning"]) == ("second", 1, "So says the second.")
    assert row["parameters"] == {"scale_min": 0, "scale_max": 1}


@pytest.mark.slow
def test_a_panel_row_contains_its_members_scores(graded):
    rows = [line for line in map(json.loads, export_gradings(graded, "jsonl").splitlines()) if line["kind"] == "panel"]
    assert len(rows) == 12
    assert {tuple(sorted(row["detail"]["members"].values())) for row in rows} == {(0, 1)}

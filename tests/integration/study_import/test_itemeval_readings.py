"""A study of itemeval with priced models, compared with what itemeval itself reads in its stores.

`itemeval_priced/make_study.py` wrote the study, and `readings.json`.
"""

import json
import shutil
from decimal import Decimal
from pathlib import Path

import pytest
from django.db.models import Count, Q, Sum

from grading_app.models import Grading
from runs_app.models import Attempt, Condition, Run, Trial, Wave
from tests import factories
from tests.integration.study_import.import_command import import_study

pytestmark = pytest.mark.django_db
FOLDER = Path(__file__).parent / "itemeval_priced"
READINGS = json.loads((FOLDER / "readings.json").read_text())


@pytest.fixture
def experiment(tmp_path):
    factories.make_user("owner", superuser=True)
    return import_study(Path(shutil.copytree(FOLDER, tmp_path / "project")))


def add_up(rows):
    columns = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    return rows.aggregate(**{name: Sum(name) for name in (*columns, "cost_usd")})


def expect_sums(sums):
    """Return itemeval's sums as this site counts them: input tokens include those of the provider's cache."""
    tokens = {name: None if value is None else int(value) for name, value in sums.items() if name.endswith("_tokens")}
    cached = (tokens["cache_read_tokens"] or 0) + (tokens["cache_write_tokens"] or 0)
    return tokens | {"input_tokens": tokens["input_tokens"] + cached, "cost_usd": round(Decimal(sums["usd"]), 8)}


def list_answers():
    return Trial.objects.filter(run__in=Run.objects.generating())


def test_each_solver_has_the_answers_the_tokens_and_the_costs_that_itemeval_reads(experiment):
    for model, reading in READINGS["by_model"].items():
        trials = list_answers().filter(run__condition__model__model=model)
        assert trials.count() == reading["rows"]
        assert trials.filter(status="failed").count() == reading["errors"]
        assert add_up(trials) == expect_sums(reading)
    assert list_answers().count() == READINGS["solutions"]
    assert list_answers().filter(answer="").count() == READINGS["empty"] > 0


def test_scores_of_rules_and_of_the_judge_are_those_that_itemeval_reads(experiment):
    kinds = {"verifiable": "rule", "judge": "judge"}
    for kind, ours in kinds.items():
        gradings = Grading.objects.filter(condition__kind=ours)
        counts = gradings.aggregate(n=Count("pk"), total=Sum("score"), unread=Count("pk", filter=Q(parse_ok=False)))
        assert counts == {
            "n": READINGS["gradings"][kind],
            "total": pytest.approx(READINGS["score_sums"][kind]),
            "unread": READINGS["unreadable"][kind],
        }
    verdicts = Trial.objects.filter(run__condition__stage=Condition.Stage.JUDGE)
    assert add_up(verdicts) == expect_sums(READINGS["judge"])


def test_waves_and_the_money_of_the_ledger_are_those_that_itemeval_reads(experiment):
    waves = {(wave["label"] or ""): wave["completed"] for wave in READINGS["status"]["waves"]}
    counted = Wave.objects.annotate(
        n=Count("runs__trials", filter=Q(runs__condition__stage="generate", runs__trials__status="done"))
    )
    assert dict(counted.values_list("label", "n")) == waves
    for stage, spent in (("generate", "spend_generate_usd"), ("judge", "spend_grade_usd")):
        booked = Attempt.objects.filter(run__condition__stage=stage).aggregate(usd=Sum("cost_usd"))["usd"]
        assert float(booked) == pytest.approx(READINGS["status"][spent], abs=1e-6)
    assert float(experiment.spent_usd) == pytest.approx(
        READINGS["ledger"]["generate"]["usd"] + READINGS["ledger"]["grade"]["usd"], abs=1e-6
    )

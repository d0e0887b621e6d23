"""`manage.py analyse` writes the tables of the analysis page, in any format and for any scope."""

import csv
import io
import json

import pytest
from django.core.management import CommandError, call_command

from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def experiment():
    made = factories.make_experiment(
        dataset=factories.make_dataset(items=6),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence"), factories.make_dimension("arousal")],
        samples=2,
    )
    for run in factories.make_runs(made):
        factories.plan_trials(run, answer=lambda item, _, index: _rating(item.position + index))
    return made


def _rating(number):
    if number == 3:
        return {"answer": "none", "rating": None, "parse_error": "no_rating_found"}
    return {"answer": str(number + 1), "rating": number + 1}


def run(*arguments):
    out = io.StringIO()
    call_command("analyse", *arguments, stdout=out)
    return out.getvalue()


def run_refused(*arguments):
    with pytest.raises(CommandError) as raised:
        run(*arguments)
    assert raised.value.returncode == 2
    return str(raised.value)


def read_rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_descriptives_describe_the_ratings(experiment, tmp_path):
    out = tmp_path / "table.csv"
    run("pilot", "--table", "descriptives", "--format", "csv", "--out", str(out))
    first, second = read_rows(out)
    ratings = [n + 1 for position in range(6) for n in (position, position + 1) if n != 3]
    assert (first["items"], first["n"], first["missing"]) == ("6", str(len(ratings)), "2")
    assert float(first["mean"]) == pytest.approx(sum(ratings) / len(ratings))
    assert 1 <= float(first["interval_low"]) < float(first["mean"]) < float(first["interval_high"]) <= 7
    assert second["mean"] == first["mean"]


def test_an_unreadable_answer_can_count_as_the_lowest_score(experiment, tmp_path):
    out = tmp_path / "table.json"
    run("pilot", "--table", "descriptives", "--format", "json", "--unreadable", "wrong", "--out", str(out))
    row = json.loads(out.read_text())["rows"][0]
    ratings = [1 if n == 3 else n + 1 for position in range(6) for n in (position, position + 1)]
    assert (row["n"], row["missing"]) == (12, 0)
    assert row["mean"] == pytest.approx(sum(ratings) / 12)


def test_the_scope_restricts_category_measure_and_condition(experiment, tmp_path):
    out = tmp_path / "table.csv"
    condition = experiment.conditions.order_by("pk").last().condition_id
    scope = ["--measure", "arousal", "--category", "odd", "--condition", condition]
    run("pilot", "--table", "descriptives", "--format", "csv", "--out", str(out), *scope)
    (only,) = read_rows(out)
    assert only["items"] == "3"


def test_unknown_names_are_errors_that_list_the_valid_names(experiment):
    assert "experiment: there is no experiment nothing" in run_refused("nothing")
    assert "descriptives" in run_refused("pilot", "--table", "anova")
    assert "valence, arousal" in run_refused("pilot", "--measure", "beauty")
    assert experiment.conditions.first().condition_id in run_refused("pilot", "--baseline", "gpt")


def test_an_experiment_without_scores_says_so():
    factories.make_experiment("empty")
    assert "no score" in run_refused("empty")

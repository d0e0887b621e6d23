"""`manage.py analyse` writes the tables of the analysis page, in any format and for any scope."""

import csv
import io
import json

import pytest
from django.core.management import CommandError, call_command

from tests import factories
from tests.factories import gradings
from tests.factories.judges import make_grader
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
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
    run("pilot", "--table", "descriptives", "--measure", "valence", "--format", "csv", "--out", str(out))
    first, second = read_rows(out)
    ratings = [n + 1 for position in range(6) for n in (position, position + 1) if n != 3]
    assert (first["items"], first["n"], first["missing"]) == ("6", str(len(ratings)), "2")
    assert float(first["mean"]) == pytest.approx(sum(ratings) / len(ratings))
    assert 1 <= float(first["interval_low"]) < float(first["mean"]) < float(first["interval_high"]) <= 7
    assert second["mean"] == first["mean"]


def test_an_unreadable_answer_can_count_as_the_lowest_score(experiment, tmp_path):
    out = tmp_path / "table.json"
    scope = ("--measure", "valence", "--missing", "wrong")
    run("pilot", "--table", "descriptives", "--format", "json", *scope, "--out", str(out))
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


@pytest.fixture
def judged(experiment):
    """Return the experiment with the scores of a judge on both dimensions."""
    condition = gradings.make_gradings(experiment, "strict", lambda trial: (trial.rating or 1) / 7)
    condition.grader = make_grader("strict-judge", rubric=condition.rubric)
    condition.save()
    return experiment


@pytest.fixture
def written(tmp_path):
    """Run the command with a path, and return the text of the file."""

    def run_to_file(*arguments):
        run("pilot", "--table", "descriptives", *arguments, "--out", str(tmp_path / "out"))
        return (tmp_path / "out").read_text()

    return run_to_file


def test_every_format_names_the_measure(experiment, written):
    assert "**Scores by condition: Arousal**" in written("--measure", "arousal")
    assert written("--measure", "arousal", "--format", "csv").startswith("measure,measure_label,condition,")
    table = json.loads(written("--measure", "arousal", "--format", "json"))
    assert (table["measure"], table["measure_label"]) == ("arousal", "Arousal")
    latex = written("--measure", "arousal", "--format", "latex")
    assert r"\caption{Scores by condition: Arousal." in latex
    assert r"\label{tab:descriptives-arousal}" in latex


@pytest.mark.parametrize(
    "chosen",
    [(), ("--measure", "valence", "--measure", "arousal"), ("--measure", "valence", "arousal")],
    ids=["by default", "repeated", "listed"],
)
def test_one_command_writes_the_tables_of_several_measures(experiment, written, chosen):
    assert [table["measure"] for table in json.loads(written("--format", "json", *chosen))] == ["valence", "arousal"]
    rows = list(csv.DictReader(io.StringIO(written("--format", "csv", *chosen))))
    assert [row["measure"] for row in rows] == ["valence", "valence", "arousal", "arousal"]


@pytest.mark.parametrize("name", ["strict-judge:arousal", "STRICT-JUDGE (standard@1) · arousal"])
def test_a_measure_goes_by_the_names_that_pages_show(judged, written, name):
    condition = judged.grade_conditions.get()
    by_name, by_key = (
        json.loads(written("--measure", text, "--format", "json")) for text in (name, f"g{condition.pk}:arousal")
    )
    assert by_name == by_key
    assert by_name["measure_label"] == f"{condition.label} · Arousal"


def test_a_name_of_several_measures_is_an_error_that_lists_them(judged):
    error = run_refused("pilot", "--measure", "strict-judge")
    key = judged.grade_conditions.get().grade_condition_id
    assert "strict-judge is the name of several measures: " in error
    assert f"{key}:valence" in error
    assert f"{key}:arousal" in error


def test_a_wave_goes_by_its_label_or_number(experiment, written):
    factories.make_wave(experiment, 1, "second")
    for made in experiment.conditions.all():
        wave_run = experiment.runs.model.objects.create(
            experiment=experiment, condition=made, wave=experiment.waves.get(number=1), status="done"
        )
        factories.plan_trials(wave_run, answer=lambda *cell: _rating(0))
    by_label, by_number = (written("--wave", name, "--format", "csv") for name in ("second", "1"))
    assert by_label == by_number != written("--format", "csv")
    error = run_refused("pilot", "--wave", "third")
    assert error == '--wave: Select a valid choice: there is no wave third; existing waves: 0 "first wave", 1 "second".'

"""Empty, truncated, refused and unreadable answers: counted on pages, filtered by URL, and exported."""

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection

from runs_app.models import Attempt, Run, Trial
from runs_app.models.trials import UNUSABLE, UNUSABLE_KINDS
from tests import factories
from tests.shared_rows import shared_rows

KINDS = ("empty", "truncated", "refused", "unparsed")


@shared_rows
def experiment(lab_of_file):
    """Return four trials of different kinds; one is both empty and truncated."""
    answers = iter(
        [
            {"answer": "", "truncated": True},
            {"answer": "so far", "truncated": True},
            {"answer": "no", "refused": True},
            {"answer": "what?", "parse_error": "no_rating_found"},
            {"answer": "ready"},
            {"answer": "ready"},
        ]
    )
    experiment = factories.make_experiment("odd", owner=lab_of_file.people["owner"], samples=2, status="active")
    (run,) = factories.make_runs(experiment)
    for trial in factories.plan_trials(run, answer=lambda *_: next(answers)):
        flags = {"empty": trial.answer == "", "truncated": trial.truncated, "refused": trial.refused}
        factories.make_attempt(trial, **flags, unparsed=bool(trial.parse_error))
    return experiment


@pytest.mark.parametrize("page", ["/experiments/odd/progress/", "run"])
def test_unusable_answers_are_counted_with_links(experiment, as_, page):
    run = experiment.runs.get()
    text = as_("owner").get(run.get_absolute_url() if page == "run" else page).content.decode()
    query = f"run={run.pk}" if page == "run" else "experiment=odd"
    for kind in KINDS:
        assert f"/trials/?{query}&amp;{kind}=true" in text
    assert text.count("of 6") >= 4


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("empty=true", 1),
        ("truncated=true", 2),
        ("truncated=true&empty=false", 1),
        ("refused=true", 1),
        ("unparsed=true", 1),
        ("empty=true&refused=true", 0),
        ("truncated=true&status=failed", 0),
        ("truncated=false", 4),
        ("unparsed=false&empty=false", 4),
    ],
)
def test_unusable_answers_can_be_filtered_by_url(experiment, as_, query, found):
    page = as_("owner").get(f"/trials/?experiment=odd&{query}")
    assert len(page.context["page"].keys) == found


def test_a_row_shows_the_kind_of_an_unusable_answer(experiment, as_):
    text = as_("owner").get("/trials/?experiment=odd&empty=true").content.decode()
    assert '<span class="chip">empty</span>' in text
    assert '<span class="chip">truncated</span>' in text


@pytest.mark.parametrize(("kind", "rows"), [("empty", 1), ("truncated", 2), ("refused", 1), ("unparsed", 1)])
def test_the_export_takes_the_same_filters(experiment, tmp_path, kind, rows):
    out = tmp_path / "trials.jsonl"
    call_command("export", "odd", table="trials", format="jsonl", out=str(out), filter=[f"{kind}=true"])
    assert len([json.loads(line) for line in out.read_text().splitlines()]) == rows


def test_unusable_answers_are_found_by_their_index(experiment):
    trials = Trial.objects.filter(run=experiment.runs.get()).filter(UNUSABLE).filter(UNUSABLE_KINDS["refused"])
    sql, parameters = trials.order_by("id").values("id")[:51].query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {sql}", parameters)
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "trial_unusable" in plan


def test_the_counts_need_one_more_query(experiment, as_, django_assert_max_num_queries):
    owner = as_("owner")
    trial = experiment.runs.get().trials.first()
    for _ in range(5):
        factories.make_attempt(trial)
    assert Attempt.objects.filter(run__experiment=experiment).count() == 11
    with django_assert_max_num_queries(18):
        owner.get("/experiments/odd/progress/")


# --- refusals that a provider reported as an error


@pytest.fixture
def with_errors(experiment):
    """Return the experiment with another run: one trial failed by a refusal, another by a different error."""
    prompt, sampler = experiment.prompts.get(), experiment.samplers.get()
    condition = factories.make_condition(experiment, factories.make_model("strict"), prompt, sampler)
    run = Run.objects.create(experiment=experiment, condition=condition, wave=experiment.waves.get(), status="running")
    answers = iter(
        [factories.build_failed_fields("content_refused"), factories.build_failed_fields("server"), *["ready"] * 4]
    )
    factories.plan_trials(run, answer=lambda *_: next(answers))
    run.errors = {"content_refused": 1, "server": 3}
    run.save(update_fields=["errors"])
    return experiment


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("refused=true", 2),
        ("refused=true&status=failed", 1),
        ("refused=true&status=done", 1),
        ("refused=true&error=content_refused", 1),
        ("refused=true&empty=true", 0),
        ("refused=true&item=item-0", 1),
        ("refused=false", 10),
    ],
)
def test_the_refused_filter_includes_refusals_recorded_as_errors(with_errors, as_, query, found):
    page = as_("owner").get(f"/trials/?experiment=odd&{query}")
    assert len(page.context["page"].keys) == found


@pytest.mark.slow
def test_the_refused_count_includes_refusals_recorded_as_errors_on_every_page(with_errors, as_):
    owner = as_("owner")
    assert ("refused", 2) in owner.get("/experiments/odd/progress/").context["unusable_answers"]
    results = owner.get("/experiments/odd/results/")
    assert [row["refused"] for row in results.context["answers"]["table"].rows] == [1, 1]
    status = json.loads(run_command("status", "odd", json=True))
    assert [run["refused"] for run in status["runs"]] == [1, 1]


def test_the_count_of_empty_answers_links_to_them(experiment, as_):
    condition = experiment.conditions.get()
    text = as_("owner").get("/experiments/odd/results/").content.decode()
    for kind in ("empty", "truncated", "refused"):
        assert f'<a href="/trials/?experiment=odd&amp;condition={condition.pk}&amp;{kind}=true">' in text


def run_command(*words, **options):
    out = StringIO()
    call_command(*words, stdout=out, **options)
    return out.getvalue()

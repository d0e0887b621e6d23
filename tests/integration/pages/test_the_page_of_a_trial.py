"""The page of a trial shows the same item elsewhere and leads to its item, prompt, sampler and run."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from grading_app.scoring.grading import grade
from tests import factories
from tests.page_text import page_text


@pytest.fixture
def answered(people):
    models = [factories.make_model("first"), factories.make_model("second")]
    made = factories.make_experiment(
        "sums", owner=people["owner"], models=models, samples=3, scorers=["numeric"], status="active",
        dataset=factories.make_dataset("sums", 2),
    )  # fmt: skip
    for run in factories.make_runs(made, status="done"):
        factories.plan_trials(run, answer=lambda item, _, index: item.target if index else "99")
    grade(made, by="test")
    return made


def test_repetitions_come_first_and_then_other_conditions_with_their_scores(answered, as_):
    first, second = answered.runs.order_by("pk")
    trial = second.trials.order_by("pk").first()
    page = as_("owner").get(reverse("trial_detail", args=[trial.pk]) + "?status=done")
    shown = page.context["elsewhere"]
    repetitions = list(second.trials.filter(item=trial.item).exclude(pk=trial.pk).values_list("pk", flat=True))
    others = list(first.trials.filter(item=trial.item).values_list("pk", flat=True))
    assert [one.trial.pk for one in shown] == repetitions + others
    assert [one.is_repetition for one in shown] == [True] * 2 + [False] * 3
    assert [score for one in shown for _, score in one.scores] == [1, 1, 0, 1, 1]
    text = page_text(page)
    assert f'href="/trials/{others[0]}/?status=done"' in text
    assert "numeric ✓" in text or "numeric 1" in text


def test_other_answers_that_the_reader_may_not_see_are_not_listed(answered, people, as_):
    trial = answered.runs.order_by("pk").first().trials.first()
    assert as_("researcher").get(reverse("trial_detail", args=[trial.pk])).status_code == 404


def test_it_leads_to_item_run_prompt_and_sampler(answered, as_):
    trial = answered.runs.order_by("pk").first().trials.first()
    text = page_text(as_("owner").get(reverse("trial_detail", args=[trial.pk])))
    condition = trial.run.condition
    for address in (
        reverse("item_page", args=[trial.item_id]),
        reverse("run_detail", args=[trial.run_id]),
        reverse("admin:runs_app_prompt_change", args=[condition.prompt_id]),
        reverse("admin:runs_app_sampler_change", args=[condition.sampler_id]),
    ):
        assert f'href="{address}"' in text, address


def test_many_repetitions_add_no_query(answered, people, as_):
    client, counts = as_("owner"), []
    for samples in (2, 6):
        made = factories.make_experiment(
            f"more-{samples}", owner=people["owner"], samples=samples, scorers=["numeric"], status="active",
            dataset=answered.dataset,
        )  # fmt: skip
        (run,) = factories.make_runs(made, status="done")
        trial = factories.plan_trials(run, answer=lambda item, _, index: item.target)[0]
        grade(made, by="test")
        with CaptureQueriesContext(connection) as queries:
            client.get(reverse("trial_detail", args=[trial.pk]))
        counts.append(len(queries))
    assert counts[0] == counts[1]

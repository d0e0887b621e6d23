"""The page of a trial shows other answers to its item and leads to its item, prompt, sampler and run."""

import re

from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from grading_app.grading.scoring import grade
from tests import factories
from tests.page_text import page_text
from tests.shared_rows import shared_rows


@shared_rows
def answered(people_of_file):
    models = [factories.make_model("first"), factories.make_model("second")]
    experiment = factories.make_experiment(
        "sums", owner=people_of_file["owner"], models=models, samples=3, scorers=["numeric"], status="active",
        dataset=factories.make_dataset("sums", 2),
    )  # fmt: skip
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, _, index: item.target if index else "99")
    grade(experiment, by="test")
    return experiment


def test_repetitions_come_first_and_then_other_conditions_with_their_scores(answered, as_):
    first, second = answered.runs.order_by("pk")
    trial = second.trials.order_by("pk").first()
    page = as_("owner").get(reverse("trial_detail", args=[trial.pk]) + "?status=done")
    other_answers = page.context["other_answers"]
    repetitions = list(second.trials.filter(item=trial.item).exclude(pk=trial.pk).values_list("pk", flat=True))
    others = list(first.trials.filter(item=trial.item).values_list("pk", flat=True))
    assert [one.trial.pk for one in other_answers] == repetitions + others
    assert [one.is_repetition for one in other_answers] == [True] * 2 + [False] * 3
    assert [score for one in other_answers for _, score in one.scores] == [1, 1, 0, 1, 1]
    text = page_text(page)
    assert f'href="/trials/{others[0]}/?status=done"' in text
    assert text.count(">Number within tolerance 1<") == 4


def test_other_answers_that_the_reader_may_not_see_are_not_listed(answered, people, as_):
    trial = answered.runs.order_by("pk").first().trials.first()
    assert as_("researcher").get(reverse("trial_detail", args=[trial.pk])).status_code == 404


def test_the_page_links_to_item_run_prompt_and_sampler(answered, as_):
    trial = answered.runs.order_by("pk").first().trials.first()
    text = page_text(as_("owner").get(reverse("trial_detail", args=[trial.pk])))
    condition = trial.run.condition
    for address in (
        reverse("item_page", args=[trial.item_id]),
        reverse("run_detail", args=[trial.run_id]),
        condition.prompt.get_absolute_url(),
        condition.sampler.get_absolute_url(),
    ):
        assert f'href="{address}"' in text, address


def test_many_repetitions_add_no_query(answered, people, as_):
    client, counts = as_("owner"), []
    for samples in (2, 6):
        experiment = factories.make_experiment(
            f"more-{samples}", owner=people["owner"], samples=samples, scorers=["numeric"], status="active",
            dataset=answered.dataset,
        )  # fmt: skip
        (run,) = factories.make_runs(experiment, status="done")
        trial = factories.plan_trials(run, answer=lambda item, _, index: item.target)[0]
        grade(experiment, by="test")
        with CaptureQueriesContext(connection) as queries:
            client.get(reverse("trial_detail", args=[trial.pk]))
        counts.append(len(queries))
    assert counts[0] == counts[1]


def get_neighbours(client, trial, query=""):
    page = client.get(reverse("trial_detail", args=[trial.pk]) + query)
    return page.context["same_item"]["previous"], page.context["same_item"]["next"]


def test_bracket_keys_move_through_trials_of_the_item_within_the_filter(answered, as_):
    client, runs = as_("owner"), list(answered.runs.order_by("pk"))
    first, second, third = runs[0].trials.filter(item__position=0).order_by("sample_idx")
    of_other = list(runs[1].trials.filter(item__position=0).order_by("pk").values_list("pk", flat=True))
    assert get_neighbours(client, second) == (first.pk, third.pk)
    assert get_neighbours(client, third) == (second.pk, of_other[0]), "without a filter, other conditions follow"
    assert get_neighbours(client, third, f"?run={runs[0].pk}") == (second.pk, None)
    assert get_neighbours(client, third, f"?experiment=sums&condition={runs[0].condition_id}") == (second.pk, None)
    assert get_neighbours(client, third, "?experiment=sums&scorer=numeric&score=1") == (second.pk, of_other[1])
    assert get_neighbours(client, second, "?item=no-such-item") == (None, None)
    assert get_neighbours(client, second, "?status=failed") == (None, None)
    assert get_neighbours(client, second, "?score=much") == (None, None), "the list is empty too"


def test_bracket_keys_follow_the_order_of_the_list(answered, as_):
    run = answered.runs.order_by("pk").first()
    first, second, third = run.trials.filter(item__position=0).order_by("sample_idx")
    assert get_neighbours(as_("owner"), second, f"?run={run.pk}&sort=-id") == (third.pk, first.pk)
    assert get_neighbours(as_("owner"), second, f"?run={run.pk}&sort=-sample_idx") == (third.pk, first.pk)


def test_the_page_states_that_its_keys_follow_the_filter(answered, as_):
    address = reverse("trial_detail", args=[answered.runs.order_by("pk").first().trials.first().pk])
    assert "repetitions and conditions under the filter of the list" in page_text(
        as_("owner").get(f"{address}?status=done")
    )
    plain = page_text(as_("owner").get(address))
    assert "repetitions and conditions under the filter" not in plain
    assert "next, previous of the same item under that filter" in plain


def test_a_judge_call_links_to_other_calls_about_the_item(answered, as_):
    condition = answered.runs.first().condition
    judged = type(condition).objects.create(
        experiment=answered, condition_id="judge", stage="judge", model=condition.model, prompt=condition.prompt,
        sampler=condition.sampler, content=condition.content,
    )  # fmt: skip
    run = answered.runs.create(condition=judged, wave=answered.runs.first().wave, status="done")
    subject = answered.runs.first().trials.first()
    calls = [run.trials.create(item=subject.item, subject=subject, sample_idx=index) for index in range(2)]
    assert get_neighbours(as_("owner"), calls[0]) == (None, calls[1].pk)


def list_words(html):
    """Return the words of the text outside links, which may have the keys of rows."""
    return re.sub(r"<a .*?</a>|<[^>]*>", " ", html).split()


def test_a_rating_and_a_target_are_shown_once_beside_the_gradings(people, as_):
    experiment = factories.make_experiment(
        "warmth", owner=people["owner"], dimensions=[factories.make_dimension(low=1, high=99)], scorers=["rating"],
        samples=2, status="active",
        dataset=factories.make_dataset("faces", [{"key": "face", "target": "the target of the item"}]),
    )  # fmt: skip
    (run,) = factories.make_runs(experiment, status="done")
    ratings = {0: 87, 1: 56}
    factories.plan_trials(
        run, answer=lambda _, __, sample: {"answer": "x" * 150, "rating": ratings[sample], "rating_step": "json"}
    )
    grade(experiment, by="test")
    trial = run.trials.get(rating=87)
    assert trial.gradings.get().score == 87
    page = page_text(as_("owner").get(reverse("trial_detail", args=[trial.pk])))
    verdict, rest = page.split('id="verdict"')[1].split("</section>", 1)
    facts = rest.split("<h2>Facts</h2>")[1]
    for words in (">87<", "on a scale of 1 to 99, read as json", "the target of the item"):
        assert verdict.count(words) == 1, words
    assert "87" not in list_words(facts.split("</dl>")[0])
    assert "the target of the item" not in facts
    others = rest.split('id="other-answers"')[1].split("</section>")[0]
    assert list_words(others).count("56") == 1
    assert ">" + "x" * 99 + "…<" in others

"""Two conditions compared in the browser: the result, the design, and the answers, largest change first."""

import csv
import io
import re

import numpy as np
import pytest
from django.core.cache import cache
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape
from scipy import stats

from evalsite.lib import permissions
from grading_app.grading.scoring import grade
from grading_app.models import CachedAggregate
from grading_app.results import cached_aggregates, stored_results
from grading_app.results.analysis.data import load_analysis_data
from grading_app.results.analysis.sections import build_section_tables
from grading_app.results.cached_aggregates import compute_rows
from grading_app.results.scope import ScopeForm
from runs_app.models import Trial
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_quiz(slug="quiz", *, items=30, right=(12, 24), prompts=None, **fields):
    """Return two models: a is right on the first `right[0]` items, b on the first `right[1]`."""
    experiment = factories.make_experiment(
        slug,
        dataset=fields.pop("dataset", None) or factories.make_dataset(f"{slug}-items", items),
        models=[factories.make_model("a"), factories.make_model("b")],
        prompts=prompts,
        scorers=["numeric"],
        **fields,
    )
    for run in factories.make_runs(experiment, status="done"):
        n = right[0] if run.condition.model.name == "a" else right[1]
        factories.plan_trials(run, answer=lambda item, *_, n=n: f"I say {item.target if item.position < n else -1}")
    grade(experiment, by="test")
    return experiment


@shared_rows
def quiz():
    return make_quiz()


@shared_rows
def study():
    """Return two models that rate 12 pictures: b is one point above a except on two, and unreadable on one."""
    experiment = factories.make_experiment(
        "study",
        dataset=factories.make_dataset("pictures", 12),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence")],
        samples=2,
    )
    for run in factories.make_runs(experiment, status="done"):
        above = run.condition.model.name == "b"
        factories.plan_trials(run, answer=lambda item, _, at, above=above: make_rating(item.position, at, above))
    return experiment


def make_rating(position, sample, above):
    if above and position == 11:
        return {"answer": "no idea", "parse_error": "no_rating"}
    rating = 2 + position % 3 + (above and position > 1) + (sample and position == 5)
    return {"answer": str(rating), "rating": rating}


def build_reference(experiment, model, wave=None):
    condition = experiment.conditions.get(model__name=model)
    return ":".join(map(str, (experiment.slug, condition.pk, *([] if wave is None else [wave]))))


def open_page(client, experiment, **query):
    client.force_login(experiment.owner)
    query = {**query, **{side: build_reference(experiment, side) for side in "ab" if side not in query}}
    return client.get(reverse("compare"), query)


def read_csv(client, experiment, table="difference", **query):
    answer = open_page(client, experiment, table=table, format="csv", **query)
    assert answer.status_code == 200
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def build_differences(experiment, query=""):
    sections = build_section_tables(load_analysis_data(ScopeForm(QueryDict(query), experiment).get_scope()))
    return next(table for tables in sections.values() for table in tables if table.name == "differences").rows[0]


@pytest.mark.slow
def test_the_numbers_match_the_analysis_command(client, quiz, study):
    for experiment in (quiz, study):
        computed = build_differences(experiment)
        row = {**read_csv(client, experiment)[0], **read_csv(client, experiment, table="all_tests")[0]}
        for name in ("items", "mean_a", "mean_b", "difference", "p", "effect", "wins", "losses", "ties"):
            assert float(row[name]) == pytest.approx(computed[name]), name
        ends = float(row["difference_ci_low"]), float(row["difference_ci_high"])
        assert ends == pytest.approx(computed["difference_ci"])


def test_a_sentence_states_the_better_side_with_interval_items_and_test(client, quiz):
    text = open_page(client, quiz).content.decode()
    assert "b beats a by 40.0 pp [" in text
    assert "on 30 common items (exact McNemar test, p &lt; .001)" in text
    assert "a beats" not in text
    assert text.count("b beats a by 40.0 pp") == 1


def test_swapping_sides_reverses_the_sign_and_keeps_the_winner(client, quiz):
    (row,) = read_csv(client, quiz, a=build_reference(quiz, "b"), b=build_reference(quiz, "a"))
    assert float(row["difference"]) == pytest.approx(-0.4)
    swapped = open_page(client, quiz, a=build_reference(quiz, "b"), b=build_reference(quiz, "a")).content.decode()
    assert "b beats a by 40.0 pp [" in swapped


def test_the_right_wrong_table_links_each_count_to_its_items(client, quiz):
    rows = read_csv(client, quiz, table="right_and_wrong")
    counts = [[int(row[name]) for name in ("right", "wrong", "sum")] for row in rows]
    assert counts == [[12, 0, 12], [12, 6, 18], [24, 6, 30]]
    page = open_page(client, quiz)
    assert "McNemar&#x27;s exact test: p &lt; .001" in page.content.decode()
    assert "filter=gained#answers" in page.content.decode()


@pytest.mark.parametrize(
    ("name", "positions"),
    [("gained", range(12, 24)), ("lost", ()), ("both_wrong", range(24, 30)), ("both_right", range(12))],
)
def test_a_filter_shows_only_its_items(client, quiz, name, positions):
    page = open_page(client, quiz, filter=name)
    assert [row.item.position for row in page.context["rows"]] == list(positions)


def test_items_are_sorted_by_size_of_change_and_paginated(client, quiz):
    first, second = open_page(client, quiz), open_page(client, quiz, page="2")
    rows = [*first.context["rows"], *second.context["rows"]]
    assert [row.item.position for row in rows] == [*range(12, 24), *range(12), *range(24, 30)]
    assert len(first.context["rows"]) == 20


def test_both_answers_are_side_by_side_with_differing_words_marked(client, quiz):
    page = open_page(client, quiz, filter="gained")
    row = page.context["rows"][0]
    assert [piece.text for piece in row.a.pieces if piece.differs] == ["-1"]
    assert "".join(piece.text for piece in row.b.pieces) == f"I say {row.item.target}"
    assert (row.a.score_text, row.b.score_text) == ("Wrong", "Right")
    text = page.content.decode()
    assert "Gained: only B is right" in text
    assert "<mark>" in text


def test_ratings_are_compared_by_item_means_with_the_readers_margin(client, study):
    row = {**read_csv(client, study, margin="2")[0], **read_csv(client, study, table="all_tests")[0]}
    assert (int(row["items"]), int(row["wins"]), int(row["ties"])) == (11, 9, 2)
    assert float(row["difference"]) == pytest.approx(9 / 11)
    assert 0 < float(row["equivalence_p"]) < 0.001
    text = open_page(client, study, margin="2").content.decode()
    assert "the sides are equivalent at the 5 % level" in text
    assert "rates 0.82 [" in text


def test_items_without_a_score_on_one_side_are_reported(client, study):
    text = open_page(client, study).content.decode()
    assert "The items differ." in text
    assert "1 item has a score in A only." in " ".join(text.split())
    assert "Answers without a score: 0 in A, 2 in B (2 unreadable)." in " ".join(text.split())


def test_unreadable_answers_count_as_wrong_on_request(client, study):
    (row,) = read_csv(client, study, table="all_tests", missing="wrong")
    assert int(row["losses"]) == 1
    assert int(read_csv(client, study, missing="wrong")[0]["items"]) == 12


def test_the_texts_of_two_prompts_are_compared_word_by_word(client):
    prompts = [
        factories.make_prompt("plain", user="Answer now: {{input}}"),
        factories.make_prompt("steps", user="Answer slowly: {{input}}"),
    ]
    second_quiz = make_quiz("prompts", prompts=prompts)
    one, other = (second_quiz.conditions.get(model__name="a", prompt=prompt) for prompt in prompts)
    text = open_page(client, second_quiz, a=f"prompts:{one.pk}", b=f"prompts:{other.pk}").content.decode()
    assert re.search(r"<del\s*>now</del\s*>", text)
    assert re.search(r"<ins\s*>slowly</ins\s*>", text)
    assert "plain@1" in text


def test_two_experiments_on_one_dataset_are_compared_by_item(client, quiz):
    other = make_quiz("again", dataset=quiz.dataset, right=(18, 18), owner=quiz.owner)
    (row,) = read_csv(client, quiz, b=build_reference(other, "a"))
    assert (int(row["items"]), float(row["difference"])) == (30, pytest.approx(0.2))


def test_items_of_other_datasets_match_by_key_and_content_and_changed_items_are_excluded(client, quiz):
    items = [
        {"key": item.key, "input": item.input, "target": item.target if item.position else "changed"}
        for item in quiz.dataset.items.order_by("-position")
    ]
    other = make_quiz("other", dataset=factories.make_dataset("copied", items[:-4] + items[-1:]), owner=quiz.owner)
    page = open_page(client, quiz, b=build_reference(other, "b"))
    assert page.context["pair"].items == 26  # Of 30 items, three are missing and one has another target.
    text = " ".join(page.content.decode().split())
    assert "1 item has the same key in both datasets, but another text, image, target or choices." in text
    assert "copied@1" in text


def test_two_waves_of_a_condition_are_compared(client):
    second_quiz = make_quiz("waves", right=(10, 20))
    for run in factories.make_runs(second_quiz, wave=1, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: item.target if item.position < 15 else "-1")
    grade(second_quiz, by="test")
    (row,) = read_csv(
        client, second_quiz, a=build_reference(second_quiz, "a", 0), b=build_reference(second_quiz, "a", 1)
    )
    assert float(row["difference"]) == pytest.approx(5 / 30)
    assert (
        "wave-1"
        in open_page(
            client, second_quiz, a=build_reference(second_quiz, "a", 0), b=build_reference(second_quiz, "a", 1)
        ).content.decode()
    )


def test_two_waves_are_compared_over_all_conditions(client):
    second_quiz = make_quiz("waves", right=(10, 20))
    for run in factories.make_runs(second_quiz, wave=1, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: item.target if item.position < 18 else "-1")
    grade(second_quiz, by="test")
    (row,) = read_csv(client, second_quiz, a="waves:all:0", b="waves:all:1")
    assert float(row["difference"]) == pytest.approx((18 - 15) / 30)
    page = open_page(client, second_quiz, a="waves:all:0", b="waves:all:1")
    assert {"name": "Model", "a": "a, b", "b": "a, b"} in [
        {"name": fact.name, "a": fact.a, "b": fact.b} for fact in page.context["design"].facts
    ]


def test_the_interval_on_these_items_averages_the_conditions_within_an_item(client):
    """numpy computes the standard error from the rows: the variance within cells, without that between conditions."""
    models = [factories.make_model("low"), factories.make_model("high")]
    made = factories.make_experiment(
        "rated", dataset=factories.make_dataset("twelve", 12), models=models, samples=3,
        dimensions=[factories.make_dimension("valence")],
    )  # fmt: skip
    for wave in (0, 1):
        for run in factories.make_runs(made, wave=wave, status="done"):
            start = (1 if run.condition.model.name == "low" else 5) + wave
            factories.plan_trials(
                run,
                answer=lambda item, _, at, start=start: {
                    "answer": "x", "rating": start + ((item.position + at + start) % 5 == 0)
                },
            )  # fmt: skip
    (row,) = read_csv(client, made, "all_tests", a="rated:all:0", b="rated:all:1")
    rows = Trial.objects.filter(run__experiment=made).values_list(
        "run__wave__number", "run__condition", "item", "rating"
    )
    cells = {}
    for wave, condition, item, rating in rows:
        cells.setdefault((wave, condition, item), []).append(rating)
    variance = sum(np.var(ratings, ddof=1) / 3 for ratings in cells.values()) / 2**2 / 12**2
    mean = sum((1 if key[0] else -1) * np.mean(ratings) for key, ratings in cells.items()) / 2 / 12
    low, high = (float(row[f"fixed_ci_{end}"]) for end in ("low", "high"))
    assert (low + high) / 2 == pytest.approx(mean)
    assert (high - low) / 2 / variance**0.5 == pytest.approx(stats.t.ppf(0.975, 50), rel=0.1)


def test_the_reasons_of_missing_scores_are_listed_for_any_number_of_answers(client, monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_: None)
    refused = {"status": "failed", "error_class": "content_refused", "error": "refused", "answer": ""}
    made = make_quiz("quiz2", items=12, right=(6, 9))
    (run, _) = factories.make_runs(made, wave=1, status="done")
    factories.plan_trials(run, answer=lambda item, *_: refused if item.position < 5 else item.target)
    grade(made, by="test")
    for limit in (cached_aggregates.MAX_ANSWERS_PER_REQUEST, 3):
        monkeypatch.setattr(cached_aggregates, "MAX_ANSWERS_PER_REQUEST", limit)
        CachedAggregate.objects.all().delete()
        cache.clear()
        for _ in range(2):  # The page asks for the scores, then for the reasons.
            open_page(client, made)
            compute_rows(list(CachedAggregate.objects.values_list("pk", flat=True)), seconds=60)
        assert "5 refused" in " ".join(open_page(client, made).content.decode().split()), limit


@pytest.mark.slow
def test_items_in_only_one_experiment_are_reported(client, quiz):
    items = [factories.build_question(n) for n in range(25)]
    make_quiz("fewer", dataset=factories.make_dataset("fewer-items", items), right=(12, 24), owner=quiz.owner)
    text = " ".join(open_page(client, quiz, a="quiz", b="fewer").content.decode().split())
    assert "The items differ. 5 items have a score in A only." in text


@pytest.mark.slow
def test_two_selected_experiments_are_compared_as_a_whole(client, quiz):
    make_quiz("again", dataset=quiz.dataset, right=(18, 24), owner=quiz.owner)
    client.force_login(quiz.owner)
    page = client.get(reverse("compare"), {"experiment": ["quiz", "again"]})
    assert (page.context["a"].reference, page.context["b"].reference) == ("quiz:all", "again:all")
    assert page.context["pair"].change.mean == pytest.approx((18 - 12) / 2 / 30), "the mean of both conditions"
    assert page.context["pair"].two_by_two is None, "an item has two answers on each side"
    facts = {fact.name: (fact.a, fact.b) for fact in page.context["design"].differing}
    assert facts["Experiment"] == ("quiz", "again")
    assert len(page.context["rows"]) == 20
    alone = client.get(reverse("compare"), {"experiment": "quiz"})
    assert (alone.context["a"].name, alone.context["b"].name) == ("a", "b")


def test_the_page_offers_only_visible_conditions(client, quiz):
    stranger = factories.make_user("stranger", permissions.RESEARCHER)
    make_quiz("theirs", owner=stranger)
    client.force_login(quiz.owner)
    text = client.get(reverse("compare")).content.decode()
    assert f'value="{build_reference(quiz, "a")}"' in text
    assert "theirs" not in text


@pytest.mark.parametrize("side", ["a", "b"])
def test_another_users_experiment_is_not_found(client, quiz, side):
    theirs = make_quiz("theirs", owner=factories.make_user("stranger", permissions.RESEARCHER))
    assert open_page(client, quiz, **{side: build_reference(theirs, "a")}).status_code == 404
    assert open_page(client, quiz, **{side: "theirs"}).status_code == 404


@pytest.mark.parametrize(
    "wrong", ["quiz:999999", "quiz:x", "nothing:1", "../quiz", "quiz:1:9", ":", "quiz:" + "9" * 40]
)
def test_an_unknown_side_is_not_found(client, quiz, wrong):
    assert open_page(client, quiz, a=wrong).status_code == 404


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (
            "measure",
            "nothing",
            'Select a valid choice: there is no measure nothing; existing measures: numeric "Number within tolerance".',
        ),
        ("margin", "-1", "Enter a number above 0, or leave it empty."),
        ("margin", "wide", "Enter a number."),
        ("filter", "best", "Select a valid choice. best is not one of the available choices."),
        ("missing", "right", "Select a valid choice. right is not one of the available choices."),
    ],
)
def test_an_invalid_parameter_is_an_error_at_its_field(client, quiz, name, value, expected):
    page = open_page(client, quiz, **{name: value})
    assert page.status_code == 200
    assert page.context["form"].errors[name] == [expected]
    assert escape(expected) in page.content.decode()


@pytest.mark.slow
def test_another_web_process_reads_the_scores_of_a_small_experiment(client, quiz, monkeypatch):
    first = open_page(client, quiz).context["pair"].change.mean
    cache.clear()  # The cache of another process.
    monkeypatch.setattr(stored_results, "load_scores", lambda *_: pytest.fail("the scores are read again"))
    assert open_page(client, quiz).context["pair"].change.mean == pytest.approx(first) == 12 / 30


def test_scores_of_a_large_experiment_are_computed_by_a_worker(client, quiz, monkeypatch):
    monkeypatch.setattr(cached_aggregates, "MAX_ANSWERS_PER_REQUEST", 3)
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_: None)
    waiting = open_page(client, quiz).content.decode()
    assert "A worker is calculating the results" in " ".join(waiting.split())
    assert 'hx-select="#comparison"' in waiting, "the page asks for the result until it is there"
    compute_rows(list(CachedAggregate.objects.values_list("pk", flat=True)), seconds=60)
    text = open_page(client, quiz).content.decode()
    assert 'hx-select="#comparison"' not in text
    assert "b beats a by 40.0 pp [" in text
    assert "Includes all answers, as of" in text


def test_an_unknown_table_or_format_is_not_found(client, quiz):
    assert open_page(client, quiz, table="nothing", format="csv").status_code == 404
    assert open_page(client, quiz, table="difference", format="exe").status_code == 404


@pytest.mark.parametrize(
    ("file_format", "expected"),
    [("md", "| B − A |"), ("latex", r"\toprule"), ("csv", "measure,measure_label,difference")],
)
def test_a_table_can_be_downloaded_in_each_format(client, quiz, file_format, expected):
    answer = open_page(client, quiz, table="difference", format=file_format)
    assert expected in answer.content.decode()
    assert "attachment" in answer["Content-Disposition"]


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_items_and_conditions(client, quiz):
    def count_queries(experiment):
        cache.clear()
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert open_page(client, experiment).status_code == 200
        return len(queries)

    few = make_quiz("few", items=3, owner=quiz.owner)
    count_queries(few)
    more = [factories.make_prompt(f"p{at}", user=f"{at} {{{{input}}}}") for at in range(3)]
    large = make_quiz("large", items=60, prompts=more, owner=quiz.owner)
    one, other = large.conditions.order_by("pk")[:2]
    client.force_login(quiz.owner)
    sides = {"a": f"large:{one.pk}", "b": f"large:{other.pk}"}
    client.get(reverse("compare"), sides)  # The first visit stores values, as that of the other experiment did.
    cache.clear()
    with CaptureQueriesContext(connection) as queries:
        page = client.get(reverse("compare"), sides)
        assert page.status_code == 200
    assert len(queries) <= count_queries(few)

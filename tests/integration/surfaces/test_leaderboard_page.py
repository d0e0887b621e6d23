"""The leaderboard: rows from stored counts, ranks by corrected tests, and only visible experiments."""

import csv
import io
import re
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evalsite.lib import permissions
from grading_app.grading.scoring import grade
from grading_app.results.parametric import point_counts
from grading_app.results.parametric.board_tables_and_figure import describe_second
from grading_app.statistics.reason_score import PointTallies, chance_score, reason_score
from runs_app.models import LanguageModel
from runs_app.stopping.rules import Tally
from tests import factories
from tests.factories.spaces import make_space_dataset, make_space_experiment
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
BOARD = "/leaderboard/"


def make_client(user):
    client = Client()
    client.force_login(user)
    return client


def read_rows(client, **query):
    response = client.get(BOARD, {"table": "leaderboard", "format": "csv", **query})
    assert response.status_code == 200
    return list(csv.DictReader(io.StringIO(response.content.decode().lstrip("\ufeff"))))


def test_a_row_has_the_cell_of_each_task_and_both_scores():
    experiment = make_space_experiment(
        dataset=make_space_dataset(count=16), models=("m",), outcome=answer_three_of_four
    )
    (row,) = read_rows(make_client(experiment.owner))
    swaps = experiment.dataset.items.filter(category="swaps")
    guesses = sum(item.metadata["guess_chance"] for item in swaps if item.metadata["number"] % 8)
    tallies = {
        "brackets": Tally(12 * 12, 12 * 14, 12 * 2),
        "swaps": Tally(4 * 12, 4 * 14, 4 * 2, guess_chances=guesses),
    }
    for task, tally in tallies.items():
        interval = tally.interval()
        assert float(row[f"{task}_center"]) == pytest.approx(interval.center)
        assert float(row[f"{task}_ci_low"]) == pytest.approx(interval.low)
        assert float(row[f"{task}_truncated"]) == 0.125
    assert float(row["reason_score"]) == pytest.approx(reason_score(tallies).score)
    second = chance_score(tallies)
    assert (float(row["reason_score_2"]), row["reason_score_2_ci_low"]) == (pytest.approx(second.score), "")
    assert (row["incomplete"], row["answers"]) == ("", "256")
    tokens = sum(trial.output_tokens for run in experiment.runs.all() for trial in run.trials.all())
    assert int(row["tokens"]) == tokens
    assert float(row["score_per_token"]) == pytest.approx(float(row["reason_score"]) * 256 / tokens)


def test_two_tasks_have_a_sentence_in_place_of_an_interval():
    experiment = make_space_experiment(dataset=make_space_dataset(count=16), models=("m",), outcome=lambda *_: "right")
    text = page_text(make_client(experiment.owner).get(BOARD))
    assert "It has no interval over fewer than 10 tasks" in text
    assert "mapped to the accuracy beyond guessing. In simulations, it covers 93 % or more" in text
    assert "bootstrap over tasks" not in text


def test_an_interval_of_the_second_score_names_its_level():
    tallies = {str(task): Tally(96 + task, 128) for task in range(12)}
    row = SimpleNamespace(second=chance_score(tallies))
    assert re.fullmatch(r"\d+ \(95 %: \d+ to \d+\)", describe_second(row))


def answer_uneven_points(item, _model):
    """At the first point of a task only two answers, which are right. At the others, four answers of which one is."""
    if item.metadata["params"]["max_depth"] == 2 and item.metadata["params"]["length"] == 4:
        return "right" if item.metadata["number"] < 2 else None
    return "right" if item.metadata["number"] == 0 else "wrong"


def test_a_task_counts_by_the_mean_over_its_points_or_by_all_answers():
    experiment = make_space_experiment(models=("m",), outcome=answer_uneven_points)
    client = make_client(experiment.owner)
    (pooled,), (by_points,) = read_rows(client), read_rows(client, weights="points")
    assert (pooled["weights"], by_points["weights"]) == ("answers", "points")
    assert float(pooled["brackets_value"]) == pytest.approx((2 * 2 + 10) / (2 * 2 + 40))
    assert float(by_points["brackets_value"]) == pytest.approx((2 * 1 + 10 * 0.25) / 12)
    assert by_points["brackets_points"] == "12 of 12"
    points = PointTallies((Tally(2, 2), Tally(2, 2), *[Tally(1, 4)] * 10))
    interval = points.interval()
    assert (float(by_points["brackets_ci_low"]), float(by_points["brackets_ci_high"])) == pytest.approx(
        (interval.low, interval.high)
    )
    swaps = [Tally(2, 2, 0, 2 / 4), Tally(1, 4, 0, 4 / 4), Tally(1, 4, 0, 4 / 5), Tally(1, 4, 0, 4 / 5)]
    tallies = {"brackets": points, "swaps": PointTallies(tuple(swaps))}
    assert float(by_points["reason_score"]) == pytest.approx(reason_score(tallies).score)
    assert float(by_points["reason_score_2"]) == pytest.approx(chance_score(tallies).score)
    assert by_points["rank"] == pooled["rank"]


def test_the_mean_over_points_is_the_default_of_adaptive_designs_and_the_page_says_so():
    adaptive = {"by": "point", "scorer": "final_answer", "round": 2, "max": 4, "targetci": 0.2}
    experiment = make_space_experiment(models=("m",), outcome=answer_uneven_points, adaptive=adaptive)
    client = make_client(experiment.owner)
    assert read_rows(client)[0]["weights"] == "points"
    text = page_text(client.get(BOARD))
    assert "Mean over points." in text
    assert "Default: mean over points" in text
    assert "All answers pooled." in page_text(client.get(BOARD, {"weights": "answers"}))
    assert "Select a valid choice" in page_text(client.get(BOARD, {"weights": "cases"}))


def answer_three_of_four(item, _model):
    number = item.metadata["number"]
    return "cut" if number % 8 == 0 else "wrong" if number % 8 == 4 else "right"


def test_a_cell_shows_its_interval_truncation_and_a_star_until_all_cases_are_answered():
    experiment = make_space_experiment(
        models=("m",), outcome=lambda item, _: None if item.position == 0 else answer_three_of_four(item, _)
    )
    text = page_text(make_client(experiment.owner).get(BOARD))
    assert re.search(r">\.\d\d - (\.\d\d|1\.00) \[-\.\d\d\]\*</a>", text)
    assert "* marks an incomplete evaluation" in text
    assert read_rows(make_client(experiment.owner))[0]["incomplete"] == "*"


@pytest.mark.slow
def test_ranks_follow_the_corrected_tests():
    experiment = make_space_experiment(
        dataset=make_space_dataset(count=16), models=("a", "b", "c"), outcome=answer_by_share(a=16, b=15, c=4)
    )
    ranks = {row["model"]: row["rank"] for row in read_rows(make_client(experiment.owner))}
    assert ranks == {"a": "1", "b": "2", "c": "3"}
    close = make_space_experiment(
        "close", models=("d", "e"), outcome=answer_by_share(d=4, e=3), dataset=make_space_dataset("x")
    )
    keys = {scope.key for scope in make_client(close.owner).get(BOARD).context["filter"]["form"].scopes.values()}
    assert len(keys) == 2
    text = page_text(make_client(close.owner).get(BOARD))
    assert "Holm" in text


def answer_by_share(**right):
    return lambda item, model: "right" if item.metadata["number"] < right[model] else "wrong"


def test_experiments_on_different_items_are_not_compared():
    one = make_space_experiment("one", models=("a",))
    other = make_space_experiment("other", models=("b",), dataset=make_space_dataset("others", count=5))
    client = make_client(one.owner)
    scopes = client.get(BOARD).context["filter"]["form"].scopes
    assert {row["experiment"] for row in read_rows(client)} == {"other"}
    first = next(key for key, scope in scopes.items() if one.dataset_id in scope.datasets)
    assert {row["experiment"] for row in read_rows(client, on=first)} == {"one"}
    assert client.get(BOARD, {"on": "dataset-unknown"}).status_code == 404
    assert other.dataset_id not in scopes[first].datasets


def test_experiments_on_equal_items_are_compared_across_datasets():
    one = make_space_experiment("one", models=("a",))
    copy = make_space_dataset("copy")
    assert copy.content_hash == one.dataset.content_hash
    make_space_experiment("two", dataset=copy, models=("b",))
    assert {row["model"] for row in read_rows(make_client(one.owner))} == {"a", "b"}


def test_a_condition_in_two_experiments_has_one_row_with_the_most_answers():
    one = make_space_experiment("one", models=("a",))
    make_space_experiment(
        "two", dataset=one.dataset, models=("a",), outcome=lambda item, _: None if item.position else "right"
    )
    (row,) = read_rows(make_client(one.owner))
    assert (row["experiment"], row["answers"]) == ("one", "64")


def test_readers_see_only_experiments_that_they_may_read():
    mine = make_space_experiment("mine", models=("a",))
    stranger = factories.make_user("stranger", permissions.RESEARCHER)
    make_space_experiment("theirs", dataset=mine.dataset, models=("b",), owner=stranger)
    shared = make_space_experiment("shared", dataset=mine.dataset, models=("c",), owner=stranger, sharing="group")
    assert {row["model"] for row in read_rows(make_client(mine.owner))} == {"a", "c"}
    viewer = factories.make_user("viewer", permissions.VIEWER)
    assert {row["experiment"] for row in read_rows(make_client(viewer))} == {shared.slug}


def test_archived_experiments_are_not_on_the_leaderboard():
    mine = make_space_experiment("mine", models=("a",))
    make_space_experiment("old", dataset=mine.dataset, models=("b",), status="archived")
    assert {row["experiment"] for row in read_rows(make_client(mine.owner))} == {"mine"}


def test_the_url_sorts_and_filters_rows():
    experiment = make_space_experiment(models=("strong", "weak"))
    LanguageModel.objects.filter(name="weak").update(groups="size:small arch:moe")
    client = make_client(experiment.owner)

    def list_models(**query):
        return [row["model"] for row in read_rows(client, **query)]

    assert list_models() == ["strong", "weak"]
    assert list_models(sort="score") == ["weak", "strong"]
    assert list_models(sort="-model") == ["weak", "strong"]
    assert list_models(sort="task-brackets") == ["weak", "strong"]
    assert list_models(group="arch:moe") == ["weak"]
    family = client.get(BOARD).context["filter"]["form"].fields["family"].choices[1][0]
    assert list_models(family=family)
    assert client.get(BOARD, {"sort": "nothing"}).status_code == 404
    assert "Select a valid choice" in page_text(client.get(BOARD, {"group": "no such group"}))


def test_a_token_limit_selects_the_gradings_of_its_rule():
    experiment = make_space_experiment(models=("m",), outcome=lambda *_: "right")
    grade(experiment, scorers=["final_answer:100"], by="test")
    client = make_client(experiment.owner)
    assert float(read_rows(client)[0]["brackets_truncated"]) == 0
    assert float(read_rows(client, limit="100")[0]["brackets_truncated"]) > 0.3
    text = page_text(client.get(BOARD, {"limit": "300"}))
    assert "Without gradings by this rule: space." in text


def test_downloaded_files_have_the_same_rows_as_the_page():
    experiment = make_space_experiment()
    client = make_client(experiment.owner)
    latex = client.get(BOARD, {"table": "compact", "format": "latex"}).content.decode()
    assert r"\toprule" in latex
    assert "strong / direct / greedy" in latex
    picture = client.get(reverse("leaderboard_figure", args=["svg"]))
    assert "strong / direct / greedy" in picture.content.decode()
    png = client.get(reverse("leaderboard_figure", args=["png"]), {"sort": "score"})
    assert png.content.startswith(b"\x89PNG")
    assert client.get(reverse("leaderboard_figure", args=["gif"])).status_code == 404


def test_model_names_are_escaped_in_cells():
    experiment = make_space_experiment(models=("m",))
    experiment.dataset.items.count()
    text = make_client(experiment.owner).get(BOARD).content.decode()
    assert f'href="{reverse("explorer", args=[experiment.slug])}?condition=' in text
    assert "&amp;task=brackets" in text


def test_a_worker_counts_many_answers_and_the_page_reports_it(monkeypatch):
    tasks = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda *arguments: tasks.append(arguments))
    monkeypatch.setattr(point_counts, "MAX_ANSWERS_PER_REQUEST", 0)
    experiment = make_space_experiment(models=("m",))
    client = make_client(experiment.owner)
    assert "A worker is counting the answers of space." in page_text(client.get(BOARD))
    from grading_app.tasks import compute_aggregates

    for _, keys in tasks:
        compute_aggregates(keys)
    assert "A worker is counting" not in page_text(client.get(BOARD))
    assert len(read_rows(client)) == 1


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_experiments():
    one = make_space_experiment("one", models=("a",))
    client = make_client(one.owner)

    def count_queries():
        client.get(BOARD)
        with CaptureQueriesContext(connection) as captured:
            client.get(BOARD)
        return len(captured)

    first = count_queries()
    for number in range(3):
        make_space_experiment(f"more-{number}", dataset=one.dataset, models=(f"m{number}", f"n{number}"))
    assert count_queries() == first < 15


def test_an_empty_leaderboard_shows_what_it_needs():
    text = page_text(make_client(factories.make_user("owner", permissions.RESEARCHER)).get(BOARD))
    assert "No parametric experiment with answers" in text

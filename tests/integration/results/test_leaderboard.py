"""The leaderboard at the top of the results: every measure of every condition, the best by a test, and a baseline."""

import csv
import io
import re
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from html import unescape
from itertools import combinations

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from grading_app.grading.scoring import grade
from grading_app.models import BlindReading, CachedAggregate, ShareLink
from grading_app.results.figures.cost import make_cost_figure, make_figures
from grading_app.results.leaderboard import BoardQuery, compute_leaderboard
from tests import factories
from tests.factories.gradings import make_gradings
from tests.integration.judging.test_judges_in_one_sentence import list_trials_on_pages
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
RIGHT = {"fast": 18, "small": 20, "steady": 36}
COST = {"fast": "0.003", "small": "0.001", "steady": "0.002"}


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


@shared_rows
def quiz():
    """Return three models on 40 items: `steady` is right on 36, others on about half; `fast` is unreadable on 4."""
    experiment = factories.make_experiment(
        "quiz",
        dataset=factories.make_dataset(items=40),
        models=[factories.make_model(name) for name in RIGHT],
        scorers=["numeric"],
    )
    for run in factories.make_runs(experiment, status="done"):
        name = run.condition.model.name
        factories.plan_trials(run, answer=lambda item, *_, name=name: answer(item, name))
    grade(experiment, by="test")
    return experiment


def answer(item, name):
    if name == "fast" and item.position >= 36:
        return {"answer": "no idea", "cost_usd": Decimal(COST[name]), "latency_ms": 100}
    text = item.target if item.position < RIGHT[name] else "-1"
    return {"answer": text, "cost_usd": Decimal(COST[name]), "latency_ms": 400 if name == "steady" else 100}


def open_page(client, experiment, **query):
    client.force_login(experiment.owner)
    return client.get(reverse("experiment_results", args=[experiment.slug]), query)


def read_records(client, experiment, table="leaderboard", **query):
    response = open_page(client, experiment, table=table, format="csv", **query)
    assert response.status_code == 200
    return {row["condition"]: row for row in csv.DictReader(io.StringIO(response.content.decode()))}


def get_condition_key(experiment, name):
    return experiment.conditions.get(model__name=name).pk


def test_each_condition_has_its_mean_interval_cost_tokens_and_latency(client, quiz):
    rows = read_records(client, quiz)
    assert {name: float(row["numeric"]) for name, row in rows.items()} == pytest.approx(
        {"fast": 18 / 36, "small": 20 / 40, "steady": 36 / 40}
    )
    steady = rows["steady"]
    assert (int(steady["numeric_n"]), int(rows["fast"]["numeric_n"]), int(rows["fast"]["numeric_missing"])) == (
        40,
        36,
        4,
    )
    assert float(steady["numeric_ci_low"]) < 0.9 < float(steady["numeric_ci_high"])
    assert float(steady["cost_usd"]) == pytest.approx(40 * 0.002)
    assert (int(steady["input_tokens"]), int(steady["output_tokens"])) == (4000, 400)
    assert (float(steady["latency_s"]), float(rows["fast"]["latency_s"])) == (0.4, 0.1)


def test_the_leaderboard_has_the_numbers_behind_the_figures(client, quiz):
    page = open_page(client, quiz)
    below = {line.condition: line for line in page.context["results"].summary.lines}
    for row in page.context["results"].board.rows:
        score, line = row.scores["numeric"], below[row.label].score
        assert (score.n, score.missing, score.items) == (line.n, line.missing, line.items)
        assert (score.mean, score.low, score.high) == pytest.approx((line.mean, line.low, line.high))


def test_unreadable_answers_count_as_wrong_on_request(client, quiz):
    fast = read_records(client, quiz, missing="wrong")["fast"]
    assert (float(fast["numeric"]), int(fast["numeric_n"])) == (pytest.approx(18 / 40), 40)
    page = open_page(client, quiz, missing="wrong")
    assert "count as the lowest score here" in page_text(page)
    (conclusion,) = page.context["screen"].conclusions
    assert conclusion.basis.endswith("116 of 120 answers with a score; the others count as the lowest score.")
    assert "All figures except that of costs, and the list of items, leave them out." in page_text(page)
    assert "leave them out" not in page_text(open_page(client, quiz))


def test_the_url_contains_the_treatment_of_unreadable_answers(client, quiz):
    chosen = open_page(client, quiz, missing="wrong").content.decode()
    assert "?missing=wrong&amp;table=leaderboard&amp;format=csv" in chosen
    later = open_page(client, quiz).content.decode()
    assert "count as the lowest score here" not in later
    assert "missing=wrong" not in later


def test_the_best_is_marked_if_every_paired_test_is_significant(client, quiz):
    rows = read_records(client, quiz)
    assert {name: row["numeric_best"] for name, row in rows.items()} == {"fast": "", "small": "", "steady": "best"}
    rows = open_page(client, quiz).context["first"]["table"].rows
    assert [row["best"] for row in rows] == ["", "", "Best"]


def read_shared_leaderboard(client, experiment):
    until = timezone.now() + timedelta(days=7)
    _, token = ShareLink.create(experiment, ShareLink.Scope.LEADERBOARD, until, by=experiment.owner)
    return page_text(client.get(reverse("shared_leaderboard", args=[token])))


def test_a_shared_leaderboard_explains_the_mark_of_the_best(client, quiz):
    assert "Best: higher than each other condition" in read_shared_leaderboard(client, quiz)


def test_no_condition_is_best_if_the_first_two_do_not_differ_significantly(client):
    experiment = factories.make_experiment(
        "close", dataset=factories.make_dataset(items=40), models=[factories.make_model(name) for name in "abc"]
    )
    for run in factories.make_runs(experiment, status="done"):
        right = {"a": 36, "b": 35, "c": 5}[run.condition.model.name]
        factories.plan_trials(run, answer=lambda item, *_, n=right: item.target if item.position < n else "-1")
    grade(experiment, scorers=["numeric"], by="test")
    assert not any(row["numeric_best"] for row in read_records(client, experiment).values())
    text = unescape(page_text(open_page(client, experiment)))
    assert "No reliable difference between a and b (2.5 percentage points)." in text
    assert "Number within tolerance: a is ahead by 2.5 pp" in text
    assert "over b on 40 common items, but the difference is not significant (exact McNemar test, p = 1.000)." in text
    assert "Best: higher than" not in read_shared_leaderboard(client, experiment)


def test_the_page_begins_with_the_leading_model(client, quiz):
    text = unescape(page_text(open_page(client, quiz)))
    assert text.index("steady scores 44.4 percentage points higher than small.") < text.index(">Conditions</h2>")
    expected_text = (
        r"Number within tolerance: steady is the best, by 50\.0 pp \([\d.]+ to [\d.]+ pp\) "
        r"over fast on 36 common items\."
    )
    assert re.search(expected_text, text)
    blind = BlindReading.start(quiz, quiz.owner)
    letter = blind.assign_letters()[quiz.language_models.get(name="steady").pk]
    assert f"Number within tolerance: {letter} is the best" in page_text(open_page(client, quiz))


def test_a_higher_rating_is_not_marked_as_better(client):
    experiment = factories.make_experiment(
        "study",
        dataset=factories.make_dataset(items=20),
        dimensions=[factories.make_dimension("valence")],
        models=[factories.make_model("a"), factories.make_model("b")],
    )
    for run in factories.make_runs(experiment, status="done"):
        rating = 6 if run.condition.model.name == "b" else 2
        factories.plan_trials(run, answer=lambda *_, rating=rating: {"answer": str(rating), "rating": rating})
    assert "valence_best" not in read_records(client, experiment)["b"]
    page = open_page(client, experiment)
    assert "best" not in page.context["first"]["table"].rows[0] or not page.context["first"]["table"].rows[0]["best"]
    (conclusion,) = page.context["screen"].conclusions
    assert conclusion.sentence == "b rates 4.00 points higher than a.", "more is not better"


@pytest.mark.slow
def test_a_baseline_gives_differences_with_corrected_p_and_wins(client, quiz):
    rows = read_records(client, quiz, table="baseline-numeric", baseline=get_condition_key(quiz, "small"))
    assert set(rows) == {"fast", "steady"}
    steady = rows["steady"]
    assert float(steady["difference"]) == pytest.approx(16 / 40)
    assert [int(steady[name]) for name in ("wins", "losses", "ties")] == [16, 0, 24]
    assert float(steady["p_holm"]) == pytest.approx(2 * float(steady["p"]))
    assert float(steady["difference_ci_low"]) > 0
    small_key, steady_key = get_condition_key(quiz, "small"), get_condition_key(quiz, "steady")
    address = f"/compare/?a=quiz%3A{small_key}&amp;b=quiz%3A{steady_key}&amp;measure=numeric"
    assert address in open_page(client, quiz, baseline=small_key).content.decode()


def test_the_first_measure_has_the_table_and_all_others_are_below(client, quiz):
    make_gradings(quiz, "judge", lambda trial: 1 + trial.item.position % 7)
    page = open_page(client, quiz)
    assert page.context["first"]["table"].title == "Number within tolerance"
    assert [one["table"].name for one in page.context["further"]][1:] == ["effort"]
    assert page.context["further"][0]["table"].title.startswith("judge")
    assert len(read_records(client, quiz)) == 3


def test_missing_answers_that_count_as_wrong_are_counted_once(client, quiz):
    for query in ({}, {"missing": "wrong"}):
        page = open_page(client, quiz, **query)
        row = next(row for row in page.context["first"]["table"].rows if row["condition"] == "fast")
        assert tuple(row["n"]) == (36, 40)
        assert ">36 of 40</a>" in page.content.decode()
        assert row["missing"] == "4 unreadable"


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("score", ["fast", "small", "steady"]),
        ("-score", ["steady", "small", "fast"]),
        ("-cost_per_answer", ["fast", "steady", "small"]),
        ("-condition", ["steady", "small", "fast"]),
        ("-latency_s", ["steady", "fast", "small"]),
    ],
)
def test_headers_sort_by_url(client, quiz, sort, expected):
    context = open_page(client, quiz, sort=sort, missing="wrong").context
    html = (context["further"][-1] if sort == "-latency_s" else context["first"])["html"]
    assert [row[0] for row in html.rows_of_text] == expected


@pytest.mark.slow
def test_n_links_to_the_counted_trials(client, quiz):
    text = open_page(client, quiz).content.decode()
    grader = quiz.grade_conditions.get().pk
    query = f"experiment=quiz&amp;condition={get_condition_key(quiz, 'steady')}&amp;status=done&amp;graded_by={grader}"
    assert query in text
    assert len(list_trials_on_pages(client, f"/trials/?{query.replace('&amp;', '&')}")) == 40


@pytest.mark.parametrize(("name", "value"), [("baseline", "999999"), ("baseline", "x"), ("missing", "maybe")])
def test_an_invalid_choice_is_an_error_at_its_field(client, quiz, name, value):
    page = open_page(client, quiz, **{name: value})
    assert page.status_code == 200
    assert page.context["board_form"].errors[name] == [
        f"Select a valid choice. {value} is not one of the available choices."
    ]
    assert "is not one of the available choices" in page.content.decode()


def test_the_frontier_has_the_conditions_that_no_cheaper_condition_matches(quiz):
    board = compute_leaderboard(BoardQuery(quiz))
    assert [row.label for row in board.find_efficient_frontier(board.measures[0])] == ["small", "steady"]


@pytest.mark.parametrize("width", [332, 560])
def test_names_in_the_cost_figure_overlap_neither_each_other_nor_points(quiz, width):
    board = compute_leaderboard(BoardQuery(quiz))
    (measure,) = board.measures
    names = ["small · plain text", "small · step by step", "large · step by step"]
    rows = []
    for row, name, cost, mean in zip(board.rows, names, (0.00010, 0.00011, 0.00012), (0.60, 0.62, 0.61), strict=True):
        score = replace(row.scores[measure.key], mean=mean, low=mean - 0.1, high=mean + 0.1)
        rows.append(replace(row, label=name, cost_usd=cost * row.answers, scores={measure.key: score}))
    figure = make_cost_figure(replace(board, rows=rows), measure).draw(width)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    outlines = [text.get_window_extent() for text in axes.texts if text.get_text().startswith(tuple(names))]
    assert len(outlines) == 3
    assert not [pair for pair in combinations(outlines, 2) if pair[0].overlaps(pair[1])]
    points = [axes.transData.transform((row.cost_per_answer, row.scores[measure.key].mean)) for row in rows]
    assert not [place for place in points for outline in outlines if outline.contains(*place)]


@pytest.mark.parametrize("costs", [(0.0001, 0.00011, 0.0002), (0.00001, 0.0001, 0.001), (0.0, 0.0001, 0.0002)])
@pytest.mark.parametrize("means", [(0.66, 0.6, 0.99), (0.0, 1.0, 0.5), (0.5, 0.5, 0.5), (1.0, 0.6, 0.0)])
@pytest.mark.parametrize("width", [332, 560])
def test_names_in_the_cost_figure_stay_inside_the_axes_and_off_the_ticks(quiz, width, means, costs):
    board = compute_leaderboard(BoardQuery(quiz))
    (measure,) = board.measures
    names = ["sim-small", "large · step by step", "a model with a long name"]
    rows = []
    for row, name, cost, mean in zip(board.rows, names, costs, means, strict=True):
        score = replace(row.scores[measure.key], mean=mean, low=None, high=None)
        rows.append(replace(row, label=name, cost_usd=cost * row.answers, scores={measure.key: score}))
    figure = make_cost_figure(replace(board, rows=rows), measure).draw(width)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    outlines = {text.get_text(): text.get_window_extent() for text in axes.texts}
    del outlines[measure.label]  # The head of the panel, above it.
    assert len(outlines) == 3
    panel, ticks = axes.bbox.padded(1), [*axes.get_xticklabels(), *axes.get_yticklabels()]
    for name, outline in outlines.items():
        assert panel.x0 <= outline.x0 <= outline.x1 <= panel.x1, name
        assert panel.y0 <= outline.y0 <= outline.y1 <= panel.y1, name
        assert not [tick.get_text() for tick in ticks if tick.get_text() and tick.get_window_extent().overlaps(outline)]


@pytest.mark.parametrize(("costs", "n_figures"), [((1.0, 1.0, 1.0), 0), ((1.0, 1.005, 1.0), 0), ((1.0, 1.0, 2.0), 1)])
def test_no_figure_has_an_axis_of_costs_that_are_equal(quiz, costs, n_figures):
    board = compute_leaderboard(BoardQuery(quiz))
    rows = [replace(row, cost_usd=cost * row.answers) for row, cost in zip(board.rows, costs, strict=True)]
    board = replace(board, rows=rows, measures=board.measures[:1])
    assert len(list(make_figures(board))) == n_figures


@pytest.mark.slow
def test_the_figure_of_score_against_cost_is_drawn_and_described(client, quiz):
    page = open_page(client, quiz)
    assert "On the efficient frontier: small, steady." in page.content.decode()
    picture = client.get(reverse("figure_file", args=["quiz", "cost-numeric", "svg"]))
    assert picture["Content-Type"] == "image/svg+xml"
    assert b"steady" in picture.content
    assert client.get(reverse("figure_file", args=["quiz", "cost-nothing", "svg"])).status_code == 404
    assert client.get(reverse("figure_file", args=["quiz", "cost-numeric", "svg"]), {"theme": "x"}).status_code == 404


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_conditions_and_items(client, quiz):
    def capture_queries(experiment):
        cache.clear()
        CachedAggregate.objects.all().delete()
        client.force_login(experiment.owner)
        with CaptureQueriesContext(connection) as queries:
            client.get(reverse("experiment_results", args=[experiment.slug]))
        return [query["sql"] for query in queries.captured_queries]

    many = factories.make_experiment(
        "many",
        dataset=factories.make_dataset("many-items", 5),
        models=[factories.make_model(f"m{at}") for at in range(12)],
    )
    for run in factories.make_runs(many, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: item.target)
    grade(many, scorers=["numeric"], by="test")
    capture_queries(quiz)
    few, more = capture_queries(quiz), capture_queries(many)
    assert len(more) <= len(few), "\n".join(more)

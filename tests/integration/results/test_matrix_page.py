"""The matrix of items and conditions shows the stored scores, in every order and selection that it offers."""

import csv
import io
import re
from functools import partial

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evalsite.lib import permissions
from grading_app.grading.scoring import grade
from grading_app.results import item_matrix
from grading_app.views import items
from tests import factories
from tests.factories.gradings import make_answered_experiment
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db

# Number of right answers by item and condition; the first repetitions are right.
RIGHT = {
    "item-0": {"a": 2, "b": 2},
    "item-1": {"a": 2, "b": 0},
    "item-2": {"a": 0, "b": 1},
    "item-3": {"a": 0, "b": 0},
}


def make_sums(*, samples=2, answers=()):
    """Return four sums, graded as in RIGHT. `answers` maps (item key, condition, repetition) to other answers."""
    experiment = factories.make_experiment(
        "sums", dataset=factories.make_dataset("sums", items=4), samples=samples, scorers=["numeric"],
        models=[factories.make_model("a"), factories.make_model("b")],
    )  # fmt: skip
    for run in factories.make_runs(experiment):
        factories.plan_trials(run, answer=partial(_build_answer, dict(answers), run.condition.model.name))
    grade(experiment, by="test")
    return experiment


def _build_answer(answers, name, item, _dimension, index):
    return answers.get((item.key, name, index), item.target if index < RIGHT[item.key][name] else "99")


def test_many_conditions_have_pages_and_those_with_missing_scores_come_first(client, monkeypatch):
    sums = make_sums(answers={("item-3", "b", 0): "I do not know."})
    client.force_login(sums.owner)
    address = reverse("experiment_matrix", args=[sums.slug])
    whole = client.get(address)
    assert whole.context["heads"] == ["a", "b"]
    assert "Pages of conditions" not in whole.content.decode()
    monkeypatch.setattr(items, "MAX_CONDITIONS", 1)
    first, second = (client.get(address, {"columns": columns, "sort": "dataset"}) for columns in (1, 2))
    assert [page.context["heads"] for page in (first, second)] == [["b"], ["a"]]
    assert "Conditions 1 to 1 of 2" in page_text(first)
    assert 'href="?columns=2&amp;sort=dataset"' in first.content.decode()
    assert "4 items, 2 conditions" in page_text(second)


@shared_rows
def graded():
    return make_sums()


@shared_rows
def rated():
    """Return ratings of items with norm 4: of item n, model a gives 1 + n each time, model b 4 - n and 4 + n."""
    items = [{**factories.build_question(n), "norms": {"valence": 4.0}} for n in range(4)]
    experiment = factories.make_experiment(
        "faces",
        dataset=factories.make_dataset("faces", items),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension("valence")],
        samples=2,
    )
    for run in factories.make_runs(experiment):
        factories.plan_trials(run, answer=lambda item, _, index, run=run: _rating(run, item.position, index))
    return experiment


def _rating(run, position, index):
    if run.condition.model.name == "a":
        return {"answer": str(1 + position), "rating": 1 + position}
    rating = 4 + (position if index else -position)
    return {"answer": str(rating), "rating": rating}


@pytest.fixture
def see(client):
    def open_page(experiment, **query):
        client.force_login(experiment.owner)
        return client.get(reverse("experiment_matrix", args=[experiment.slug]), {"sort": "dataset", **query})

    return open_page


def list_cell_texts(response):
    """Return the texts of the row's cells by item key."""
    return {row["item"].key: [cell and cell.text for cell in row["cells"]] for row in response.context["rows"]}


def list_keys(response):
    return [row["item"].key for row in response.context["rows"]] if "rows" in response.context else []


@pytest.mark.parametrize("most", [2, 1])
def test_many_conditions_are_suggested_by_name_and_not_listed_in_each_choice(graded, see, monkeypatch, most):
    monkeypatch.setattr(item_matrix, "MAX_OPTIONS", most)
    number = {label: key for key, label in see(graded).context["filter"]["form"].labels.items()}
    by_number = see(graded, a=number["a"], b=number["b"])
    by_name = see(graded, a="a", b=" B ")
    assert list_keys(by_number) == list_keys(by_name) == ["item-1"]
    for page in (by_number, by_name):
        text = page.content.decode()
        assert text.count("<option>a</option>") == (most == 1)
        assert text.count(f'<option value="{number["a"]}"') == 2 * (most == 2)
        assert text.count('name="a" value="a" list="matrix-conditions"') == (most == 1)
        assert [chip.text for chip in page.context["chips"]] == ["Dataset order", "a", "b"]
    wrong = see(graded, a="c")
    assert "c is not one of the choices. There are" in page_text(wrong)


def test_a_cell_counts_the_right_answers_of_its_repetitions(graded, see):
    assert list_cell_texts(see(graded)) == {
        "item-0": ["2/2", "2/2"],
        "item-1": ["2/2", "0/2"],
        "item-2": ["0/2", "1/2"],
        "item-3": ["0/2", "0/2"],
    }


def test_a_single_answer_is_a_symbol_with_a_label_for_screen_readers(see):
    response = see(make_sums(samples=1))
    assert [texts[0] for texts in list_cell_texts(response).values()] == ["✓", "✓", "✗", "✗"]
    assert 'aria-label="item-0, a: right, 0"' in response.content.decode()


def test_a_rating_cell_shows_mean_bars_and_norm(rated, see):
    response = see(rated)
    assert list_cell_texts(response)["item-3"] == ["4.00", "4.00"]
    a, b = response.context["rows"][3]["cells"]
    assert (a.path.count("M"), b.path.count("M")) == (1, 2)
    assert b.norm_x == "28.0", "4 is the middle of a scale from 1 to 7, 56 wide"
    assert "norm 4.00" in b.label


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("dataset", ["item-0", "item-1", "item-2", "item-3"]),
        ("", ["item-1", "item-2", "item-0", "item-3"]),
        ("disagreement", ["item-1", "item-2", "item-0", "item-3"]),
        ("repetitions", ["item-2", "item-0", "item-1", "item-3"]),
        ("difficulty", ["item-3", "item-2", "item-1", "item-0"]),
        ("easiest", ["item-0", "item-1", "item-2", "item-3"]),
        ("norm", ["item-0", "item-1", "item-2", "item-3"]),
    ],
)
def test_items_are_sorted_by_their_scores(graded, see, sort, expected):
    assert list_keys(see(graded, sort=sort)) == expected


def test_items_far_from_the_human_norm_come_first(rated, see):
    assert list_keys(see(rated, sort="norm")) == ["item-0", "item-1", "item-2", "item-3"]
    assert list_keys(see(rated, sort="repetitions")) == ["item-3", "item-2", "item-1", "item-0"]


@pytest.mark.parametrize(
    ("show", "expected"),
    [
        ("failures", ["item-1", "item-2", "item-3"]),
        ("different", ["item-1", "item-2"]),
        ("unsolved", ["item-3"]),
    ],
)
def test_items_are_selected_by_their_scores(graded, see, show, expected):
    assert list_keys(see(graded, show=show)) == expected


def test_items_that_only_one_condition_answers_correctly_can_be_selected(graded, see):
    a, b = graded.conditions.order_by("pk").values_list("pk", flat=True)
    assert list_keys(see(graded, a=a, b=b)) == ["item-1"]
    assert list_keys(see(graded, a=b, b=a)) == [], "one of two is neither right nor wrong"
    assert list_keys(see(graded, b=a)) == ["item-2", "item-3"]


def test_items_that_one_condition_rates_higher_can_be_selected(rated, see):
    a, b = rated.conditions.order_by("pk").values_list("pk", flat=True)
    assert list_keys(see(rated, a=b, b=a)) == ["item-0", "item-1", "item-2"]
    assert list_keys(see(rated, a=a, b=b)) == []
    assert "Choose both conditions" in see(rated, a=a).content.decode()


def test_a_category_filter_shows_its_items(graded, see):
    assert list_keys(see(graded, category="odd")) == ["item-1", "item-3"]


def test_answers_without_a_score_count_as_wrong_on_request(see):
    sums = make_sums(answers={("item-0", "a", 0): "I do not know."})
    assert list_cell_texts(see(sums))["item-0"] == ["✓", "2/2"]
    assert list_cell_texts(see(sums, missing="wrong"))["item-0"] == ["1/2", "2/2"]
    assert "item-0" in list_keys(see(sums, show="failures"))
    assert list_keys(see(sums, show="different")) == ["item-1", "item-2"]
    assert list_keys(see(sums, missing="wrong", show="different")) == ["item-0", "item-1", "item-2"]


def test_an_item_with_a_failed_call_is_selected_as_a_failure(see):
    sums = make_sums(answers={("item-0", "a", 0): factories.build_failed_fields()})
    assert "item-0" in list_keys(see(sums, show="failures"))
    assert "1 failed" in see(sums).context["rows"][0]["cells"][0].label


@pytest.mark.parametrize(
    ("display", "text"), [("answer", "0"), ("length", "1"), ("cost", "$0.00012"), ("latency", "250 ms")]
)
def test_cells_can_show_other_values_beside_the_score(graded, see, display, text):
    response = see(graded, display=display)
    assert list_cell_texts(response)["item-0"][0].replace("\u202f", " ") == text
    assert response.context["rows"][0]["cells"][0].detail == "2/2"


def test_a_wave_shows_only_its_own_answers(graded, see):
    for run in factories.make_runs(graded, wave=1):
        factories.plan_trials(run, answer=lambda item, _, index: item.target)
    grade(graded, by="test")
    assert list_cell_texts(see(graded, wave=1))["item-3"] == ["2/2", "2/2"]
    assert list_cell_texts(see(graded))["item-3"] == ["2/4", "2/4"]


def test_the_file_contains_every_selected_item_in_order(graded, see):
    response = see(graded, sort="difficulty", show="failures", table="matrix", format="csv")
    rows = list(csv.DictReader(io.StringIO(response.content.decode(), newline="")))
    assert [(row["item"], row["mean a"], row["mean b"]) for row in rows] == [
        ("item-3", "0.0", "0.0"),
        ("item-2", "0.0", "0.5"),
        ("item-1", "1.0", "0.0"),
    ]


@pytest.mark.parametrize("query", [{"table": "other", "format": "csv"}, {"table": "matrix", "format": "exe"}])
def test_unknown_files_are_not_found(graded, see, query):
    assert see(graded, **query).status_code == 404


@pytest.mark.parametrize(
    "query",
    [
        {"sort": "beauty"}, {"show": "none"}, {"measure": "bleu"}, {"a": "999999999"}, {"wave": "x"},
        {"category": "none"}, {"display": "smell"}, {"condition": "abc"},
    ],
)  # fmt: skip
def test_an_invalid_parameter_is_reported_and_shows_no_item(graded, see, query):
    response = see(graded, **query)
    assert response.status_code == 200
    assert list_keys(response) == []
    assert "Select a valid choice" in response.content.decode() or "is not one of" in response.content.decode()


@pytest.mark.parametrize("page", ["0", "-1", "99999999999999999999", "x"])
def test_a_missing_page_is_replaced_by_the_nearest_page(graded, see, page):
    assert list_keys(see(graded, page=page)) == ["item-0", "item-1", "item-2", "item-3"]


def test_pages_contain_consecutive_items(see):
    experiment = make_answered_experiment("long", items=60, dimensions=[factories.make_dimension()])
    first = see(experiment, sort="difficulty")
    second = see(experiment, **dict(re.findall(r"(\w+)=([\w-]+)", first.context["next_url"])))
    assert (len(list_keys(first)), len(list_keys(second))) == (50, 10)
    assert set(list_keys(first)).isdisjoint(list_keys(second))


def test_the_answers_of_a_cell_appear_on_a_page_and_beside_the_matrix(graded, see, client):
    link = see(graded).context["rows"][1]["cells"][0].address
    page, panel = client.get(link), client.get(link, headers={"HX-Request": "true"})
    assert "Back to matrix" in page.content.decode()
    assert "<html" not in panel.content.decode()
    for response in (page, panel):
        trials = [answer["trial"] for answer in response.context["answers"]]
        assert [(trial.item.key, trial.run.condition.model.name, trial.sample_idx) for trial in trials] == [
            ("item-1", "a", 0),
            ("item-1", "a", 1),
        ]
        assert [answer["gradings"][0].score for answer in response.context["answers"]] == [1.0, 1.0]


def test_cells_of_other_experiments_are_not_found(graded, rated, client):
    client.force_login(graded.owner)
    (item, other_item) = (one.dataset.items.first().pk for one in (graded, rated))
    (condition, other) = (one.conditions.first().pk for one in (graded, rated))
    for pair in ((other_item, condition), (item, other), (item, 10**18)):
        assert client.get(reverse("matrix_cell", args=["sums", *pair])).status_code == 404


def test_other_users_cannot_see_the_matrix_of_a_private_experiment(graded):
    other = Client()
    other.force_login(factories.make_user("other", permissions.RESEARCHER))
    assert other.get(reverse("experiment_matrix", args=["sums"])).status_code == 404


def test_an_experiment_without_a_measure_shows_a_message(see):
    assert "No scores yet" in see(factories.make_experiment("empty")).content.decode()


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow(see):
    def count_queries(slug, items, models, samples):
        dimension = factories.make_dimension(slug)
        experiment = make_answered_experiment(slug, items=items, models=models, samples=samples, dimensions=[dimension])
        see(experiment)
        with CaptureQueriesContext(connection) as captured:
            assert len(list_keys(see(experiment, sort="norm", category="even"))) == (items + 1) // 2
            see(experiment, show="failures")
        return len(captured)

    assert count_queries("few", 3, ["m1"], 1) == count_queries("many", 40, ["m1", "m2", "m3", "m4"], 3)

"""The explorer page: counts by point in each view, selections in the URL, and links to trials."""

import csv
import io
import json
import re
from urllib.parse import parse_qs, urlparse

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape

from evalsite.lib import permissions
from grading_app.grading.scoring import grade
from grading_app.results.parametric.explorer_query import VIEWS
from grading_app.results.parametric.explorer_views import VIEW_PAGES
from grading_app.results.parametric.surface_tables import read_tasks
from runs_app.models import Trial
from tests import factories
from tests.factories.spaces import build_outcome_fields, make_space_dataset, make_space_experiment
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def experiment():
    return make_space_experiment()


@pytest.fixture
def make_client():
    def client(user):
        found = Client()
        found.force_login(user)
        return found

    return client


def get_condition(experiment, model):
    return experiment.conditions.get(model__name=model).pk


def get(client, experiment, **query):
    return client.get(reverse("explorer", args=[experiment.slug]), query)


def read_rows(client, experiment, table, **query):
    response = get(client, experiment, table=table, format="csv", **query)
    assert response.status_code == 200
    return list(csv.DictReader(io.StringIO(response.content.decode().lstrip("\ufeff"))))


def test_each_cell_has_the_accuracy_interval_and_truncation_of_its_answers(experiment, make_client):
    client = make_client(experiment.owner)
    weak = get_condition(experiment, "weak")
    rows = read_rows(client, experiment, "surface", task="brackets", condition=weak, x="length", y="max_depth")
    assert [(row["length"], row["max_depth"]) for row in rows] == [
        (length, depth) for depth in ("2", "4") for length in ("4", "8", "12")
    ]
    for row in rows:
        of_cell = Trial.objects.filter(
            run__condition=weak, item__category="brackets",
            item__metadata__params__length=int(row["length"]), item__metadata__params__max_depth=int(row["max_depth"]),
        )  # fmt: skip
        assert int(row["n"]) == of_cell.filter(truncated=False).count()
        assert int(row["truncated"]) == of_cell.filter(truncated=True).count()
        assert int(row["correct"]) == of_cell.filter(gradings__score=1).count()
    assert [row["accuracy"] for row in rows[:3]] == ["1.0", "0.0", "0.0"]
    assert (float(rows[0]["interval_low"]), float(rows[0]["interval_high"])) == pytest.approx((0.6756, 1), abs=1e-4)


def test_an_accuracy_is_written_with_the_same_digits_as_its_interval(experiment, make_client):
    query = {"task": "brackets", "condition": get_condition(experiment, "weak"), "x": "length", "y": "max_depth"}
    text = get(make_client(experiment.owner), experiment, table="surface", format="md", **query).content.decode()
    assert "| 1.00 | 0.68 to 1.00 |" in " ".join(text.split())
    assert "| .00 |" not in " ".join(text.split())


def test_fixing_a_parameter_selects_its_points_and_averaging_sums_them(experiment, make_client):
    client = make_client(experiment.owner)
    rows = read_rows(client, experiment, "surface", task="brackets", x="length", y="max_depth")
    fixed = read_rows(client, experiment, "surface", task="brackets", x="length", y="max_depth", **{"at-kinds": "2"})
    n_cut = sum(int(row["n"]) + int(row["truncated"]) for row in rows)
    assert sum(int(row["n"]) + int(row["truncated"]) for row in fixed) * 2 == n_cut == 48


@pytest.mark.slow
def test_a_cell_links_to_the_trials_that_it_counts(experiment, make_client):
    client = make_client(experiment.owner)
    strong = get_condition(experiment, "strong")
    page = get(client, experiment, task="brackets", condition=strong, x="length", y="kinds", **{"at-max_depth": "4"})
    addresses = re.findall(r'<td class="level-\d"><a href="([^"]+)"', page.content.decode())
    assert len(addresses) == 6
    for address in addresses:
        where = parse_qs(urlparse(address.replace("&amp;", "&")).query)
        assert where["condition"] == [str(strong)]
        response = client.get(address.replace("&amp;", "&"))
        keys = {trial.pk for trial in response.context["table"].data}
        params = dict(part.split("=") for part in where["point"][0].split("&"))
        assert params["max_depth"] == "4"
        expected = Trial.objects.filter(
            run__condition=strong, item__category="brackets",
            **{f"item__metadata__params__{name}": int(value) for name, value in params.items()},
        )  # fmt: skip
        assert keys == {trial.pk for trial in expected}
        assert len(keys) == 4


def test_the_export_of_a_cell_contains_its_listed_trials(experiment, make_client):
    client = make_client(experiment.owner)
    strong = get_condition(experiment, "strong")
    query = {"condition": strong, "category": "brackets", "point": "length=8&max_depth=4"}
    address = reverse("experiment_export", args=[experiment.slug, "trials", "jsonl"])
    lines = b"".join(client.get(address, query).streaming_content).decode().splitlines()
    listed = client.get(reverse("trial_list"), {"experiment": experiment.slug, **query}).context["table"].data
    assert sorted(json.loads(line)["item_key"] for line in lines) == sorted(trial.item.key for trial in listed)
    assert len(lines) == 8
    response = client.get(address, {"point": "length"})
    assert (response.status_code, b"the filter point needs" in response.content) == (400, True)


def test_unreadable_parameters_show_no_trials_and_a_reason(experiment, make_client):
    page = make_client(experiment.owner).get(reverse("trial_list"), {"point": "length"})
    assert "Enter parameters as name=value" in page_text(page)
    assert not page.context["page"].keys


@pytest.mark.parametrize(
    "point", ["99999999999999999999=1", "1=1", "a%00=1", "length=8&nothing=1", "length=", "%FF=%FF"]
)
def test_parameters_that_no_item_has_show_no_trials(experiment, make_client, point):
    page = make_client(experiment.owner).get(reverse("trial_list"), {"experiment": experiment.slug, "point": point})
    assert page.status_code == 200
    assert not page.context["page"].keys


def test_selecting_a_wave_shows_only_its_counts_and_trials(experiment, make_client):
    for run in factories.make_runs(experiment, wave=1, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: build_outcome_fields(item, "right"))
    grade(experiment, by="test")
    client = make_client(experiment.owner)
    weak = get_condition(experiment, "weak")
    query = {"task": "brackets", "condition": weak, "x": "length", "y": "-"}
    rows_of_both = read_rows(client, experiment, "surface", **query)
    second = read_rows(client, experiment, "surface", wave="1", **query)
    assert [(row["correct"], row["n"]) for row in second] == [("16", "16")] * 3
    assert [row["correct"] for row in rows_of_both] == ["32", "16", "16"]
    page = get(client, experiment, wave="1", **query)
    address = re.findall(r'<td class="level-\d"><a href="([^"]+)"', page.content.decode())[0].replace("&amp;", "&")
    trials = client.get(address).context["table"].data
    assert {trial.run.wave.number for trial in trials} == {1}
    assert len(trials) == 16


def test_the_difference_is_the_compared_minus_the_selected_condition(experiment, make_client):
    client = make_client(experiment.owner)
    weak, strong = get_condition(experiment, "weak"), get_condition(experiment, "strong")
    query = {"view": "difference", "task": "brackets", "condition": weak, "against": strong, "x": "length", "y": "-"}
    rows = {row["length"]: row for row in read_rows(client, experiment, "difference", **query)}
    assert {length: float(row["difference"]) for length, row in rows.items()} == {"4": 0.0, "8": 1.0, "12": 0.0}
    assert float(rows["8"]["interval_low"]) > 0.5
    assert float(rows["4"]["interval_low"]) < 0 < float(rows["4"]["interval_high"])
    back = {**query, "condition": strong, "against": weak}
    assert float(read_rows(client, experiment, "difference", **back)[1]["difference"]) == -1.0


def test_an_accuracy_is_corrected_for_guessing():
    from grading_app.results.parametric.point_counts import CellCounts
    from grading_app.results.parametric.surface import estimate_accuracy

    guessed = estimate_accuracy([CellCounts(1, 0, 90, 60, 90, 0, 0, 30.0, 0, 0)])
    assert guessed.value == 0.5
    assert guessed.interval.center == pytest.approx((0.66666 * 90 + 1.92073) / (90 + 3.84146) * 1.5 - 0.5, abs=1e-4)


def test_curves_have_a_row_for_each_condition_and_value(experiment, make_client):
    rows = read_rows(make_client(experiment.owner), experiment, "curves", view="curves", task="brackets", x="length")
    assert [(row["condition"].split(" / ")[0], row["length"], row["correct"]) for row in rows] == [
        ("strong", "4", "16"), ("strong", "8", "16"), ("strong", "12", "0"),
        ("weak", "4", "16"), ("weak", "8", "0"), ("weak", "12", "0"),
    ]  # fmt: skip


def test_clusters_join_conditions_whose_intervals_overlap(make_client):
    experiment = make_space_experiment(models=("a", "b", "c"), outcome=_miss_half_of_c)
    rows = read_rows(make_client(experiment.owner), experiment, "clusters", view="clusters", task="brackets")
    assert [row["clusters"] for row in rows] == ["A", "A", "B"]


def _miss_half_of_c(item, model):
    return "wrong" if model == "c" and item.metadata["number"] % 2 else "right"


@pytest.mark.slow
def test_every_view_opens_with_its_figures(experiment, make_client):
    client = make_client(experiment.owner)
    for view in VIEWS:
        page = get(client, experiment, view=view, task="brackets")
        assert page.status_code == 200, view
        assert VIEW_PAGES[view].guide.split(".")[0] in page_text(page)
        for figure in page.context["figures"]:
            for address in (figure["address"], figure["narrow"], dict(figure["files"])["dark"]):
                picture = client.get(address)
                assert picture.status_code == 200, (view, address)
                assert picture.content.startswith(b"<svg")


def test_the_surface_shows_accuracy_and_its_lower_bound(experiment, make_client):
    client = make_client(experiment.owner)
    picture = client.get(
        reverse("figure_file", args=[experiment.slug, "space-surface", "svg"]),
        {"task": "brackets", "x": "length", "y": "max_depth"},
    ).content.decode()
    # Two faces between three lengths and two depths on each surface.
    assert len(re.findall(r'id="Poly3DCollection_\d', picture)) == 2
    assert "accuracy beyond guessing" in picture


def test_unknown_selections_fall_back_to_defaults(experiment, make_client):
    client = make_client(experiment.owner)
    page = get(client, experiment, task="nothing", condition="999999", x="?", y="zz", view="what", rule="x", wave="7")
    assert page.status_code == 200
    assert page.context["query"].task == "brackets"
    assert client.get(reverse("figure_file", args=[experiment.slug, "space-nothing", "svg"])).status_code == 404


def test_a_task_without_parameters_has_one_cell(make_client):
    text = "name: one\nprecision: {low: {count: 5}}\ntasks:\n  - name: brackets\n"
    experiment = make_space_experiment(dataset=make_space_dataset(text=text), models=("m",), outcome=lambda *_: "right")
    client = make_client(experiment.owner)
    (row,) = read_rows(client, experiment, "surface")
    assert (row["correct"], row["n"]) == ("5", "5")
    address = re.findall(
        r'<td class="level-\d"><a href="([^"]+)"', get(client, experiment, view="map").content.decode()
    )[0]
    assert len(client.get(address.replace("&amp;", "&")).context["table"].data) == 5


HOSTILE = ("-1", "0", "99999999999999999999", "٣", "' OR 1=1 --", "<b>", "a" * 3000, "[]", "\ud7ff", "%00", "nan")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["view", "task", "condition", "against", "x", "y", "rule", "wave", "at-kinds", "format"]
)
def test_no_selection_causes_a_server_error(experiment, make_client, name):
    client = make_client(experiment.owner)
    for value in HOSTILE:
        assert get(client, experiment, **{"task": "brackets", name: value}).status_code < 500, value


@pytest.mark.parametrize("name", ["on", "family", "group", "limit", "sort", "table", "format"])
def test_no_leaderboard_parameter_causes_a_server_error(experiment, make_client, name):
    client = make_client(experiment.owner)
    for value in HOSTILE:
        assert client.get(reverse("leaderboard"), {name: value}).status_code < 500, value


def test_an_experiment_without_gradings_shows_what_to_do(make_client):
    experiment = factories.make_experiment("fresh", dataset=make_space_dataset())
    page = get(make_client(experiment.owner), experiment)
    assert "Grading needs no further calls" in page_text(page)


def test_only_parametric_experiments_have_the_tab(experiment, make_client):
    plain = factories.make_experiment("plain")
    client = make_client(experiment.owner)
    response = [
        reverse("explorer", args=[one.slug])
        in client.get(reverse("experiment_results", args=[one.slug])).content.decode()
        for one in (experiment, plain)
    ]
    assert response == [True, False]


def test_other_users_cannot_open_a_private_experiment(experiment, make_client):
    client = make_client(factories.make_user("other", permissions.RESEARCHER))
    assert get(client, experiment).status_code == 404
    assert client.get(reverse("figure_file", args=[experiment.slug, "space-surface", "svg"])).status_code == 404


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_points_or_conditions(experiment, make_client):
    def count_queries(made):
        client = make_client(made.owner)
        get(client, made)
        with CaptureQueriesContext(connection) as found:
            get(client, made)
        return len(found)

    larger = make_space_experiment(
        "larger", dataset=experiment.dataset, models=("strong", "weak", "c", "d", "e"), samples=2
    )
    assert count_queries(larger) == count_queries(experiment) < 20


@pytest.mark.parametrize(
    ("choices", "notice"),
    [
        ({"view": "nothing"}, "There is no view 'nothing' here. The page shows All tasks."),
        ({"task": "arithmetic"}, "There is no task 'arithmetic' here. The page shows brackets."),
        ({"condition": "0"}, "There is no condition '0' here. The page shows "),
    ],
)
def test_an_unknown_choice_in_the_address_is_named(experiment, make_client, choices, notice):
    assert escape(notice) in page_text(get(make_client(experiment.owner), experiment, **choices))


def test_parameters_of_another_task_are_no_error(experiment, make_client):
    page = get(make_client(experiment.owner), experiment, task="swaps", x="kinds", **{"at-kinds": "2"})
    assert page.context["form"].notices == []


@pytest.mark.parametrize(("name", "former"), [("tokens", "hazard"), ("prompts", "spectrum")])
def test_views_have_the_names_of_their_tabs_and_older_addresses_still_work(experiment, make_client, name, former):
    client = make_client(experiment.owner)
    for view in (name, former):
        page = get(client, experiment, view=view)
        assert page.context["query"].view == name
        assert page.context["form"].notices == []
    assert f"?view={name}" in page.content.decode()


def test_the_explorer_opens_with_a_sentence_for_each_task_and_condition(experiment, make_client):
    response = get(make_client(experiment.owner), experiment)
    text = page_text(response)
    assert response.context["query"].view == "overview"
    readings = read_tasks(response.context["query"].counts, response.context["query"].labels)
    assert len(readings) >= 2
    assert all(escape(reading.sentence) in text for reading in readings)
    assert "space-overview" in response.content.decode()

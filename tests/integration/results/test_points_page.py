"""The page of points: estimates, reasons for stopping, savings, and the coverage of intervals."""

import json
from decimal import Decimal

import pytest
from django.core.cache import cache
from django.urls import reverse

from grading_app.publish.export.file_formats import export_chunks
from grading_app.results.status_report import build_status_report
from runs_app.models import Point
from runs_app.monitoring.point_status import compute_savings, list_point_lines
from runs_app.stopping import coverage
from runs_app.stopping.coverage import COVERAGE
from tests import factories
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
ADAPTIVE = {"by": "category", "scorer": "exact_match", "round": 32, "max": 256, "targetci": 0.09}


def make_points(experiment, *, status="enough", **fields):
    """Create a decided point of each category and run, with 96 of 128 right."""
    for run in factories.make_runs(experiment):
        run.spent_usd, run.n_done = "0.128", 128
        run.save(update_fields=["spent_usd", "n_done"])
        for category in ("even", "odd"):
            items = list(experiment.dataset.items.filter(category=category).values_list("pk", flat=True))
            defaults = {
                "n_planned": 128, "n_total": 128, "n_correct": 96, "half_width": 0.07427, "status": status,
                "reason": "the interval is ±0.0743 after 128 cases, within ±0.09", "decided_at": factories.NOON,
                "rounds": [{"asked": 32, "status": "open"}, {"asked": 128, "status": "enough"}],
            }  # fmt: skip
            Point.objects.create(
                run=run, key={"category": category}, items=items, n_items=len(items), **{**defaults, **fields}
            )


@shared_rows
def experiment():
    team = factories.make_team()
    created = factories.make_experiment(
        "rounds",
        owner=team.owner,
        dataset=factories.make_dataset("places", 600),
        models=[factories.make_model("small"), factories.make_model("large")],
        adaptive=ADAPTIVE,
        scorers=["exact_match"],
    )
    created.status = "active"
    created.save(update_fields=["status"])
    return created


@pytest.fixture
def open_points(client, experiment):
    client.force_login(experiment.owner)

    def get(**query):
        return client.get(reverse("experiment_points", args=[experiment.slug]), query)

    return get


def test_each_point_shows_its_estimate_and_its_reason_for_stopping(experiment, open_points):
    make_points(experiment)
    text = open_points().content.decode()
    assert text.count("the interval is ±0.0743 after 128 cases, within ±0.09") == 4
    # Wilson of 96 of 128: .74272 ± .07427.
    assert text.count("66.8 to 81.7 %") >= 4
    assert "128 of 256" in text
    assert "Beyond guessing" not in text


def test_points_that_repeat_their_items_show_the_coverage_of_their_design(experiment, open_points):
    make_points(experiment)
    assert "Answers to the same item are alike" not in open_points().content.decode()
    experiment.samples = 16
    experiment.save(update_fields=["samples"])
    Point.objects.update(n_items=8, rounds=[{"asked": 128, "status": "enough", "effective": 16.0}])
    cache.clear()
    text = " ".join(open_points().content.decode().split())
    assert "Simulated for this design (8 items, up to 128 cases, rounds of 32, ±0.09)" in text
    assert "fewer than 93 % of the intervals" not in text
    assert "50.5 to 89.8 %" in text  # Wilson of 12 of 16, not of 96 of 128.


def test_savings_are_shown_in_cases_and_costs(experiment, open_points):
    make_points(experiment)
    savings = compute_savings(list_point_lines(experiment))
    assert (savings.points, savings.decided, savings.asked, savings.most, savings.saved) == (4, 4, 512, 1024, 512)
    assert savings.saved_usd == Decimal("0.512")
    text = open_points().content.decode()
    assert "512" in text
    assert "$0.51" in text


def test_an_open_point_has_no_savings(experiment):
    make_points(experiment, status="open")
    savings = compute_savings(list_point_lines(experiment))
    assert (savings.decided, savings.saved, savings.saved_percent) == (0, 0, 0)


def test_an_unknown_price_makes_the_saving_unknown(experiment, open_points):
    make_points(experiment)
    experiment.runs.update(n_unpriced=1)
    assert compute_savings(list_point_lines(experiment)).saved_usd is None
    assert "cost unknown" in open_points().content.decode()


def test_the_coverage_on_the_page_matches_the_stored_table(experiment, open_points):
    make_points(experiment)
    least = min(rate for guess in (0.0, 0.25, 0.5) for rate in COVERAGE[0.09, 32, guess])
    text = " ".join(open_points().content.decode().split())
    assert f"contained the true accuracy in {100 * least:.1f} to" in text


def test_the_coverage_of_an_unsimulated_setting_is_unknown(experiment, open_points):
    make_points(experiment)
    experiment.adaptive = {**ADAPTIVE, "confidence": 0.9}
    experiment.save()
    assert "coverage of the true accuracy is unknown" in page_text(open_points())


def test_an_interval_by_excess_counts_shows_its_low_coverage(experiment, open_points):
    make_points(experiment)
    experiment.adaptive = {**ADAPTIVE, "correction": "excess_counts"}
    experiment.save()
    assert "contains the true accuracy about half of the time" in page_text(open_points())


def test_guessing_is_removed_and_the_page_says_so(experiment, open_points):
    make_points(experiment, guess_chances=32)
    (line, *_) = list_point_lines(experiment)
    assert line.accuracy == pytest.approx(2 / 3)
    assert "Beyond guessing" in open_points().content.decode()


def test_points_are_filtered_by_status_and_condition_in_the_url(experiment, open_points):
    make_points(experiment)
    Point.objects.filter(key={"category": "odd"}).update(status="aborted", reason="given up here")
    text = open_points(status="aborted").content.decode()
    assert text.count("given up here") == 2
    assert "after 128 cases, within" not in text.partition("data-table")[2].partition("</table>")[2]
    condition = experiment.conditions.first().pk
    assert open_points(status="aborted", condition=condition).content.decode().count("given up here") == 1
    assert open_points(status="nonsense").status_code == 404


def test_the_number_of_queries_does_not_grow_with_the_points(experiment, open_points, django_assert_max_num_queries):
    make_points(experiment)
    open_points()
    with django_assert_max_num_queries(25):
        open_points()
    run = experiment.runs.first()
    Point.objects.bulk_create(
        Point(run=run, key={"category": f"more {n}"}, items=[1], n_items=1, n_planned=1) for n in range(150)
    )
    with django_assert_max_num_queries(25):
        assert open_points().status_code == 200


def test_an_experiment_without_adaptive_stopping_shows_a_message(experiment, open_points):
    experiment.adaptive = {}
    experiment.save()
    assert "No adaptive stopping" in open_points().content.decode()


def test_the_results_page_draws_the_points(client, experiment, open_points):
    make_points(experiment)
    client.force_login(experiment.owner)
    picture = client.get(reverse("figure_file", args=[experiment.slug, "points", "svg"]))
    assert picture.status_code == 200
    assert b"75.0 %" in picture.content


@pytest.fixture
def rated(experiment):
    """Return points on two dimensions: 64 items with a mean of 4.25 and a standard deviation of 1."""
    dimensions = [factories.make_dimension("valence"), factories.make_dimension("calm", low=0, high=10)]
    experiment.dimensions.set(dimensions)
    experiment.adaptive = {**ADAPTIVE, "scorer": "rating", "targetci": 0.3}
    experiment.scorers = ["rating"]
    experiment.save()
    for run in factories.make_runs(experiment):
        for dimension in dimensions:
            items = list(experiment.dataset.items.values_list("pk", flat=True))
            Point.objects.create(
                run=run, key={"category": "even"}, dimension=dimension, items=items, n_items=len(items), n_planned=96,
                n_total=96, n_rated_items=64, mean=4.25, spread=1, half_width=0.2988, status="enough",
                reason="the interval is ±0.2988 after 96 cases, within ±0.3", decided_at=factories.NOON,
                rounds=[{"asked": 96, "status": "enough"}],
            )  # fmt: skip
    return experiment


def test_a_rated_point_shows_its_mean_on_its_scale(rated, open_points):
    text = " ".join(open_points().content.decode().split())
    assert "even, valence" in text
    assert "even, calm" in text
    # bounded_mean of 64, 4.25, 1 from 1 to 7: 4.2353 with ±0.2946; from 0 to 10: 4.2941 with ±0.3800.
    assert text.count("3.94 to 4.53") >= 2
    assert text.count("3.91 to 4.67") >= 2
    assert "4.25" in text
    assert "Student's over the item means" in text
    assert "Correct" not in text.partition("data-table")[2].partition("</thead>")[0]


def test_the_coverage_of_ratings_comes_from_their_own_table(rated, open_points):
    text = " ".join(open_points().content.decode().split())
    row = coverage.MEAN_COVERAGE[0.3, 32]
    assert f"contained the true mean in {100 * min(row):.1f} to {100 * max(row):.1f} % of 20 000 points" in text
    rated.adaptive = {**rated.adaptive, "confidence": 0.9}
    rated.save()
    assert "coverage of the true mean is unknown" in open_points().content.decode()


def test_means_are_drawn_on_their_scale(client, rated):
    client.force_login(rated.owner)
    picture = client.get(reverse("figure_file", args=[rated.slug, "points", "svg"]))
    assert picture.status_code == 200
    assert b"4.25" in picture.content
    assert b"Mean rating at each point" in client.get(reverse("experiment_points", args=[rated.slug])).content


def test_rated_points_are_exported_and_reported_by_status(rated):
    rows = [json.loads(line) for line in b"".join(export_chunks(rated, "points", "jsonl", {})).splitlines()]
    assert {(row["dimension"], row["mean"], row["spread"], row["n_rated_items"]) for row in rows} == {
        ("valence", 4.25, 1.0, 64),
        ("calm", 4.25, 1.0, 64),
    }
    message = build_status_report(rated)["points"]
    assert {(point["label"], point["dimension"], point["mean"], point["right"]) for point in message} == {
        ("even, valence", "valence", 4.25, None),
        ("even, calm", "calm", 4.25, None),
    }


def test_the_export_contains_every_point_with_its_counts(experiment):
    make_points(experiment)
    rows = [json.loads(line) for line in b"".join(export_chunks(experiment, "points", "jsonl", {})).splitlines()]
    assert [(row["model"], row["key"]["category"]) for row in rows] == [
        (model, category) for model in ("large", "small") for category in ("even", "odd")
    ] or len(rows) == 4
    assert {(row["n_total"], row["n_correct"], row["status"], len(row["rounds"])) for row in rows} == {
        (128, 96, "enough", 2)
    }
    assert {row["experiment"] for row in rows} == {"rounds"}
    for file_format in ("csv", "parquet"):
        assert b"".join(export_chunks(experiment, "points", file_format, {}))


def test_the_status_command_reports_the_points(experiment):
    make_points(experiment)
    points = build_status_report(experiment)["points"]
    assert {(point["label"], point["status"], point["asked"], point["saved"]) for point in points} == {
        ("even", "enough", 128, 128),
        ("odd", "enough", 128, 128),
    }
    json.dumps(points)

"""Agreement of rules, judges, models and people on one page, with every choice in the URL."""

import pytest
from django.core.cache import cache
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evalsite.lib import permissions
from grading_app.grading.rating import session
from grading_app.models import Grading
from grading_app.models.gradings import allow_superseding
from grading_app.results.raters import unit_counts
from grading_app.results.raters.rating_selection import RatingSelectionForm
from grading_app.statistics.agreement_coefficients import krippendorff_alpha
from grading_app.statistics.ratings import Ratings
from tests import factories
from tests.factories.gradings import (
    expand_counts,
    list_generated_trials,
    make_answered_experiment,
    make_gradings,
    make_scale_rubric,
)
from tests.factories.queues import make_answer_queue, make_queue, make_rater, rate_all
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


@shared_rows
def experiment():
    created = make_answered_experiment(samples=2)
    rubric = make_scale_rubric()
    make_gradings(created, "judge-a", lambda trial: 1 + trial.item.position % 7, rubric=rubric)
    make_gradings(created, "judge-b", lambda trial: 1 + (trial.item.position + trial.sample_idx) % 7, rubric=rubric)
    return created


def open_page(client, experiment, query=""):
    client.force_login(experiment.owner)
    return client.get(f"{reverse('experiment_agreement', args=[experiment.slug])}?{query}")


def get_measure(page, name):
    (measure,) = [one for one in page.context["result"].report.measures if one.name == name]
    return measure


def read_selection(experiment, query=""):
    return RatingSelectionForm(QueryDict(query), experiment).get_selection()


def test_judges_are_compared_on_the_answers_that_both_graded(client, experiment):
    page = open_page(client, experiment)
    text = " ".join(page.content.decode().split())
    assert page.status_code == 200
    assert "24 units with two or more ratings" in text
    assert "judge-a" in text
    assert get_measure(page, "Percent agreement").estimate.estimate == 0.5
    assert "jackknife of 12 items" in text


def test_a_number_equals_the_pure_measure_on_the_stored_rows(client, experiment):
    page = open_page(client, experiment)
    rows = Grading.objects.values_list("trial", "condition", "score")
    assert all(one.estimate.units == 24 for one in page.context["result"].report.measures)
    expected = krippendorff_alpha(Ratings.from_triples(rows), "ordinal").estimate
    measure = get_measure(page, "Krippendorff's alpha, ordinal")
    assert measure.estimate.estimate == pytest.approx(expected)
    assert measure.suits_scale
    assert (measure.estimate.units, measure.estimate.raters, measure.estimate.clusters) == (24, 2, 12)


def test_each_measure_shows_its_formula_and_source(client, experiment):
    text = open_page(client, experiment).content.decode()
    for message in (
        "Krippendorff (2011)",
        "D_o / D_e",
        "Shrout &amp; J. L. Fleiss (1979)",
        "Kendall (1948)",
        "fits this",
    ):
        assert message in text


def test_an_undefined_measure_shows_a_reason(client, experiment):
    third = make_gradings(experiment, "judge-c", lambda trial: -3 if trial.sample_idx else None)
    page = open_page(client, experiment)
    assert get_measure(page, "Krippendorff's alpha, ratio").estimate is None
    assert "no negative ratings" in page.content.decode()
    (covered,) = [one for one in page.context["result"].report.coverage if one.rater == f"g{third.pk}"]
    assert covered.n == 12


def make_raters_query(experiment, *scores):
    keys = [f"g{make_gradings(experiment, 'rater-' + 'x' * at, score).pk}" for at, score in enumerate(scores)]
    return "&".join(f"rater={key}" for key in keys)


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ([lambda trial: 3 if trial.sample_idx else None, lambda trial: None if trial.sample_idx else 4],
         "no unit was rated by two of them"),
        # As in a queue that wants three of ten people for each item.
        ([lambda trial, out=out: None if trial.item.position % 3 == out else 4 for out in range(3)],
         "no unit was rated by all 3 of them"),
        ([lambda trial: 4, lambda trial: 4], "they do not vary"),
        ([lambda trial: 4 if trial.item.position + trial.sample_idx == 0 else None, lambda trial: 3], "only 1 of 24"),
    ],
)  # fmt: skip
def test_raters_without_shared_units_or_variation_have_reasons_instead_of_numbers(client, experiment, scores, why):
    page = open_page(client, experiment, make_raters_query(experiment, *scores))
    assert page.status_code == 200
    lines = {one.name: one for one in page.context["result"].report.measures}
    assert why in lines["ICC(2,1)"].reason
    assert lines["ICC(2,1)"].estimate.estimate is None
    assert all(one.reason for one in lines.values() if one.estimate is None or one.estimate.estimate is None)
    assert "nan" not in page.content.decode().lower().split("<main")[1].replace("finan", "")


def test_varying_ratings_are_never_called_constant(client, experiment):
    page = open_page(client, experiment, make_raters_query(experiment, lambda trial: 4, lambda trial: 3))
    assert "the denominator of the formula is not positive" in get_measure(page, "Kendall's W").reason


def test_measures_state_how_many_units_they_use(client, experiment):
    make_gradings(experiment, "judge-c", lambda trial: 3 if trial.sample_idx else None)
    text = open_page(client, experiment).content.decode()
    assert "Units: 12 of 24, those that every rater rated" in text
    assert "Units: 24 of 24, those with at least two ratings" in text


def test_the_page_opens_on_units_that_two_raters_rated(client):
    """Answers have only the model's own rating, so they allow no comparison; items also have norms."""
    items = [{"key": f"p-{n}", "norms": {"valence": 1 + n % 4}} for n in range(4)]
    dimension, models = factories.make_dimension("valence"), [factories.make_model("a"), factories.make_model("b")]
    created = factories.make_experiment(
        "normed", dataset=factories.make_dataset("pictures", items), models=models, dimensions=[dimension], samples=1
    )
    for run in factories.make_runs(created):
        factories.plan_trials(run, answer=lambda item, *_: {"answer": "2", "rating": 1 + item.position % 4})
    assert open_page(client, created).context["selection"].units == "items:valence"
    assert open_page(client, created, "rater=own").context["selection"].units == "answers"


def test_raters_are_chosen_in_the_url(client, experiment):
    first, second = experiment.grade_conditions.order_by("pk")
    page = open_page(client, experiment, f"rater=g{first.pk}")
    assert "measures" not in page.context["tables"]
    assert "Only one rater" in page.content.decode()
    response = open_page(
        client, experiment, f"rater=g{second.pk}&rater=g{first.pk}&first=g{second.pk}&second=g{first.pk}"
    )
    assert response.context["result"].report.confusion.rows == f"g{second.pk}"


@pytest.mark.parametrize(
    "query", ["rater=g999999", "rater=nonsense", "units=items:beauty", "condition=99999", "wave=x"]
)
def test_a_url_with_unknown_choices_shows_no_number(client, experiment, query):
    page = open_page(client, experiment, query)
    assert page.status_code == 200
    assert page.context["selection"] is None
    assert "do not exist" in page.content.decode()


def test_a_category_and_a_condition_restrict_the_compared_units(experiment):
    assert unit_counts.load_unit_counts(read_selection(experiment)).units == 24
    assert unit_counts.load_unit_counts(read_selection(experiment, "category=odd")).units == 12
    two = make_answered_experiment("second", models=["small", "large"])
    make_gradings(two, "judge-a", lambda trial: 1)
    large = two.conditions.get(model__name="large")
    assert unit_counts.load_unit_counts(read_selection(two, f"condition={large.pk}")).units == 12


def test_judge_calls_do_not_count_as_answers():
    created = make_answered_experiment("rated", items=4, dimensions=[factories.make_dimension("valence")])
    (condition,), (answered,) = created.conditions.all(), created.runs.all()
    judge = created.conditions.create(
        stage="judge", model=condition.model, sampler=condition.sampler, condition_id="judge--1", content={}
    )
    verdicts = created.runs.create(condition=judge, wave=answered.wave)
    for subject in answered.trials.all():
        fields = factories.build_done_fields(answer="7", rating=7)
        verdicts.trials.create(item=subject.item, dimension=subject.dimension, sample_idx=0, subject=subject, **fields)
    count_answers = unit_counts.load_unit_counts(read_selection(created, "rater=own"))
    assert [value for *_, value in expand_counts(count_answers)] == [1, 2, 3, 4]


def test_new_grades_appear_immediately(client, experiment):
    before = get_measure(open_page(client, experiment), "Percent agreement").estimate.raters
    make_gradings(experiment, "judge-c-later", lambda trial: 4)
    assert (before, get_measure(open_page(client, experiment), "Percent agreement").estimate.raters) == (2, 3)


def test_a_late_verdict_on_an_early_answer_appears_immediately(client, experiment):
    judge = experiment.grade_conditions.order_by("pk").first()
    early = Grading.objects.filter(condition=judge).order_by("trial").first()
    late = {"trial": early.trial, "condition": judge, "score": early.score, "parse_ok": True}
    with allow_superseding():
        early.delete()
    assert open_page(client, experiment).context["result"].report.coverage[0].n == 23
    Grading.objects.create(**late)
    assert open_page(client, experiment).context["result"].report.coverage[0].n == 24


def test_a_sample_keeps_the_answers_that_people_rated(experiment, monkeypatch):
    assert unit_counts.load_unit_counts(read_selection(experiment), sample_size=6).units == 24
    monkeypatch.setattr(unit_counts, "MAX_PATTERNS", 3)
    settled = make_gradings(experiment, "settled", lambda trial: None, kind="rule")
    chosen = list_generated_trials(experiment)[20:23]
    settled.kind, settled.parameters = "adjudicated", {"scale_min": 1, "scale_max": 7}
    settled.save()
    with allow_superseding():
        Grading.objects.filter(condition=settled, trial__in=chosen).update(score=5, parse_ok=True, parse_error="")
    count_answers = unit_counts.load_unit_counts(read_selection(experiment), sample_size=6)
    assert (count_answers.units, count_answers.total) == (6, 24)
    sampled = expand_counts(count_answers)
    assert {item for item, rater, _ in sampled if rater == f"g{settled.pk}"} == {trial.item_id for trial in chosen}
    assert expand_counts(unit_counts.load_unit_counts(read_selection(experiment), sample_size=6)) == sampled


def test_a_sample_is_labelled_as_a_sample(client, experiment, monkeypatch):
    monkeypatch.setattr(unit_counts, "MAX_CELLS", 10)
    monkeypatch.setattr(
        "grading_app.results.raters.agreement_cache.load_unit_counts",
        lambda selection: unit_counts.load_unit_counts(selection, sample_size=6),
    )
    assert "6 of 24 units are compared" in open_page(client, experiment).content.decode()


@pytest.mark.slow
def test_undone_and_excluded_ratings_by_people_disappear_immediately(client):
    queue = make_answer_queue()
    first, second = (make_rater(queue, started=True) for _ in range(2))
    rate_all(first, 2)
    rate_all(second, 4)
    query = f"rater=q{queue.pk}-{queue.dimensions.get().pk}"

    def count_answers():
        return [one.n for one in open_page(client, queue.experiment, query).context["result"].report.coverage]

    assert count_answers() == [12, 12]
    session.undo(second)
    assert count_answers() == [12, 11]
    second.exclude(by=queue.owner, reason="never looked")
    assert count_answers() == [12]


@pytest.mark.slow
def test_people_are_compared_with_models_and_norms_on_items(client):
    valence = factories.make_dimension("valence", labels={"1": "Low", "7": "High"})
    items = [{**factories.build_question(n), "norms": {"valence": 1 + n % 7}} for n in range(14)]
    dataset = factories.make_dataset("photos", items)
    created = factories.make_experiment("affect", dataset=dataset, dimensions=[valence], samples=3)
    (run,) = factories.make_runs(created)
    factories.plan_trials(run, answer=lambda item, _, at: {"answer": "x", "rating": min(7, 1 + item.position % 7 + at)})
    queue = make_queue("feelings", dataset=dataset, dimensions=[valence])
    for off in (0, 1):
        rate_all(make_rater(queue, started=True), lambda due, off=off: max(1, 1 + due.item.position % 7 - off))
    condition = run.condition_id
    page = open_page(
        client, created, f"units=items:valence&rater=q{queue.pk}-{valence.pk}&rater=c{condition}&rater=norm"
    )
    text = page.content.decode()
    assert [rater.key[0] for rater in page.context["selection"].raters] == ["p", "p", "c"]
    assert "against people" in text
    assert page.context["roles"].judge.key == f"c{condition}"
    against = page.context["result"].report.judge_comparison
    assert against.people == 2
    assert against.bias.estimate == pytest.approx(sum(compute_excess(at) for at in range(14)) / 14)
    single = open_page(client, created, f"units=items:valence&rater=norm&rater=s{condition}")
    (measure,) = single.context["result"].report.references
    assert measure.concordance.estimate == pytest.approx(1)


def test_a_model_beside_people_is_called_a_model_with_coefficients_as_in_all_tables(client):
    valence = factories.make_dimension("valence", labels={"1": "Low", "7": "High"})
    dataset = factories.make_dataset("photos", 6)
    created = factories.make_experiment("affect", dataset=dataset, dimensions=[valence])
    (run,) = factories.make_runs(created)
    factories.plan_trials(run, answer=lambda item, _, at: {"answer": "x", "rating": 1 + item.position})
    queue = make_queue("feelings", dataset=dataset, dimensions=[valence])
    for off in (0, 1):
        rate_all(make_rater(queue, started=True), lambda due, off=off: max(1, 1 + due.item.position - off))
    rater = f"q{queue.pk}-{valence.pk}"
    page = open_page(client, created, f"units=items:valence&rater={rater}&rater=c{run.condition_id}")
    tables = page.context["tables"]
    rows = {name: {cells[0] for cells in tables[name]["table"].cells()} for name in ("bias", "people", "means")}
    assert rows["bias"] == {"Bias", "Slope"}
    assert {name.split(": ")[-1] for name in rows["people"]} == {"model", "people", "difference"}
    assert rows["means"] == {"Corrected mean", "People alone", "Model alone"}
    (concordance, *_) = tables["people"]["table"].cells()
    assert concordance[1] == ".93"
    details = [text for name in rows for texts in tables[name]["table"].details for text in texts]
    assert not [text for text in details if "judge" in text.lower()]
    assert tables["bias"]["table"].details[1][0].startswith("Slope of the model's ratings over the mean of the people")
    assert "the model's rating minus" in page.context["figures"]["differences"]["caption"]


def compute_excess(at):
    """Return the model's mean of three ratings minus the mean of two people."""
    level = 1 + at % 7
    return sum(min(7, level + more) for more in range(3)) / 3 - (level + max(1, level - 1)) / 2


def test_practice_and_excluded_ratings_are_not_compared(client):
    valence = factories.make_dimension("valence")
    dataset = factories.make_dataset("photos", 6)
    created = factories.make_experiment("affect", dataset=dataset, dimensions=[valence])
    queue = make_queue("feelings", dataset=dataset, dimensions=[valence], practice_items=2)
    stays, goes = (make_rater(queue, started=True) for _ in range(2))
    rate_all(stays)
    rate_all(goes)
    type(goes).objects.filter(pk=goes.pk).update(excluded_at="2026-01-01T00:00Z")
    count_answers = unit_counts.load_unit_counts(
        read_selection(created, f"units=items:valence&rater=q{queue.pk}-{valence.pk}")
    )
    assert [rater for _, rater, _ in expand_counts(count_answers)] == 4 * [f"p{stays.pk}-{valence.pk}"]


@pytest.mark.slow
def test_the_figures_are_svg_and_follow_the_choice(client, experiment):
    first, second = experiment.grade_conditions.order_by("pk")
    page = open_page(client, experiment, f"first=g{first.pk}&second=g{second.pk}")
    measure = page.context["figures"]["confusion"]
    picture = client.get(measure["address"])
    assert picture["Content-Type"] == "image/svg+xml"
    assert "immutable" in picture["Cache-Control"]
    assert picture.content.startswith(b"<svg")
    assert client.get(measure["narrow"]).status_code == 200
    for wrong in ("theme=pink", "width=9", "rater=g0"):
        address = reverse("figure_file", args=["pilot", "agreement-confusion", "svg"])
        assert client.get(f"{address}?{wrong}").status_code == 404
    assert client.get(reverse("figure_file", args=["pilot", "agreement-differences", "svg"])).status_code == 404


def test_an_experiment_without_ratings_shows_a_message(client):
    created = factories.make_experiment("empty")
    assert "Nothing to compare yet" in open_page(client, created).content.decode()


def test_a_filter_that_nothing_matches_offers_to_clear_it(client, experiment):
    text = open_page(client, experiment, "category=nosuch").content.decode()
    assert "No ratings to compare with this filter" in text
    assert "Nothing to compare yet" not in text
    assert f'href="{reverse("experiment_agreement", args=[experiment.slug])}">Clear filter' in text


def test_only_permitted_viewers_can_read_the_agreement_page(client, experiment):
    client.force_login(factories.make_user("viewer", permissions.VIEWER))
    address = reverse("experiment_agreement", args=["pilot"])
    assert client.get(address).status_code == 404
    experiment.sharing = "group"
    experiment.save()
    assert client.get(address).status_code == 200


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_raters(client, experiment):
    client.force_login(experiment.owner)

    def count_queries(raters):
        for number in raters:
            make_gradings(
                experiment, "judge-" + "x" * (number + 3), lambda trial, number=number: (trial.pk + number) % 7
            )
        with CaptureQueriesContext(connection) as selection:
            assert client.get(reverse("experiment_agreement", args=["pilot"])).status_code == 200
        return len(selection)

    count_queries(range(1))  # The first visit of a process also runs lookups that Django then caches.
    assert count_queries(range(1, 3)) == count_queries(range(3, 8)) <= 26

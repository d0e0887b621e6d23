"""Adaptive designs in files and forms, with their maximum and expected number of cases."""

from decimal import Decimal

import pytest
from django.urls import reverse

from grading_app.grading.judging.grader_specs import create_experiment
from runs_app import run_control
from runs_app.experiment_files.adaptive_spec import AdaptiveSpec
from runs_app.experiment_files.spec_reader import SpecError, read_spec
from runs_app.models import Endpoint, Experiment, Point, Run
from runs_app.planning import spec_io
from runs_app.planning.cost_estimate import estimate
from runs_app.planning.design import Design
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
RULE = {"by": "category", "scorer": "exact_match", "targetci": 0.09}


def build_spec_content(adaptive):
    return {"experiment": "rounds", "dataset": "places@1", "models": ["m"], "prompts": ["p"], "adaptive": adaptive}


@shared_rows
def team():
    return factories.make_team()


@shared_rows
def draft(team_of_file):
    return factories.make_experiment(
        "rounds",
        owner=team_of_file.owner,
        dataset=factories.make_dataset("places", 600),
        models=[factories.make_model("small", max_output_tokens=100)],
        adaptive={**RULE, "max": 256},
        max_usd=Decimal(50),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"by": "categories"}, "adaptive.by: "),
        ({"by": []}, "adaptive.by: "),
        ({"by": ["a", "a"]}, "adaptive: by names a parameter twice"),
        ({"targetci": 9}, "adaptive.targetci: "),
        ({"targetci": None}, "adaptive.targetci: "),
        ({"abortht": -1}, "adaptive.abortht: "),
        ({"targetciht": 0.1}, "adaptive: targetciht and backoffht come together"),
        ({"round": 64, "max": 32}, "adaptive: a round of 64 is above the maximum of 32 cases per point"),
        ({"target_ci": 0.1}, "adaptive.target_ci: unknown key; did you mean targetci?"),
        ({"correction": "none"}, "adaptive.correction: "),
        ({"minci": 2}, "adaptive.minci: the half-width of an accuracy is a share between 0 and 1, not 2"),
        ({"scorer": "rating", "targetci": -1}, "adaptive.targetci: "),
        (
            {"scorer": "rating", "correction": "excess_counts"},
            "adaptive: correction corrects an accuracy",
        ),
    ],
)
def test_the_error_of_an_invalid_rule_names_its_key(change, message):
    with pytest.raises(SpecError) as caught:
        read_spec(build_spec_content({**RULE, **change}))
    assert message in str(caught.value)


def test_half_widths_of_ratings_are_in_points_of_the_scale():
    spec = read_spec(build_spec_content({**RULE, "scorer": "rating", "targetci": 2.5, "minci": 1.5})).adaptive
    assert spec.rule(100).target(0) == 2.5


def test_omitted_adaptive_settings_have_defaults():
    spec = read_spec(build_spec_content(RULE)).adaptive
    assert (spec.round, spec.max, spec.confidence, spec.correction) == (32, 512, 0.95, "mapped")
    assert spec.rule(100).maximum == 100
    assert AdaptiveSpec.model_validate(spec.content) == spec


def test_an_adaptive_design_round_trips_through_a_file(draft, team):
    factories.make_model("m")
    factories.make_prompt("p")
    adaptive = {**RULE, "by": ["length", "depth"], "abortht": 0.5}
    experiment = create_experiment(
        read_spec({**build_spec_content(adaptive), "experiment": "from-file"}), by=team.owner, trusted=True
    )
    assert experiment.scorers == ["exact_match"]  # The deciding scorer also grades.
    reread = read_spec(spec_io.build_spec(experiment)).adaptive
    assert (reread.by, reread.abortht, reread.max) == (["length", "depth"], 0.5, 512)
    assert spec_io.duplicate(experiment, "copied", by=team.owner).adaptive == experiment.adaptive


def test_an_unknown_adaptive_scorer_is_refused(draft, team):
    factories.make_model("m")
    factories.make_prompt("p")
    with pytest.raises(SpecError, match=r"adaptive\.scorer: there is no scorer telepathy"):
        create_experiment(
            read_spec({**build_spec_content({**RULE, "scorer": "telepathy"}), "experiment": "x"}),
            by=team.owner,
            trusted=True,
        )


def test_a_design_lists_its_points_and_their_maximum_and_expected_cases(draft):
    design = Design.load(draft)
    assert [(point.label, point.items, point.guess) for point in design.points] == [("even", 300, 0), ("odd", 300, 0)]
    assert design.trials_per_cell == 512
    assert 0.2 < design.expected_share < 0.5


def test_the_ceiling_uses_the_maximum_cases_and_the_expected_cost_the_expected_cases(draft):
    forecast = estimate(draft)
    every_case = forecast.ceiling_usd / forecast.to_do
    assert (forecast.trials, forecast.to_do) == (512, 512)
    assert forecast.likely == round(512 * Design.load(draft).expected_share)
    assert forecast.expected_usd == forecast.likely * every_case


def test_the_estimate_excludes_unplanned_cases_of_decided_points(draft):
    run_control.launch(draft, by=draft.owner)
    assert estimate(draft).to_do == 512
    Point.objects.filter(key={"category": "odd"}).update(status="enough")
    # The odd point keeps its 32 planned cases; the even point can get 224 more.
    assert estimate(draft).to_do == 64 + 224


def test_a_pilot_of_an_adaptive_design_has_no_points(draft):
    assert estimate(draft, pilot=20).to_do == 20
    run_control.launch(draft, by=draft.owner, pilot=20)
    assert (Run.objects.get().n_pending, Point.objects.count()) == (20, 0)
    run_control.launch(draft, by=draft.owner)
    assert set(Point.objects.values_list("n_planned", flat=True)) == {32}


def test_adaptive_rounds_are_batched_if_experiment_and_endpoint_allow_it(draft):
    draft.batch = True
    Endpoint.objects.update(batch_api="openai")
    design = Design.load(draft)
    assert all(design.is_batched(cell) for cell in design.cells)
    draft.adaptive = {}
    design = Design.load(draft)
    assert all(design.is_batched(cell) for cell in design.cells)


def test_the_progress_page_counts_decided_points_and_has_no_button_to_launch_the_rest(client, draft):
    run_control.launch(draft, by=draft.owner)
    client.force_login(draft.owner)
    text = " ".join(client.get(reverse("experiment_progress", args=["rounds"])).content.decode().split())
    assert "0 <small>of 2</small>" in text
    Point.objects.update(status="enough")
    Run.objects.update(status="done")
    text = " ".join(client.get(reverse("experiment_progress", args=["rounds"])).content.decode().split())
    assert "2 <small>of 2</small>" in text
    assert "Launch the rest" not in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adaptive": {**RULE, "by": ["length"]}}, "adaptive.by: 600 items have no length in their metadata"),
        ({"dataset": [{"key": "a", "input": "?"}]}, "adaptive.by: 1 items have no category"),
    ],
)
def test_items_without_a_point_are_a_problem_of_the_design(draft, change, message):
    if "dataset" in change:
        draft.dataset = factories.make_dataset("bare", change["dataset"])
    draft.adaptive = change.get("adaptive", draft.adaptive)
    draft.save()
    assert message in Design.load(draft).find_problems()


def test_an_accuracy_scorer_is_refused_for_rated_items(draft):
    draft.dimensions.set([factories.make_dimension()])
    assert "adaptive.scorer: exact_match scores answers as right or wrong; choose rating for rated items" in (
        Design.load(draft).find_problems()
    )


@pytest.fixture
def rated_experiment(draft):
    draft.adaptive = {**RULE, "scorer": "rating", "targetci": 0.3, "max": 256}
    draft.scorers = ["rating"]
    draft.save()
    draft.dimensions.set([factories.make_dimension("valence"), factories.make_dimension("calm", low=0, high=100)])
    return draft


def test_a_design_with_ratings_has_a_point_per_dimension(rated_experiment):
    design = Design.load(rated_experiment)
    assert design.find_problems() == []
    assert [point.label for point in design.points] == ["even, valence", "odd, valence", "even, calm", "odd, calm"]
    assert design.trials_per_cell == 4 * 256
    # ±0.3 needs fewer cases on a scale of 7 points than on a scale of 100.
    soon, late = (point.compute_expected_cases(design.adaptive, 1) for point in (design.points[0], design.points[2]))
    assert 32 < soon < 200 < late <= 256
    run_control.launch(rated_experiment, by=rated_experiment.owner)
    assert estimate(rated_experiment).to_do == 4 * 256


def test_a_rating_rule_needs_a_dimension_and_a_target_narrower_than_its_scale(rated_experiment):
    rated_experiment.adaptive = {**rated_experiment.adaptive, "targetci": 3}
    assert (
        "adaptive.targetci: ±3 covers the whole scale of valence@1, 1 to 7; reduce it"
        in Design.load(rated_experiment).find_problems()
    )
    rated_experiment.dimensions.clear()
    problems = Design.load(rated_experiment).find_problems()
    assert any(problem.startswith("adaptive.scorer: rating needs dimensions") for problem in problems)


def test_the_design_page_shows_the_rule_of_ratings(client, rated_experiment):
    client.force_login(rated_experiment.owner)
    text = " ".join(client.get(reverse("experiment_detail", args=["rounds"])).content.decode().split())
    assert "until the 95 % interval of its mean rating, in points of the scale, is within ±0.3." in text
    assert "if every spread of ratings, up to a third of the scale, is equally likely" in text
    assert 'data-label="Scale"><div class="cell">0 to 100</div>' in text


def test_the_design_page_shows_points_rounds_and_expected_cases(client, draft):
    client.force_login(draft.owner)
    text = " ".join(client.get(reverse("experiment_detail", args=["rounds"])).content.decode().split())
    assert "Each point runs in rounds of 32 cases, up to 256 cases, until the 95 % interval" in text
    assert f"about {estimate(draft).likely}" in text
    assert 'data-label="Point"><div class="cell">even</div>' in text
    assert 'data-label="Chance level"><div class="cell">' in text


@pytest.fixture
def form(draft, client):
    client.force_login(draft.owner)
    page_form = client.get(reverse("experiment_edit", args=["rounds"])).context["form"]
    values = {name: page_form[name].value() for name in page_form.fields}
    values |= {f"adaptive-{name}": page_form.adaptive[name].value() for name in page_form.adaptive.fields}
    values["dataset"] = draft.dataset_id
    return {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != Decimal(0)
    }


def test_the_form_shows_and_saves_the_rule(client, draft, form):
    assert (form["adaptive-by"], form["adaptive-max"], form["adaptive-targetci"]) == ("category", 256, 0.09)
    form_data = {**form, "adaptive-by": "length, depth", "adaptive-abortht": "0.5"}
    assert client.post(reverse("experiment_edit", args=["rounds"]), form_data).status_code == 302
    saved = Experiment.objects.get()
    assert saved.adaptive["by"] == ["length", "depth"]
    assert (saved.adaptive["abortht"], saved.adaptive["max"]) == (0.5, 256)
    assert saved.scorers == ["exact_match"]


def test_a_form_without_a_rule_runs_every_case(client, draft, form):
    assert client.post(reverse("experiment_edit", args=["rounds"]), {**form, "adaptive-by": ""}).status_code == 302
    assert Experiment.objects.get().adaptive == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adaptive-targetci": ""}, "Target half-width: Fill in this field too."),
        ({"adaptive-targetci": "7"}, "Target half-width: the half-width of an accuracy is a share between 0 and 1"),
        ({"adaptive-targetci": "-1"}, "Target half-width: Must be between 0 and 1,000,000."),
        ({"adaptive-round": "600"}, "Points: a round of 600 is above the maximum of 256"),
    ],
)
def test_the_form_names_the_invalid_field(client, draft, form, change, message):
    answer = client.post(reverse("experiment_edit", args=["rounds"]), {**form, **change})
    assert answer.status_code == 200
    assert message in answer.content.decode()
    assert Experiment.objects.get().adaptive["max"] == 256

"""The results page says which model, prompt and sampler is ahead, each averaged over the other factors."""

import pytest
from django.core.cache import cache
from django.urls import reverse
from scipy import stats

from grading_app.grading.scoring import grade
from grading_app.models import BlindReading
from grading_app.results.leaderboard import BoardQuery, compute_leaderboard
from grading_app.statistics.paired import BOUNDED_INTERVAL
from tests import factories
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
ITEMS = 120
SKILL = {("large", "plain"): 102, ("large", "careful"): 108, ("small", "plain"): 60, ("small", "careful"): 54}


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def is_right(model, prompt, position):
    return (position * 7 + 3 * (prompt == "careful")) % ITEMS < SKILL[model, prompt]


def make_study(models=("large", "small"), prompts=("plain", "careful"), answer=None):
    experiment = factories.make_experiment(
        "crossed",
        dataset=factories.make_dataset(items=ITEMS),
        models=[factories.make_model(name) for name in models],
        prompts=[factories.make_prompt(name) for name in prompts],
        scorers=["numeric"],
    )

    def reply(model, prompt, item):
        return item.target if is_right(model, prompt, item.position) else "-1"

    answer = answer or reply
    for run in factories.make_runs(experiment, status="done"):
        names = run.condition.model.name, run.condition.prompt.name
        factories.plan_trials(run, answer=lambda item, *_, names=names: {"answer": answer(*names, item)})
    grade(experiment, by="test")
    return experiment


def find_leads(experiment, **options):
    return [found.lead for found in compute_leaderboard(BoardQuery(experiment, **options)).factor_leads["numeric"]]


def read_sentences(client, experiment):
    client.force_login(experiment.owner)
    page = client.get(reverse("experiment_results", args=[experiment.slug]))
    return [f"{one.subject}: {one.sentence} {one.basis}" for one in page.context["screen"].conclusions]


def test_each_factor_is_tested_over_item_means_as_scipy_does():
    model, prompt = find_leads(make_study())
    means = {
        factor: [
            [sum(is_right(*cell, item) for cell in SKILL if cell[at] == level) / 2 for item in range(ITEMS)]
            for level in levels
        ]
        for at, (factor, levels) in enumerate({"model": ("large", "small"), "prompt": ("plain", "careful")}.items())
    }
    result = stats.ttest_rel(*means["model"])
    change = model.pair.change
    assert change.mean == pytest.approx(sum(means["model"][0]) / ITEMS - sum(means["model"][1]) / ITEMS)
    assert model.p == pytest.approx(result.pvalue)
    assert (change.low, change.high) == pytest.approx(tuple(result.confidence_interval()))
    assert (model.verdict(0.05), model.levels, model.averaged, model.pair.items) == (1, 2, 2, ITEMS)
    assert (prompt.pair.change.mean, prompt.verdict(0.05)) == (0, 0)


def test_the_page_leads_with_the_models_although_two_conditions_of_one_model_do_not_differ(client):
    experiment = make_study()
    model, prompt = read_sentences(client, experiment)
    assert model.startswith(
        "Model: large scores 40.0 percentage points higher than small. 87.5 % against 47.5 %; 95 % "
    )
    assert "paired t, t(119) = " in model
    assert model.endswith(
        "On items like these: 120 items, each averaged over 2 conditions, 480 of 480 answers with a score."
    )
    assert prompt.startswith("Prompt: careful and plain have the same mean.")
    page = page_text(client.get(reverse("experiment_results", args=[experiment.slug])))
    assert page.index("large scores 40.0 percentage points higher than small.") < page.index(">Conditions</h2>")


def test_names_of_models_stay_hidden(client):
    experiment = make_study()
    BlindReading.start(experiment, experiment.owner)
    sentences = " ".join(read_sentences(client, experiment))
    assert sentences.startswith("Model: Model ")
    assert "large" not in sentences


def test_a_verdict_that_depends_on_refusals_says_so(client):
    def refuse_half(model, prompt, item):
        if model == "large":
            return item.target if item.position < ITEMS // 2 else "no idea"
        return item.target if item.position % 4 else "-1"

    experiment = make_study(answer=refuse_half)
    (model, _) = read_sentences(client, experiment)
    page = client.get(reverse("experiment_results", args=[experiment.slug]))
    assert not page.context["screen"].conclusions[0].is_certain
    assert "On items like these: 60 common items of 120, each averaged over 2 conditions, 360 of 480 answers" in model
    assert (
        "percentage points higher than small. This depends on answers without a score: if they count as wrong," in model
    )
    assert "small is significantly higher than large." in model


def test_three_levels_are_corrected_over_their_pairs():
    def answer(model, prompt, item):
        skill = {"a": 108, "b": 90, "c": 30}[model]
        return item.target if (item.position * 7) % ITEMS < skill else "-1"

    model, _ = find_leads(make_study(models=("a", "b", "c"), answer=answer))
    assert (model.levels, model.pairs) == (3, 3)
    assert model.pair.change.mean == pytest.approx(18 / ITEMS)
    assert model.pair.change.method == BOUNDED_INTERVAL
    # By sign flips of the 18 items that differ. It is the largest p of the three, which Holm's correction keeps.
    assert model.p == pytest.approx(2 / 2**18)


def test_a_design_with_one_factor_has_one_conclusion(client):
    (model,) = read_sentences(client, make_study(prompts=("plain",)))
    assert model.startswith("Model: large scores 35.0 percentage points higher than small.")
    assert "averaged" not in model


def test_a_single_condition_has_its_mean_and_interval(client):
    (only,) = read_sentences(client, make_study(models=("large",), prompts=("plain",)))
    assert only.startswith("Number within tolerance: large scores 85.0 %. 95 % interval ")
    assert only.endswith("On items like these: 120 items, 120 of 120 answers with a score.")


def test_pairs_that_are_not_tested_are_not_called_insignificant(client, monkeypatch):
    monkeypatch.setattr("grading_app.statistics.fixed_items.MAX_PAIRS", 2)
    model, _ = read_sentences(
        client, make_study(models=("a", "b", "c"), answer=lambda model, _, item: {"a": item.target}.get(model, "-1"))
    )
    assert "not tested: 3 pairs are too many here; Analysis tests the factor." in model
    assert f"pp ({BOUNDED_INTERVAL});" in model
    assert "reliable" not in model

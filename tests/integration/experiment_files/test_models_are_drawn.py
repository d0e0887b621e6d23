"""`models: {draw: ...}` in an experiment file: drawn models, their strata, and the pinned draw."""

import json
from decimal import Decimal

import pytest
import yaml
from django.db import IntegrityError, transaction

from grading_app.grading.judging.grader_specs import create_experiment
from runs_app import run_control
from runs_app.experiment_files.spec_reader import SpecError, read_spec, read_yaml
from runs_app.models import Experiment, LanguageModel
from runs_app.planning.spec_io import build_spec, duplicate, to_yaml
from tests.factories import make_endpoint
from tests.factories.drafts import (
    get_or_make_user,
    make_draft_experiment,
    make_question_prompt,
    make_questions,
    make_rehearsal_model,
)

pytestmark = pytest.mark.django_db
PRICES = {"tiny": "0.1", "small": "0.2", "medium": "1", "large": "3", "huge": "15"}


@pytest.fixture
def ada():
    return get_or_make_user("ada", superuser=True)


@pytest.fixture
def make_site(ada):
    make_questions(slug="questions")
    make_question_prompt()
    for name, price in PRICES.items():
        make_rehearsal_model(name, input_price=Decimal(price), output_price=Decimal(price), price_date="2026-02-01")


def build_content(**models):
    return {"experiment": "drawn", "dataset": "questions@1", "prompts": ["plain"], "models": models}


def create(owner, name="drawn", **models):
    return create_experiment(read_spec(build_content(**models) | {"experiment": name}), by=owner)


def list_names(experiment):
    return sorted(experiment.language_models.values_list("name", flat=True))


def test_models_are_drawn_from_price_bands_and_the_draw_is_stored(make_site, ada):
    experiment = create(ada, draw=3, seed=7)
    draw = experiment.draws["models"]
    assert list_names(experiment) == sorted(draw["drawn"])
    assert [(one["name"], [each["name"] for each in one["candidates"]]) for one in draw["strata"]] == [
        ("band 1: $0.2 to $0.4", ["small", "tiny"][::-1]),
        ("band 2: $2 to $6", ["medium", "large"]),
        ("band 3: $30", ["huge"]),
    ]
    assert (draw["draw"], draw["seed"], draw["by"], draw["from"]) == (3, 7, "price", [])
    assert {"name": "huge", "input_price": "15", "price_date": "2026-02-01", "price_source": "test"}.items() <= draw[
        "strata"
    ][2]["candidates"][0].items()


def test_the_same_seed_draws_the_same_models_and_other_seeds_draw_others(make_site, ada):
    drawn_names = [
        list_names(create(ada, f"d{seed}-{at}", draw=2, seed=seed, by="none")) for at in (1, 2) for seed in range(6)
    ]
    assert drawn_names[:6] == drawn_names[6:]
    assert len({tuple(one) for one in drawn_names}) > 1


def test_changed_prices_and_new_models_do_not_change_the_exported_file(make_site, ada):
    experiment = create(ada, draw=2)
    before = to_yaml(experiment)
    LanguageModel.objects.update(input_price=Decimal(99), is_active=False)
    make_rehearsal_model("newcomer")
    copy = create_experiment(read_yaml(before.replace("experiment: drawn", "experiment: again")), by=ada)
    assert to_yaml(experiment) == before
    assert build_spec(copy) == build_spec(experiment) | {"experiment": "again"}
    assert duplicate(experiment, "copy", by=ada).draws == experiment.draws
    assert copy.draws == Experiment.objects.get(slug="drawn").draws == experiment.draws


def test_a_draw_that_does_not_match_its_seed_is_refused(make_site, ada):
    content = yaml.safe_load(to_yaml(create(ada, draw=1, by="none")))
    draw = content["drawn"]["models"]
    draw["drawn"] = [next(name for name in PRICES if name not in draw["drawn"])]
    with pytest.raises(SpecError, match=r"drawn\.models: this is not what the seed 42 draws from these candidates"):
        read_spec(content)


def test_inactive_models_and_models_of_inactive_endpoints_are_not_candidates(make_site, ada):
    LanguageModel.objects.filter(name="tiny").update(is_active=False)
    make_rehearsal_model("asleep", endpoint=make_endpoint("closed", is_active=False))
    draw = create(ada, draw=1, by="none").draws["models"]
    considered = {one["name"] for stratum in draw["strata"] for one in stratum["candidates"]}
    assert considered == set(PRICES) - {"tiny"}


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ({"draw": 9}, "models.draw: cannot draw 9 of 5 models; draw fewer, or from more"),
        ({"draw": 1, "from": ["nobody"]}, "models.from[0]: no active model has the name nobody"),
        ({"draw": 1, "sead": 3}, "models.sead: unknown key; did you mean seed?"),
        ({"draw": 1, "by": "prise"}, "models.by: input should be 'price', 'provider', 'family' or 'none'"),
        ({"seed": 1}, "models.draw: field required"),
    ],
)
def test_an_invalid_draw_is_refused_with_its_key_and_creates_nothing(make_site, ada, models, problem):
    with pytest.raises(SpecError) as caught:
        create(ada, **models)
    assert caught.value.problems == [problem]
    assert not Experiment.objects.exists()


def test_a_candidate_without_a_price_is_refused_by_name(make_site, ada):
    make_rehearsal_model("mystery", input_price=None)
    with pytest.raises(SpecError, match=r"models.by: the price is unknown of mystery; .*price:known"):
        create(ada, draw=2)
    assert "mystery" not in list_names(create(ada, draw=2, **{"from": ["price:known"]}))


def test_a_launch_records_the_draw_in_the_manifest_and_pins_it(make_site, ada):
    experiment = create(ada, draw=2)
    run_control.launch(experiment, by=ada)
    assert experiment.manifests.get().content["design"]["drawn"] == experiment.draws
    with pytest.raises(IntegrityError, match="draws of experiment drawn are pinned"), transaction.atomic():
        Experiment.objects.filter(pk=experiment.pk).update(draws={})
    Experiment.objects.filter(pk=experiment.pk).update(title="Another title")


def test_the_design_page_shows_candidates_strata_and_manual_changes(make_site, ada, client):
    experiment = create(ada, draw=2)
    drawn_names = experiment.draws["models"]["drawn"]
    other = next(name for name in PRICES if name not in drawn_names)
    experiment.language_models.set(LanguageModel.objects.filter(name__in=[drawn_names[0], other]))
    client.force_login(ada)
    page = client.get(experiment.get_absolute_url())
    [draws] = page.context["draws"]
    assert [line.candidate.name for line in draws.lines if line.is_drawn] == [
        name for name in ("tiny", "small", "medium", "large", "huge") if name in drawn_names
    ]
    assert (draws.added, draws.left_out) == ([other], [drawn_names[1]])
    assert "band 1: $0.2 to $2" in page.content.decode()


def test_a_design_without_a_draw_shows_no_draw(ada, client):
    experiment = make_draft_experiment(owner=ada)
    client.force_login(ada)
    assert 'id="draws"' not in client.get(experiment.get_absolute_url()).content.decode()
    assert "drawn" not in json.dumps(build_spec(experiment))

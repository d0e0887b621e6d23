import pytest

from evalsite.lib.history import StatusChange
from grading_app.grading.judging.grader_specs import create_experiment
from runs_app.experiment_files.spec_reader import SpecError, read_spec, read_yaml
from runs_app.llm.parameters import EXTRA_NAMES
from runs_app.models import Dimension, Experiment, LanguageModel, Prompt, Sampler
from runs_app.planning.spec_io import build_spec, duplicate, to_yaml
from tests.factories.drafts import make_question_prompt, make_questions, make_rehearsal_model

pytestmark = pytest.mark.django_db
AXES = ("language_models", "prompts", "samplers", "dimensions")


def build_content(**changes):
    return {
        "experiment": "pilot",
        "dataset": "questions@1",
        "models": [{"name": "sim", "endpoint": "rehearsal", "model": "sim"}],
        "prompts": [{"name": "plain", "user": "{{input}}"}],
    } | changes


def create(by, *, trusted=False, **changes):
    return create_experiment(read_spec(build_content(**changes)), by=by, trusted=trusted)


def create_refused(by, **changes):
    before = {kind: kind.objects.count() for kind in (Experiment, LanguageModel, Prompt, Sampler, Dimension)}
    with pytest.raises(SpecError) as caught:
        create(by, **changes)
    assert {kind: kind.objects.count() for kind in before} == before
    return caught.value.problems


def list_keys(experiment):
    return {axis: set(getattr(experiment, axis).values_list("pk", flat=True)) for axis in AXES}


def test_shipped_files_create_experiments(lab, curator, sample_file):
    experiment = create_experiment(read_yaml(sample_file), by=curator)
    assert (experiment.status, experiment.owner) == ("draft", curator)
    assert set(experiment.language_models.values_list("name", flat=True)) == {"sim-large", "sim-small"}
    assert experiment.prompts.exclude(status="approved").count() == 0
    assert experiment.max_usd == 2


def test_all_settings_of_a_file_are_stored(lab, curator):
    experiment = create(
        curator,
        samples=4,
        cache=False,
        cache_buster=True,
        sequential=True,
        shuffle=7,
        max_concurrency=7,
        request_timeout_s=12.5,
        max_attempts=2,
        backoff_s=0.5,
        max_backoff_s=20,
        lease_s=30,
        stop_failure_rate=0.5,
        stop_after_attempts=9,
        budget={"max_usd": 5, "confirm_above_usd": 0.1},
        grade={"scorers": ["exact_match"]},
    )
    experiment.refresh_from_db()
    assert (experiment.samples, experiment.cache, experiment.cache_buster, experiment.sequential) == (
        4,
        False,
        True,
        True,
    )
    assert (experiment.max_concurrency, experiment.request_timeout_s, experiment.max_attempts) == (7, 12.5, 2)
    assert experiment.shuffle == 7
    assert (experiment.backoff_s, experiment.max_backoff_s) == (0.5, 20)
    assert (experiment.lease_s, experiment.stop_failure_rate, experiment.stop_after_attempts) == (30, 0.5, 9)
    assert (str(experiment.max_usd), str(experiment.confirm_above_usd)) == ("5.0000", "0.1000")
    assert experiment.scorers == ["exact_match"]


def test_an_exported_file_refers_to_the_same_rows_when_imported(lab, curator, sample_file):
    first = create_experiment(read_yaml(sample_file), by=curator)
    second_spec = read_yaml(to_yaml(first)).model_copy(update={"experiment": "again"})
    second = create_experiment(second_spec, by=curator)
    assert list_keys(second) == list_keys(first)
    assert build_spec(second) == build_spec(first) | {"experiment": "again"}


def test_an_existing_name_with_the_same_content_reuses_the_row(lab, curator):
    first, second = create(curator), create(curator, experiment="second")
    assert list_keys(first) == list_keys(second)


@pytest.mark.parametrize(
    ("axis", "one", "other"),
    [
        ("prompts", {"name": "plain", "user": "{{input}}"}, {"name": "plain", "user": "{{input}}?"}),
        ("samplers", {"name": "greedy", "temperature": 0}, {"name": "greedy", "temperature": 0.5}),
        ("dimensions", {"name": "joy", "instructions": "a"}, {"name": "joy", "instructions": "b"}),
    ],
)
def test_an_existing_name_with_other_content_creates_a_new_version(lab, curator, axis, one, other):
    create(curator, **{axis: [one]})
    second = create(curator, experiment="second", **{axis: [other]})
    assert [row.version for row in getattr(second, axis).all()] == [2]


def test_an_existing_model_name_with_another_model_is_an_error(lab, curator):
    make_rehearsal_model("sim", model="something-else")
    problem = "models[0]: model sim is something-else at rehearsal on this site; use another name"
    assert create_refused(curator) == [problem]


def test_names_refer_to_rows_and_versions(lab, curator):
    model = make_rehearsal_model("known")
    old, new = (
        make_question_prompt("known"),
        make_question_prompt("known", [{"role": "user", "content": "{{key}}"}], version=2),
    )
    assert create(curator, experiment="a", models=["known"], prompts=["known"]).prompts.get() == new
    second = create(curator, experiment="b", models=["known"], prompts=["known@1"])
    assert (second.prompts.get(), second.language_models.get()) == (old, model)


def test_unknown_names_are_reported_with_their_paths(lab, curator):
    assert create_refused(
        curator, dataset="nothing@3", models=["sonnet"], prompts=["p@9"], samplers=["s"], dimensions=["d"]
    ) == [
        "models[0]: there is no language model sonnet",
        "prompts[0]: there is no prompt p@9",
        "samplers[0]: there is no sampler s",
        "dimensions[0]: there is no dimension d",
        "dataset: there is no dataset nothing@3",
    ]


def test_a_draft_dataset_is_refused(lab, curator):
    make_questions(1, slug="raw", approve=False)
    assert create_refused(curator, dataset="raw@1") == ["dataset: raw@1 is draft; it must be approved"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"samples": 0}, "samples: must be between 1 and 10,000"),
        (
            {"samplers": [{"name": "hot", "temperature": 3}]},
            "samplers[0].temperature: must be between 0 and 2",
        ),
        (
            {"samplers": [{"name": "s", "extra": {"api_key": "x"}}]},
            f"samplers[0].extra: Cannot be set: api_key. Allowed are {', '.join(EXTRA_NAMES)}.",
        ),
        (
            {"prompts": [{"name": "leak", "user": "{{target}}"}]},
            "prompts[0].messages: Turn 1: {{target}} would show the model the right answer.",
        ),
        (
            {"dimensions": [{"name": "d", "instructions": "x", "min": 5, "max": 1}]},
            "dimensions[0].max: The end of the scale must be above its start.",
        ),
        (
            {"dimensions": [{"name": "d", "instructions": "x", "labels": {9: "far"}}]},
            "dimensions[0].labels: These points are not on the scale: 9.",
        ),
        (
            {"models": [{"name": "m", "endpoint": "nowhere", "model": "x"}]},
            "models[0].endpoint: there is no endpoint nowhere; ask an operator to create it",
        ),
        ({"prompts": [{"name": "plain", "user": "{{input}}"}] * 2}, "prompts[1]: plain@1 is named twice"),
    ],
)
def test_an_invalid_value_is_refused_with_its_key(lab, curator, changes, problem):
    assert create_refused(curator, **changes) == [problem]


def test_an_unknown_scorer_is_refused(lab, curator):
    assert create_refused(curator, grade={"scorers": ["exact"]})[0].startswith(
        "grade.scorers[0]: there is no scorer exact; "
    )


def test_an_existing_experiment_name_is_refused(lab, curator):
    create(curator)
    assert create_refused(curator) == ["experiment: This name is not available. Choose another name."]


def test_the_provider_default_sampler_is_created_on_demand(lab, curator):
    sampler = create(curator).samplers.get()
    assert (str(sampler), sampler.content) == ("provider-default@1", {})
    assert create(curator, experiment="second").samplers.get() == sampler


def test_a_prompt_by_a_curator_is_approved_and_a_prompt_by_a_researcher_serves_its_own_study(lab, curator, researcher):
    make_rehearsal_model("sim")
    waiting = create(researcher, models=["sim"]).prompts.get()
    ready = create(
        curator, experiment="b", models=["sim"], prompts=[{"name": "other", "user": "{{key}}"}]
    ).prompts.get()
    assert (waiting.status, ready.status) == ("imported", "approved")
    assert StatusChange.objects.for_row(ready).get().reason == "Made for an experiment"


def test_a_researcher_cannot_add_a_model(lab, researcher):
    problem = "models[0]: you may not add a language model; use the name of an existing one"
    assert create_refused(researcher) == [problem]


def test_a_trusted_caller_needs_no_permission(lab, researcher):
    assert create(researcher, trusted=True).prompts.get().status == "approved"


def test_a_duplicate_is_a_draft_of_the_same_design(lab, curator, researcher, sample_file):
    first = create_experiment(read_yaml(sample_file), by=curator)
    Experiment.objects.filter(pk=first.pk).update(status="active", spent_usd=1)
    copy = duplicate(first, "copy", by=researcher)
    copy.refresh_from_db()
    assert (copy.status, copy.owner, copy.spent_usd, copy.sharing) == ("draft", researcher, 0, "private")
    assert build_spec(copy) == build_spec(first) | {"experiment": "copy"}


def test_a_duplicate_needs_a_free_name(lab, curator):
    with pytest.raises(SpecError, match="not available"):
        duplicate(create(curator), "pilot", by=curator)

"""Run configurations of OASIS-LLM, imported as designs."""

import pytest
from django.core.management import call_command

from runs_app.models import Experiment, Trial
from runs_app.planning.plan import plan
from tests import factories
from tests.integration.study_import.import_command import import_refused_study

pytestmark = pytest.mark.django_db
RUN = """
name: gemma pilot
provider: openrouter
model: openrouter/google/gemma
image_set: pilot_30
samples_per_image: 3
temperature: 0.7
max_tokens: 300
max_retries: 2
capture_reasoning: false
system_prompt_override: Rate as you feel.
format_hint_suffix: Answer with one number.
extra_params: {top_k: 5}
max_permanent_failure_rate: 0.1
permanent_failure_warmup: 40
retry_backoff_coef: 2
colour: blue
"""


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


@pytest.fixture(autouse=True)
def site():
    items = [{"key": f"picture-{n}", "input": f"picture {n}"} for n in range(2)]
    factories.make_dataset("pilot_30", items)
    return factories.make_endpoint("openrouter")


@pytest.fixture
def file(tmp_path):
    def write(text=RUN):
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return path

    return write


def test_a_run_config_becomes_a_draft_with_its_settings(file, capsys):
    call_command("import_study", str(file()))
    experiment = Experiment.objects.get()
    assert (experiment.slug, experiment.status, experiment.dataset.slug, experiment.imported_from) == (
        "gemma-pilot",
        "draft",
        "pilot_30",
        "",
    )
    assert (
        experiment.samples,
        experiment.max_attempts,
        experiment.stop_failure_rate,
        experiment.stop_after_attempts,
    ) == (3, 3, 0.1, 40)
    model, prompt, sampler = experiment.language_models.get(), experiment.prompts.get(), experiment.samplers.get()
    assert (model.name, model.model, model.endpoint.name) == ("gemma", "google/gemma", "openrouter")
    assert (sampler.temperature, sampler.max_tokens, sampler.extra) == (0.7, 300, {"top_k": 5})
    assert prompt.answer_format == "rating"
    assert prompt.messages[0] == {"role": "system", "content": "Rate as you feel."}
    assert "{{image}}" in prompt.messages[1]["content"]
    assert prompt.messages[1]["content"].endswith("Answer with one number.")
    assert sorted(experiment.dimensions.values_list("name", "scale_min", "scale_max")) == [
        ("arousal", 1, 7),
        ("valence", 1, 7),
    ]
    output = capsys.readouterr().out
    assert "retry_backoff_coef is not taken" in output
    assert "Unknown keys are not taken: colour" in output
    assert "is not in the file" not in output


def test_missing_settings_have_the_tools_defaults(file, capsys):
    call_command("import_study", str(file("name: a\nprovider: openrouter\nmodel: m\nmodality: text\n")))
    experiment = Experiment.objects.get()
    assert (experiment.samples, experiment.max_concurrency, experiment.request_timeout_s, experiment.max_attempts) == (
        5,
        4,
        60.0,
        4,
    )
    assert experiment.cache_buster
    assert experiment.prompts.get().answer_format == "rating_with_reasoning"
    assert "The tool's own prompt is not in the file" in capsys.readouterr().out


def test_a_draft_of_a_config_can_be_planned(file, owner):
    call_command("import_study", str(file("name: a\nprovider: openrouter\nmodel: m\nmodality: text\n")))
    experiment = Experiment.objects.get()
    experiment.prompts.get().approve(by=owner, reason="Read")
    plan(experiment, by=owner)
    assert Trial.objects.count() == 2 * 2 * 5


def test_an_experiment_file_with_several_configs_becomes_one_design(file):
    configs = "\n".join(
        f"  - {{config_name: {model}, provider: openrouter, model: {model}, temperature: 0}}" for model in ("a", "b")
    )
    path = file(f"name: two\ndataset: pilot_30\ndescription: Both\nconfigs:\n{configs}\n")
    call_command("import_study", str(path), "--name", "both")
    experiment = Experiment.objects.get()
    assert (experiment.slug, experiment.description) == ("both", "Both")
    assert sorted(experiment.language_models.values_list("name", flat=True)) == ["a", "b"]
    assert (experiment.samplers.count(), experiment.prompts.count()) == (1, 1)


def test_configs_that_do_not_form_a_full_crossing_are_refused(file):
    pairs = (("a", 0), ("b", 1))
    rows = [f"{{provider: openrouter, model: {model}, temperature: {heat}}}" for model, heat in pairs]
    path = file("name: two\ndataset: pilot_30\nconfigs: [" + ", ".join(rows) + "]\n")
    assert "not every model with every prompt and sampler" in import_refused_study(path)


def test_a_dry_run_creates_nothing(file, capsys):
    call_command("import_study", str(file()), "--dry-run")
    assert "gemma-pilot: would be created as a draft" in capsys.readouterr().out
    assert not Experiment.objects.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("dimensions: [joy]", "run.yaml: dimensions must be a list of valence, arousal"),
        ("modality: sound", "run.yaml: modality is 'sound', not vision or text"),
        ("max_retries: many", "run.yaml: max_retries is 'many', not a whole number"),
        ("temperature: 9", "temperature: must be between 0 and 2"),
        ("temperature: .nan", "run.yaml: temperature contains nan, which is not a JSON number"),
        ("samples_per_image: many", "samples"),
        ("provider: nowhere", "there is no endpoint nowhere"),
        ("image_set: other", "there is no dataset other"),
        ("model: &m [*m]", "run.yaml: this is not YAML"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(file, change, message):
    key = change.partition(":")[0]
    lines = [line for line in RUN.splitlines() if not line.startswith(f"{key}:")]
    assert message in import_refused_study(file("\n".join([*lines, change]) + "\n"))


def test_options_select_the_dataset_and_the_endpoint(file):
    factories.make_dataset("other", [{"key": "a", "input": "a"}])
    factories.make_endpoint("gateway")
    call_command("import_study", str(file()), "--dataset", "other@1", "--endpoint", "gateway")
    experiment = Experiment.objects.get()
    assert (experiment.dataset.slug, experiment.language_models.get().endpoint.name) == ("other", "gateway")

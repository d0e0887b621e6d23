"""Configurations of itemeval studies: imported as drafts and as the design of imported results."""

import shutil
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command

from grading_app.models import Grader
from grading_app.study_import.formats.itemeval_config import BUILTIN_TEMPLATES, PROMPTS, RUBRICS, PromptTemplate
from runs_app.models import Experiment, Trial
from runs_app.planning.plan import plan
from tests import factories
from tests.integration.study_import.import_command import import_refused_study, import_study

pytestmark = pytest.mark.django_db
FOLDER = Path(__file__).parent / "itemeval"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


@pytest.fixture
def site():
    items = [{"key": f"p{n}", "input": f"What is {n} + {n}?", "target": str(2 * n)} for n in range(3)]
    factories.make_dataset("sums", items)
    return factories.make_endpoint("mockllm")


@pytest.fixture
def folder(tmp_path):
    """Return a study folder without results: its configuration and its prompt."""
    project = tmp_path / "project"
    project.mkdir()
    shutil.copytree(FOLDER / "prompts", project / "prompts")
    shutil.copy(FOLDER / "config.yaml", project)
    return project


def rewrite_config(folder, **sections):
    """Rewrite the configuration with other keys in its sections."""
    content = yaml.safe_load((folder / "config.yaml").read_text())
    for name, values in sections.items():
        content[name] = content.get(name, {}) | values if isinstance(values, dict) else values
    (folder / "config.yaml").write_text(yaml.safe_dump(content))


def test_a_folder_without_solutions_becomes_a_draft_with_its_design(site, folder, capsys):
    experiment = import_study(folder)
    assert (experiment.slug, experiment.status, experiment.dataset.slug, experiment.imported_from) == (
        "sums",
        "draft",
        "sums",
        "",
    )
    assert (experiment.samples, experiment.on_empty, experiment.batch, experiment.budget_policy) == (
        2,
        "skip",
        False,
        "full",
    )
    models = experiment.language_models.order_by("name").values_list("name", "model", "endpoint__name")
    assert list(models) == [("solver-a", "solver-a", "mockllm"), ("solver-b", "solver-b", "mockllm")]
    prompts = {row.name: [turn["content"] for turn in row.messages] for row in experiment.prompts.all()}
    assert prompts["itemeval-short-b034baff0c5b"] == ["Answer with a number alone.\n\n{{input}}\n"]
    assert prompts["itemeval-builtin-minimal-13fd87721413"][0].startswith("Solve the following problem.")
    sampler = experiment.samplers.get()
    assert (sampler.name, sampler.temperature, sampler.max_tokens) == ("itemeval-default", 0.7, 1024)
    assert (experiment.scorers, experiment.graders) == (["numeric"], ["mock_judge"])
    judge = Grader.objects.get()
    assert (judge.language_model.model, judge.sampler.temperature, judge.sampler.max_tokens) == ("judge", 0, 512)
    assert "{{answer}}" in judge.rubric.messages[0]["content"]
    assert "{solution}" not in judge.rubric.messages[0]["content"].replace("{{", "")
    assert not Trial.objects.exists()
    output = capsys.readouterr().out
    assert "sums: created as a draft, from a design of itemeval" in output
    assert "The file names the dataset lab/sums, split train." in output
    assert "The tool gives judges no scale" in output


def test_the_draft_can_be_planned(site, folder, owner):
    experiment = import_study(folder)
    for prompt in experiment.prompts.all():
        prompt.approve(by=owner, reason="Read")
    plan(experiment, by=owner)
    assert Trial.objects.count() == 2 * 2 * 3 * 2, "models, prompts, items, repetitions"


def test_packaged_templates_have_the_same_hashes_as_in_the_tool():
    digests = {key: PromptTemplate("", text).digest for key, text in BUILTIN_TEMPLATES.items()}
    assert digests == {
        (PROMPTS, "minimal"): "13fd87721413",
        (PROMPTS, "standard"): "26baad18b012",
        (RUBRICS, "standard"): "3acd1566de95",
    }


def test_configuration_settings_become_samplers_turns_and_limits(site, folder):
    rewrite_config(
        folder,
        solvers={
            "models": ["openrouter/lab/small"], "split_prompt": True, "on_empty": "grade", "seed": 3,
            "provider_routing": {"order": ["lab"]},
        },
        facets={"prompt": ["short"], "grader": [], "scorer": "exact_match", "model_config": [
            {"name": "plain"}, {"name": "long", "max_tokens": 9000, "reasoning_tokens": 4000, "temperature": 1.0},
        ]},
        budget={"policy": "dev", "max_usd": 2.5, "dev_items": 3, "dev_replications": 1, "batch": True},
    )  # fmt: skip
    experiment = import_study(folder, "--endpoint", "mockllm", "--name", "tuned")
    assert experiment.language_models.get().model == "lab/small"
    assert [turn["role"] for turn in experiment.prompts.get().messages] == ["system", "user"]
    samplers = {row.name: (row.temperature, row.max_tokens, row.seed, row.extra) for row in experiment.samplers.all()}
    route = {"provider": {"order": ["lab"]}}
    assert samplers == {
        "itemeval-plain": (0.7, 1024, 3, route),
        "itemeval-long": (1.0, 9000, 3, route | {"reasoning": {"max_tokens": 4000}}),
    }
    assert (experiment.slug, experiment.on_empty, experiment.batch, experiment.budget_policy) == (
        "tuned",
        "keep",
        True,
        "dev",
    )
    assert (experiment.max_usd, experiment.confirm_above_usd, experiment.dev_items, experiment.dev_samples) == (
        2.5,
        5,
        3,
        1,
    )
    assert (experiment.scorers, experiment.graders) == (["exact_match"], [])


def test_keys_without_an_equivalent_are_reported(site, folder, capsys):
    rewrite_config(
        folder,
        solvers={"cache_prompt": "on", "provider_routing": {"order": ["lab"]}, "colour": "blue"},
        facets={"model_config": [{"name": "default", "reasoning_tokens": 100}]},
        budget={"pricing_path": "prices.json", "batch": 50, "cache_schedule": "off"},
    )
    import_study(folder)
    output = capsys.readouterr().out
    for key in ("solvers.cache_prompt", "solvers.provider_routing", "reasoning_tokens", "budget.pricing_path",
                "budget.batch", "budget.cache_schedule"):  # fmt: skip
        assert f"{key} is not taken: " in output
    assert "Unknown keys are not taken: solvers.colour." in output


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"solvers": {"models": []}}, "config.yaml: solvers.models: list should have at least 1 item"),
        ({"facets": {"replications": 0}}, "config.yaml: facets.replications: input should be greater than or equal"),
        ({"facets": {"scorer": "fuzzy"}}, "config.yaml: facets.scorer: input should be"),
        ({"facets": {"prompt": ["lost"]}}, "config.yaml: the prompt lost is not in prompts/solver: add its file"),
        ({"facets": {"prompt": ["../../secret"]}}, "config.yaml: the prompt ../../secret is not in prompts/solver"),
        ({"facets": {"rubric": ["strict"]}}, "config.yaml: the rubric strict is not in rubrics: add its file"),
        ({"facets": {"grader": ["nobody"]}}, "config.yaml: facets.grader: nobody is not under graders, and no model"),
        ({"solvers": {"temperature": 9}}, "temperature"),
        ({"benchmark": {"datasets": [{"id": "lab/others"}]}}, "there is no dataset others"),
        ({"solvers": {"models": ["nowhere/m"]}}, "there is no endpoint nowhere"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(site, folder, sections, message):
    (folder.parent / "secret.md").write_text("{input}")
    rewrite_config(folder, **sections)
    assert message in import_refused_study(folder)


def test_a_dry_run_of_a_design_creates_nothing(site, folder, capsys):
    call_command("import_study", str(folder), "--dry-run")
    assert "sums: would be created as a draft" in capsys.readouterr().out
    assert not Experiment.objects.exists()


def test_imported_results_have_the_design_of_the_configuration(tmp_path, capsys):
    folder = Path(shutil.copytree(FOLDER, tmp_path / "project"))
    models = [f"mockllm/solver-{name}" for name in "abc"]
    rewrite_config(folder, solvers={"models": models, "on_empty": "rerun"}, facets={"replications": 5})
    experiment = import_study(folder)
    assert (experiment.samples, experiment.on_empty, experiment.scorers, experiment.imported_from) == (
        5,
        "rerun",
        ["numeric"],
        "itemeval",
    )
    rows = experiment.language_models.order_by("model").values_list("model", "is_active")
    assert list(rows) == [(model, False) for model in models]
    assert (experiment.answer_conditions.count(), experiment.prompts.count(), experiment.samplers.count()) == (
        4,
        2,
        1,
    )
    output = capsys.readouterr().out
    assert "the experiment has its design: 3 models, 2 prompts, 1 sampler, 5 repetitions, scorer numeric" in output
    assert "2 conditions of the design have no solutions yet: mockllm/solver-c, short, default;" in output
    assert "The judges of the design cannot judge here, their scores are taken: mock_judge." in output
    assert "hold a placeholder" not in output, "the packaged prompt has the hash of the store"


def test_results_without_a_configuration_have_the_design_of_their_manifest(tmp_path, capsys):
    folder = Path(shutil.copytree(FOLDER, tmp_path / "project"))
    (folder / "config.yaml").unlink()
    assert import_study(folder).scorers == ["numeric"]
    assert "manifests: the experiment has its design: 2 models" in capsys.readouterr().out

"""A design of another tool serves its own draft, whoever imports it: nobody on this site has read its texts."""

import shutil
from pathlib import Path

import pytest
from django.core.management import call_command
from django.urls import reverse

from grading_app.models import Rubric
from runs_app.models import Dimension, Experiment, Prompt, Sampler
from runs_app.planning.design import Design
from tests import factories
from tests.factories.files import build_upload
from tests.integration.dataset_pages.conftest import run_task_now

pytestmark = pytest.mark.django_db
ITEMEVAL = Path(__file__).parent / "itemeval"
RUN = "name: affect\nprovider: openrouter\nmodel: m\nimage_set: pilot\ntemperature: 0.7\n"


@pytest.fixture(autouse=True)
def owner(client, monkeypatch):
    """A superuser, who may approve everything, and a worker that runs each task as soon as it is enqueued."""
    monkeypatch.setattr("django_q.tasks.async_task", run_task_now)
    user = factories.make_user("boss", superuser=True)
    client.force_login(user)
    return user


@pytest.fixture
def files(tmp_path):
    """Return the files of a design by tool. The site has their dataset and endpoints, and the names of a design."""
    for dataset in ("pilot", "sums"):
        factories.make_dataset(dataset)
    for endpoint in ("openrouter", "mockllm"):
        factories.make_endpoint(endpoint)
    factories.make_dimension("valence")
    factories.make_sampler("itemeval-default", temperature=1.5)
    run, study = tmp_path / "run.yaml", tmp_path / "study"
    run.write_text(RUN)
    study.mkdir()
    shutil.copytree(ITEMEVAL / "prompts", study / "prompts")
    shutil.copy(ITEMEVAL / "config.yaml", study)
    return {"OASIS-LLM": run, "itemeval": study}


def import_by_command(path, client):
    call_command("import_study", str(path))


def import_on_the_page(path, client):
    if path.is_dir():
        path = Path(shutil.make_archive(str(path), "zip", path))
    upload = build_upload(path.read_bytes(), path.name)
    address = client.post(reverse("study_import_new"), {"study": [upload], "upload": ""}).url
    client.get(address)
    client.post(address, {"import": "1"})


def list_definitions():
    """Return the row that each bare name means, by kind and name."""
    return {
        (kind.__name__, name): kind.objects.named(name).values_list("pk", flat=True).first()
        for kind in (Prompt, Sampler, Dimension, Rubric)
        for name in kind.objects.values_list("name", flat=True).distinct()
    }


@pytest.mark.parametrize("import_design", [import_by_command, import_on_the_page])
@pytest.mark.parametrize("tool", ["OASIS-LLM", "itemeval"])
def test_no_definition_is_approved_and_no_bare_name_means_another_row(files, client, owner, tool, import_design):
    before = list_definitions()
    import_design(files[tool], client)
    experiment = Experiment.objects.get()
    after = list_definitions()
    assert after.keys() > before.keys()
    assert {key: after[key] for key in before} == before
    assert {key: row for key, row in after.items() if row is not None} == before
    prompts = list(experiment.prompts.all())
    assert {prompt.status for prompt in prompts} == {"imported"}
    assert set(Rubric.objects.values_list("status", flat=True)) <= {"imported"}
    problem = f"prompt {prompts[0]} is imported; a curator must approve it before it is used"
    assert problem in list(Design.load(experiment).find_problems())
    prompts[0].approve(by=owner, reason="Read")
    assert problem not in list(Design.load(experiment).find_problems())


def test_the_command_says_which_definitions_wait_for_an_approval(files, capsys):
    call_command("import_study", str(files["itemeval"]))
    output = capsys.readouterr().out
    for row in [*Prompt.objects.all(), *Rubric.objects.all()]:
        assert f"{row._meta.verbose_name} approve {row} --reason TEXT" in output

"""A design means the same before and after any import: its prompts, samplers and dimensions are the same rows."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import transaction

from grading_app.grading.judging.grader_specs import create_experiment
from runs_app.experiment_files.spec_reader import read_spec
from runs_app.models import Dimension, Experiment, Prompt, Sampler
from runs_app.planning.design import Design
from runs_app.planning.shipped_designs import create_shipped_designs
from tests import factories
from tests.factories.drafts import make_questions
from tests.factories.spaces import make_space_dataset
from tests.integration.study_import.test_reasonscape import RECORD, export_records
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db
HERE = Path(__file__).parent
OASIS = (
    "model,run_id,image_id,dimension,sample_idx,status,rating,attempts,cost_usd,completed_at,error,raw_response\n"
    "small,one,Cat 1,valence,0,done,6,1,0.001,2026-04-26 18:20:19,,six\n"
)
IMPORTERS: dict[str, tuple[str, Any]] = {
    "reasonscape": ("films.ndjson", json.dumps(RECORD | {"template": "zeroshot", "sampler": "greedy-2k"}) + "\n"),
    "oasis-llm": ("trials.csv", OASIS),
    "inspect": ("sums.eval", HERE / "logs" / "sums.eval"),
    "itemeval": ("studies", HERE / "itemeval"),
    "snapshot": ("sent.zip", HERE / "snapshots" / "schema-5.zip"),
    "oasis-llm-duckdb": ("pilot", "a database that the test writes"),
    "design": ("design.zip", "a bundle that the test writes"),
}
CHANGED = {"messages": [{"role": "user", "content": "Elsewhere: {{input}}"}]}


@pytest.fixture(autouse=True)
def owner(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"
    return factories.make_user("boss", superuser=True)


def list_definitions():
    """Return the row that each bare name means, by kind and name."""
    return {
        (kind, name): kind.objects.named(name).values_list("pk", flat=True).first()
        for kind in (Prompt, Sampler, Dimension)
        for name in kind.objects.values_list("name", flat=True).distinct()
    }


def plan_shipped_design(slug, owner):
    """Return the cells of a design that names shipped prompts and samplers, and the problems of its launch."""
    spec = {
        "experiment": slug, "dataset": "reasoning", "models": ["strong"], "prompts": ["zeroshot", "zerocot-nosys"],
        "samplers": ["greedy-2k", "greedy-4k"],
    }  # fmt: skip
    design = Design.load(create_experiment(read_spec(spec), by=owner))
    return [cell.condition_id for cell in design.cells], design.find_problems()


def write_database(folder):
    """Write a database file of OASIS-LLM with one run of one trial."""
    duckdb = pytest.importorskip("duckdb", reason="the optional package duckdb is not installed")
    from tests.integration.study_import.test_oasis_duckdb import CONFIG, SCHEMA, add_run, add_trial

    folder.mkdir()
    with duckdb.connect(str(folder / "llm_runs.duckdb")) as database:
        database.execute(SCHEMA)
        add_run(database, "exp__small", CONFIG, "2026-04-01")
        add_trial(database, "exp__small", "Cat 1", 0, rating=6, raw="six")


def write_design_bundle(path):
    """Write a design of another site, which has other contents under names that the site shares with this one."""
    with transaction.atomic():
        prompts = [factories.make_prompt(name, version=7, **CHANGED) for name in ("zeroshot", "zerocot-nosys")]
        samplers = [factories.make_sampler("greedy-2k", version=7, temperature=1.5)]
        dimensions = [factories.make_dimension("strangeness")]
        dataset = make_questions(1, slug="elsewhere")
        factories.make_experiment("foreign", dataset=dataset, prompts=prompts, samplers=samplers, dimensions=dimensions)
        call_command("bundle", "design", "foreign", "--out", str(path))
        transaction.set_rollback(True)


@shared_rows
def shipped():
    """Create the shipped designs, with a dataset and a model that a design can name."""
    create_shipped_designs()
    make_space_dataset()
    factories.make_model("strong")


@pytest.mark.parametrize("importer", IMPORTERS)
def test_a_shipped_design_is_the_same_after_an_import(shipped, owner, tmp_path, importer):
    before, cells = list_definitions(), plan_shipped_design("before", owner)
    assert len(cells[0]) == 4
    name, source = IMPORTERS[importer]
    path = tmp_path / name
    if importer == "oasis-llm-duckdb":
        write_database(path)
    elif importer == "design":
        write_design_bundle(path)
    elif isinstance(source, str):
        path.write_text(source)
    elif source.is_dir():
        shutil.copytree(source, path)
    else:
        shutil.copy(source, path)
    if importer in ("snapshot", "design"):
        call_command("import_snapshot", str(path))
    else:
        call_command("import_study", str(path), "--name", "imported")
    assert Experiment.objects.exclude(slug="before").exists()
    assert Prompt.objects.filter(status="imported").exists()
    assert not Prompt.objects.filter(status="approved").exclude(pk__in=before.values()).exists()
    after = list_definitions()
    assert {key: after[key] for key in before} == before
    assert all(pk is None for key, pk in after.items() if key not in before)
    assert plan_shipped_design("after", owner) == cells


def test_records_with_the_names_of_shipped_prompts_keep_these_names_in_an_export(owner, tmp_path):
    create_shipped_designs()
    path = tmp_path / "films.ndjson"
    path.write_text(json.dumps(RECORD) + "\n")
    for _ in range(2):  # The second import finds the rows of the first one.
        call_command("import_study", str(path), "--name", "films")
    experiment = Experiment.objects.get(slug="films")
    assert [str(prompt) for prompt in experiment.prompts.all()] == [f"{RECORD['template']}-2@1"]
    assert [str(sampler) for sampler in experiment.samplers.all()] == [f"{RECORD['sampler']}-2@1"]
    assert export_records(experiment) == [RECORD]


def test_shipped_designs_are_created_beside_an_imported_one(owner, tmp_path):
    path = tmp_path / "films.ndjson"
    path.write_text(json.dumps(RECORD | {"template": "zeroshot", "sampler": "greedy-2k"}) + "\n")
    call_command("import_study", str(path), "--name", "films")
    assert not Prompt.objects.named("zeroshot").exists()
    create_shipped_designs()
    assert Sampler.objects.named("greedy-2k").get().content == {"temperature": 0.0, "max_tokens": 2048}
    assert Prompt.objects.named("zeroshot").get().status == "approved"


def test_an_imported_dimension_keeps_its_name_because_norms_are_matched_by_it(owner, tmp_path):
    """The site's own dimension of the name has another content. A name without a version still means the site's."""
    own = factories.make_dimension("valence", low=1, high=9)
    path = tmp_path / "trials.csv"
    path.write_text(OASIS)
    call_command("import_study", str(path))
    imported = Dimension.objects.filter(status="imported")
    assert "valence" in {dimension.name for dimension in imported}
    assert all(dimension.version > own.version for dimension in imported if dimension.name == own.name)
    assert list(Dimension.objects.named("valence")) == [own]

"""`dataset parametric`: a difficulty space becomes a draft, and can be rebuilt and extended."""

import json

import pytest
from django.db import DatabaseError, transaction

from datasets_app.generators.registry import get_generator
from datasets_app.models import Dataset, Item, ParametricSpace
from datasets_app.parametric import dataset_builder
from datasets_app.parametric.dataset_builder import SpaceFiles, create_parametric_dataset
from datasets_app.parametric.items import EXAMPLES_SEED, draw_cases, generate_point, make_prompt_parts, read_points
from datasets_app.parametric.spaces import resolve_space
from datasets_app.parametric.spec import SpaceError, read_space
from runs_app import run_control
from runs_app.models import Prompt, Run, Sampler, Trial
from tests import factories
from tests.factories.engine import build_reply, drain
from tests.integration.datasets.test_dataset_command import run_dataset, run_refused

SPACE = """
name: example
precision:
  low: {count: 4}
  high: {count: 6, targetci: 0.1, maximum: 12}
tasks:
  - name: arithmetic
    params: {length: [4, 8], max_depth: 1}
  - name: swaps
    task: shuffle
    mode: list
    params: [{length: 3}, {length: 5, max_depth: 9, count: 2}]
"""


@pytest.fixture
def space_file(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    return path


def build_dataset(text=SPACE, slug="reasoning", **how):
    space = resolve_space(read_space(text), **how)
    return create_parametric_dataset(space, SpaceFiles(text, "space.yaml"), slug=slug, by="test")


def list_contents(found):
    return [
        (item.key, item.input, item.target, item.choices, item.category, json.dumps(item.metadata, sort_keys=True))
        for item in found
    ]


def rebuild_contents(dataset):
    """Return the contents of the items, generated again from the dataset's definition."""
    definition = dataset.parametric_space.read_definition()
    seed, contents = definition["seed"], []
    for point in read_points(definition):
        parts = make_prompt_parts(point, seed=seed)
        for item in generate_point(point, seed=seed):
            metadata = json.dumps(item.metadata() | parts, sort_keys=True)
            case = item.case
            contents.append((item.key, case.input, case.target, list(case.choices or ()), point.task, metadata))
    return contents


@pytest.mark.django_db
def test_a_dry_run_prints_points_and_cases_of_each_task_and_saves_nothing(space_file):
    printed = run_dataset("parametric", space_file, "--name", "reasoning", "--precision", "high", "--dry-run")
    assert "example: precision high, degree 0, density normal, seed 42" in printed
    rows = {line.split()[0]: line.split()[1:] for line in printed.splitlines()}
    assert (rows["arithmetic"], rows["swaps"], rows["total"]) == (
        ["2", "12", "24"],
        ["2", "8", "24"],
        ["4", "20", "48"],
    )
    assert not Dataset.objects.exists()


@pytest.mark.django_db
def test_the_draft_has_every_case_with_its_task_parameters_and_guess_chance(space_file):
    printed = run_dataset("parametric", space_file, "--name", "reasoning", "--title", "Reasoning")
    assert "reasoning@1 (draft): 14 active items" in printed
    created = Dataset.objects.get()
    assert (created.status, created.title, created.source_name, created.item_count) == (
        "draft",
        "Reasoning",
        "space.yaml",
        14,
    )
    first = created.items.get(key="shuffle_length-3-0")
    case = next(draw_cases("shuffle", {"length": 3}))
    assert (first.input, first.target, first.choices) == (case.input, case.target, list(case.choices))
    assert first.category == "swaps"
    assert first.metadata["task"] == "shuffle"
    assert first.metadata["params"] == {"length": 3}
    assert first.metadata["guess_chance"] == pytest.approx(1 / 3)
    assert first.metadata["genresult"] == case.genresult
    created.approve(by="test", reason="tested")


@pytest.mark.django_db
def test_prompt_texts_name_the_task_and_examples_equal_no_case_of_the_point():
    created = build_dataset()
    words = get_generator("arithmetic").instructions
    for point in ("arithmetic_length-4_max_depth-1", "shuffle_length-3"):
        items = list(created.items.filter(metadata__point=point))
        inputs = {item.input for item in items}
        examples = {item.metadata[f"example_{number}_input"] for item in items for number in (1, 2, 3)}
        assert len(examples) == 3
        assert not examples & inputs
    item = created.items.get(key="arithmetic_length-4_max_depth-1-0")
    assert item.metadata["instruction"] == words.direct
    assert item.metadata["instruction_stepwise"] == words.stepwise
    assert item.metadata["example_1_answer"].startswith("Final Answer: ")
    assert item.metadata["example_1_reasoning"].strip()


@pytest.mark.django_db
def test_examples_have_the_formats_of_their_point_and_its_difficulty_does_not_change_them():
    tasks = "[{name: boolean, params: {format: [ON_OFF, T_F], length: [4, 40], count: 2}}]"
    created = build_dataset(f"name: n\ntasks: {tasks}")
    answers = {(item.metadata["params"]["format"], item.metadata["example_1_input"]) for item in created.items.all()}
    assert len(answers) == 2
    for item in created.items.all():
        allowed = {"ON_OFF": {"ON", "OFF"}, "T_F": {"T", "F"}}[item.metadata["params"]["format"]]
        assert item.metadata["example_1_answer"].removeprefix("Final Answer: ").upper() in allowed


def test_examples_that_equal_a_case_are_replaced():
    point = resolve_space(read_space("name: n\ntasks: [{name: arithmetic, params: {count: 3}}]")).points[0]
    parts = make_prompt_parts(point, seed=EXAMPLES_SEED)
    cases = {item.case.input for item in generate_point(point, seed=EXAMPLES_SEED)}
    assert parts["example_1_input"] not in cases
    assert len({parts[f"example_{number}_input"] for number in (1, 2, 3)}) == 3


@pytest.mark.django_db
def test_the_stored_definition_builds_the_same_items_again():
    created = build_dataset(precision="high")
    assert rebuild_contents(created) == list_contents(created.items.order_by("position"))
    stored = created.parametric_space
    assert stored.file == SPACE
    assert stored.definition_hash == resolve_space(read_space(SPACE), precision="high").definition_hash()
    rebuilt = build_dataset(slug="again", precision="high")
    assert rebuilt.hash_items() == created.hash_items()


@pytest.mark.django_db
def test_a_definition_of_another_generator_version_is_not_rebuilt():
    created = build_dataset()
    definition = created.parametric_space.read_definition()
    definition["generators"][0]["version"] += 1
    ParametricSpace.objects.update(definition=json.dumps(definition))
    with pytest.raises(SpaceError, match="arithmetic: was built as"):
        rebuild_contents(Dataset.objects.get(pk=created.pk))


@pytest.mark.django_db
def test_the_space_of_an_approved_dataset_is_frozen():
    created = build_dataset()
    created.approve(by="test", reason="tested")
    for change in (lambda rows: rows.update(definition="{}"), lambda rows: rows.delete()):
        with pytest.raises(DatabaseError, match="frozen"), transaction.atomic():
            change(ParametricSpace.objects.filter(dataset=created))


@pytest.mark.django_db
def test_a_draft_is_deleted_with_its_space():
    build_dataset().delete_draft(by="test")
    assert not ParametricSpace.objects.exists()


@pytest.mark.django_db
def test_the_same_name_extends_the_dataset_and_says_what_is_new(space_file):
    run_dataset("parametric", space_file, "--name", "reasoning")
    assert "has all of these 14 items and no others" in run_refused("parametric", space_file, "--name", "reasoning")
    assert "14 items as in reasoning@1, 34 new; nothing was saved" in run_dataset(
        "parametric", space_file, "--name", "reasoning", "--precision", "high", "--dry-run"
    )
    run_dataset("parametric", space_file, "--name", "reasoning", "--precision", "high")
    one, two = Dataset.objects.order_by("version")
    assert (two.version, two.parent, two.item_count) == (2, one, 48)
    later = {row[0]: row for row in list_contents(two.items.all())}
    assert [row for row in list_contents(one.items.all()) if later[row[0]] != row] == []


SMALL = """
name: small
precision: {low: {count: 12}, high: {count: 32}, highest: {count: 64}}
tasks:
  - name: sequence
    params: {base: multiply, interference: 0, length: 5}
"""


@pytest.mark.django_db
def test_a_point_with_few_different_cases_is_built_once_and_the_plan_says_so(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    command = ("parametric", path, "--name", "small", "--precision", "high")
    plan = "1 point with fewer different cases than requested; each is built once: sequence_"
    assert plan in run_dataset(*command, "--dry-run")
    run_dataset(*command)
    created = Dataset.objects.get()
    assert created.item_count == created.recipe["n"] == len(set(created.items.values_list("input", flat=True))) == 18
    assert rebuild_contents(created) == list_contents(created.items.all())
    refusal = run_refused("parametric", path, "--name", "small", "--precision", "highest")
    assert "has all of these 18 items and no others" in refusal


@pytest.mark.django_db
def test_a_dataset_of_an_earlier_version_is_rebuilt_with_its_cases():
    created = build_dataset(SMALL.replace("name: sequence", "name: sequence\n    version: 1"), precision="high")
    assert created.item_count == 32
    assert len(set(created.items.values_list("input", flat=True))) < 18 + 1
    assert rebuild_contents(created) == list_contents(created.items.all())


@pytest.mark.django_db
def test_one_and_one_point_zero_are_different_parameters_and_different_items():
    text = "name: n\ntasks: [{name: shapes, params: {scale: [1, 1.0], count: 2}}]"
    created = build_dataset(text)
    assert [item.key for item in created.items.all()] == [
        "shapes_scale-1-0", "shapes_scale-1-1", "shapes_scale-1.0-0", "shapes_scale-1.0-1"
    ]  # fmt: skip
    assert rebuild_contents(created) == list_contents(created.items.all())


@pytest.mark.django_db
def test_errors_name_the_field_and_save_nothing(space_file):
    space_file.write_text(SPACE.replace("max_depth: 1}", "max_deth: 1}"))
    printed = run_refused("parametric", space_file, "--name", "reasoning")
    assert "max_deth: arithmetic has no such parameter; did you mean max_depth?" in printed
    assert "space.yaml: 1 error; nothing was saved" in printed
    assert "the file has low, high, not 'none'" in run_refused(
        "parametric", write_space(space_file, SPACE), "--name", "reasoning", "--precision", "none"
    )
    assert "cannot be read" in run_refused("parametric", space_file.parent / "other.yaml", "--name", "reasoning")
    assert not Dataset.objects.exists()


def write_space(path, text):
    path.write_text(text)
    return path


@pytest.mark.django_db
def test_a_task_file_beside_the_space_is_read_and_stored(tmp_path):
    (tmp_path / "tasks").mkdir()
    manifold = {"length": {"range": [8, 16, 24], "window": {"skip": "degree", "body": 1}}}
    (tmp_path / "tasks" / "arithmetic.json").write_text(json.dumps({"name": "arithmetic", "manifold": manifold}))
    path = tmp_path / "space.yaml"
    path.write_text(
        "name: n\nprecision: {low: {count: 2}}\ntasks: [{name: a, file: tasks/arithmetic.json, mode: manifold}]"
    )
    run_dataset("parametric", path, "--name", "reasoning", "--degree", "1")
    created = Dataset.objects.get()
    assert {item.metadata["params"]["length"] for item in created.items.all()} == {16}
    assert set(created.parametric_space.task_files) == {"tasks/arithmetic.json"}


@pytest.mark.django_db
def test_items_are_saved_in_batches_and_each_batch_is_reported(monkeypatch):
    monkeypatch.setattr(dataset_builder, "BATCH_SIZE", 5)
    reported = []
    text = SPACE
    create_parametric_dataset(
        resolve_space(read_space(text)), SpaceFiles(text), slug="reasoning", by="test", watch=reported.append
    )
    assert reported == [5, 10, 14]
    assert list(Item.objects.order_by("position").values_list("position", flat=True)) == list(range(14))


def test_an_extended_dataset_pays_only_for_its_new_items(transactional_db):
    requests = []

    async def call(request):
        requests.append(request)
        return build_reply("Final Answer: 7")

    def run_experiment(source, slug):
        source.approve(by="test", reason="tested")
        prompt = Prompt.objects.filter(name="shots").first() or factories.make_prompt(
            "shots",
            messages=[
                {"role": "system", "content": "{{meta.instruction}}"},
                {"role": "user", "content": "{{meta.example_1_input}}"},
                {"role": "assistant", "content": "{{meta.example_1_answer}}"},
                {"role": "user", "content": "{{input}}"},
            ],
        )
        sampler = Sampler.objects.filter(name="same").first() or factories.make_sampler("same")
        experiment = factories.make_experiment(
            slug, dataset=source, prompts=[prompt], samplers=[sampler], samples=1, max_usd=None
        )
        run_control.launch(experiment, by="test")
        drain(call)
        return Run.objects.get(experiment=experiment)

    assert run_experiment(build_dataset(), "first").n_done == 14
    assert len(requests) == 14
    second = run_experiment(build_dataset(precision="high"), "second")
    assert second.n_done == 48
    assert len(requests) == 48
    reused = Trial.objects.filter(run=second, from_cache=True).values_list("item__key", flat=True)
    assert sorted(reused) == sorted(Item.objects.filter(dataset__version=1).values_list("key", flat=True))

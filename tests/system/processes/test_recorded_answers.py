"""Recorded answers of real models, replayed over HTTP: import, run and grading reproduce the published numbers."""

import csv
import io
import json

import pytest
from django.core.management import call_command
from PIL import Image

from datasets_app.models import Dataset, Item
from grading_app.grading.consistency_check import find_differences
from grading_app.models import Grading
from runs_app.models import Attempt, Run, Trial
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import simulator_process
from tests import factories
from tests.factories.recordings import find_recording, read_csv_rows, read_json_lines
from tests.system.processes.workers import drain_process

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def run_command(*arguments):
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=out)
    return out.getvalue()


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run_experiment(experiment):
    run_command("experiment", "launch", experiment, "--yes")
    with drain_process() as worker:
        assert worker.wait(timeout=300) == 0
    assert find_differences() == []


def test_gsm8k_numeric_scores_count_286_and_515_right(tmp_path):
    questions = find_recording("gsm8k-test.jsonl")
    solutions = read_json_lines("gsm8k-model-solutions.jsonl")
    replay = write_lines(
        tmp_path / "replay.jsonl",
        (
            {"model": model, "text": row["question"], "content": row[model]["solution"]}
            for row in solutions
            for model in ("6b_finetuning", "6b_verification")
        ),
    )
    factories.make_user("operator", superuser=True)
    mapping = ["--map", "input=question", "target={answer|after:####}"]
    run_command("dataset", "import", str(questions), "--name", "gsm8k", *mapping)
    run_command("dataset", "approve", "gsm8k@1", "--reason", "looked through")
    assert Item.objects.count() == 1319
    design = tmp_path / "design.yaml"
    design.write_text(
        "{experiment: gsm8k, dataset: gsm8k@1, samplers: [provider-default], samples: 1, grade: {scorers: [numeric]},"
        " prompts: [{name: question-only, user: '{{input}}'}], models: ["
        "{name: finetuning, endpoint: replay, model: 6b_finetuning},"
        "{name: verification, endpoint: replay, model: 6b_verification}]}"
    )
    with simulator_process(SimulatorConfig(replays=(replay,))) as provider:
        run_command("endpoint", "set", "replay", "--base-url", provider.url, "--max-concurrency", "64", "--free")
        run_command("experiment", "create", str(design))
        run_experiment("gsm8k")
        assert provider.counters()["requests"] == 2 * 1319
    run_command("grade", "gsm8k")
    assert Trial.objects.filter(status="done").count() == 2 * 1319
    right = {
        name: Grading.objects.filter(trial__run__condition__model__name=name, score=1).count()
        for name in ("finetuning", "verification")
    }
    assert right == {"finetuning": 286, "verification": 515}


def make_pictures(folder, keys):
    """Write one picture per key, each with its own colours."""
    folder.mkdir()
    for number, key in enumerate(keys):
        image = Image.effect_noise((96, 64), 40 + number).convert("RGB")
        image.paste((number * 6, 255 - number * 6, 128), (0, 0, 48, 64))
        image.save(folder / f"{key}.png")
    return folder


def make_replay_row(row, image):
    """Return the recorded reply or refusal as a row of a replay file."""
    fields = {"model": row["model"], "image": image, "seed": int(row["sample_idx"]), "text": f"rate {row['dimension']}"}
    if row["status"] == "done":
        return fields | {"content": row["raw_response"]}
    return fields | {"status": 400, "error": "content_policy_violation: inappropriate content"}


def test_uniform40_ratings_equal_the_recorded_ratings_and_refusals_end_after_one_attempt(tmp_path):
    items = read_csv_rows("uniform40-items.csv")
    rows = read_csv_rows("uniform40-trials-gemma.csv") + read_csv_rows("uniform40-trials-qwen.csv")
    folder = make_pictures(tmp_path / "pictures", [item["image_id"] for item in items])
    table = tmp_path / "items.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["key", "image", "category"])
        writer.writerows([item["image_id"], f"{item['image_id']}.png", item["Category"]] for item in items)
    factories.make_user("operator", superuser=True)
    norms = str(find_recording("uniform40-items.csv"))
    run_command("dataset", "import", str(table), "--name", "uniform40", "--images", str(folder), "--norms", norms)
    run_command("dataset", "approve", "uniform40@1", "--reason", "looked through")
    image_of = dict(Item.objects.values_list("key", "image_id"))
    assert len(set(image_of.values())) == 40
    replay = write_lines(tmp_path / "replay.jsonl", (make_replay_row(row, image_of[row["image_id"]]) for row in rows))

    with simulator_process(SimulatorConfig(replays=(replay,))) as provider:
        experiment = make_rating_experiment(provider.url, {row["model"] for row in rows})
        run_experiment(experiment)

    compare_trials(rows)


def make_rating_experiment(url, models):
    endpoint = factories.make_endpoint("replay", base_url=url, max_concurrency=64, is_free=True)
    experiment = factories.make_experiment(
        "uniform40-replay",
        owner=factories.make_user("researcher", "Researcher"),
        dataset=Dataset.objects.get(slug="uniform40"),
        models=[factories.make_model(name.replace(".", "-"), endpoint=endpoint, model=name) for name in models],
        prompts=[
            factories.make_prompt(
                "affect", user="Please rate {{dimension}} of {{image}}", answer_format="rating_with_reasoning"
            )
        ],
        samplers=[factories.make_sampler("seeded", seed=0)],
        dimensions=[factories.make_dimension("valence"), factories.make_dimension("arousal")],
        samples=20,
        max_usd=None,
        stop_failure_rate=0.5,
    )
    return experiment.slug


def compare_trials(rows):
    trials = Trial.objects.select_related("item", "dimension", "run__condition__model")
    stored = {(row.run.condition.model.model, row.item.key, row.dimension.name, row.sample_idx): row for row in trials}
    assert len(stored) == len(rows) == 3200
    for row in rows:
        trial = stored[row["model"], row["image_id"], row["dimension"], int(row["sample_idx"])]
        if row["status"] == "done":
            assert (trial.status, trial.rating) == ("done", int(row["rating"])), row
            assert trial.raw_text == row["raw_response"]
        else:
            assert (trial.status, trial.error_class, trial.attempts) == ("failed", "content_refused", 1), row
    refused = Attempt.objects.filter(outcome="permanent")
    assert refused.count() == 40
    assert Run.objects.get(n_failed=40).condition.model.model.startswith("qwen")

"""Recorded answers of real models, read from a folder beside the checkout that is not part of the project."""

import csv
import json
from pathlib import Path

import pytest

from tests import factories

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"


def find_recording(name):
    """Return the path of a recorded file. Skip the test if it is missing."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"the recorded answers of {name} are not beside this checkout ({FOLDER})")
    return path


def read_csv_rows(name):
    with find_recording(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_json_lines(name):
    return [json.loads(line) for line in find_recording(name).read_text(encoding="utf-8").splitlines()]


SOLVERS = ("6b_finetuning", "6b_verification")


def make_word_problems():
    """Create 1,319 word problems, answered once by two models and not graded. Also return the published rows."""
    rows = read_json_lines("gsm8k-model-solutions.jsonl")
    items = [
        {"key": str(number), "input": row["question"], "target": row["ground_truth"].rpartition("A:")[2].strip()}
        for number, row in enumerate(rows)
    ]
    experiment = factories.make_experiment(
        "word-problems",
        dataset=factories.make_dataset("word-problems", items),
        models=[factories.make_model(name) for name in SOLVERS],
        scorers=["numeric"],
    )
    for run in factories.make_runs(experiment, status="done"):
        solutions = {str(number): row[run.condition.model.name]["solution"] for number, row in enumerate(rows)}
        factories.plan_trials(run, answer=lambda item, *cell, solutions=solutions: solutions[item.key])
    return experiment, rows


def make_rated_photographs():
    """Create forty photographs with human norms, each rated twenty times on two dimensions by two models.

    Also return the recorded rows.
    """
    items = [
        {
            "key": row["image_id"],
            "category": row["Category"],
            "norms": {name: float(row[f"human_{name}_mean"]) for name in ("valence", "arousal")},
        }
        for row in read_csv_rows("uniform40-items.csv")
    ]
    recorded = {name: read_csv_rows(f"uniform40-trials-{name}.csv") for name in ("gemma", "qwen")}
    experiment = factories.make_experiment(
        "photographs",
        dataset=factories.make_dataset("uniform40", items),
        models=[factories.make_model(name) for name in recorded],
        dimensions=[factories.make_dimension("valence"), factories.make_dimension("arousal")],
        samples=20,
    )
    for run in factories.make_runs(experiment, status="done"):
        rows = recorded[run.condition.model.name]
        by_cell = {(row["image_id"], row["dimension"], int(row["sample_idx"])): row for row in rows}
        factories.plan_trials(
            run, answer=lambda *cell, by_cell=by_cell: _build_rating_fields(by_cell[cell[0].key, cell[1].name, cell[2]])
        )
    return experiment, [row for rows in recorded.values() for row in rows]


def _build_rating_fields(row):
    if row["status"] != "done":
        return factories.build_failed_fields("refused", row["error"])
    text = row["raw_response"]
    return {"answer": text, "rating": int(row["rating"]) if row["rating"] else None, "raw_response": text}

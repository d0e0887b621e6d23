"""Files of Every Eval Ever, which its own package converted from results of lm-evaluation-harness."""

import json
import shutil
from pathlib import Path

import pytest

from grading_app.models import Grading
from grading_app.study_import.importers import read_source
from runs_app.models import Trial
from tests import factories
from tests.integration.study_import.import_command import import_refused_study, import_study

pytestmark = pytest.mark.django_db
FILES = Path(__file__).parent / "every_eval_ever"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FILES, tmp_path / "evaluations"))


def find_file(folder, benchmark, suffix):
    return next(file for file in folder.glob(f"*{suffix}") if f'"{benchmark}/' in file.read_text())


def test_samples_become_items_and_evaluations_conditions():
    experiment = import_study(FILES)
    assert experiment.imported_from == "every-eval-ever"
    assert experiment.dataset.items.get(key="colours-1").target == "blue"
    sums = experiment.conditions.get(prompt__name="every-eval-ever-sums")
    assert (sums.model.model, sums.sampler.temperature, sums.sampler.max_tokens) == ("lab/dummy-1", 0.5, 64)
    assert Trial.objects.count() == 7


def test_the_metrics_of_a_sample_are_scores_with_the_reported_means():
    import_study(FILES)
    for file in FILES.glob("*.json"):
        for result in json.loads(file.read_text())["evaluation_results"]:
            name = result["evaluation_result_id"].replace(":", "-")
            scores = Grading.objects.filter(condition__scorer=name).values_list("score", flat=True)
            assert len(scores) == result["score_details"]["uncertainty"]["num_samples"], name
            assert sum(scores) / len(scores) == pytest.approx(result["score_details"]["score"]), name


def test_an_evaluation_with_means_alone_is_named_and_several_alone_are_refused(folder):
    find_file(folder, "sums", "_samples.jsonl").unlink()
    assert any("1 evaluations have only means" in note for note in read_source(folder).notes)
    find_file(folder, "colours", "_samples.jsonl").unlink()
    assert "2 evaluations have only means, without samples" in import_refused_study(folder)


def test_conversations_usage_and_errors_are_kept(folder):
    file = find_file(folder, "sums", "_samples.jsonl")
    row = json.loads(file.read_text().splitlines()[0])
    talk = row | {
        "interaction_type": "agentic", "output": None,
        "messages": [
            {"turn_idx": 0, "role": "user", "content": "0 + 0"},
            {"turn_idx": 1, "role": "assistant", "content": None,
             "tool_calls": [{"id": "1", "name": "add", "arguments": {"a": "0"}}]},
            {"turn_idx": 2, "role": "assistant", "content": "0", "reasoning_trace": "trivial"},
        ],
        "token_usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "reasoning_tokens": 1},
        "performance": {"latency_ms": 12.4},
    }  # fmt: skip
    lost = row | {"sample_id": "9", "error": "timeout"}
    file.write_text("".join(json.dumps(one) + "\n" for one in (talk, lost)))
    trials = {trial.item: trial for trial in read_source(folder).trials()}
    first = trials["sums-0"]
    assert (first.answer, first.input_tokens, first.reasoning_tokens, first.latency_ms) == ("0", 5, 1, 12)
    assert first.messages[1]["tool_calls"] == [{"function": "add", "arguments": {"a": "0"}}]
    assert first.messages[2]["reasoning"] == "trivial"
    assert (trials["sums-9"].is_done, trials["sums-9"].error) == (False, "timeout")


def test_a_row_without_a_field_is_refused_with_its_line(folder):
    file = find_file(folder, "sums", "_samples.jsonl")
    lines = file.read_text().splitlines()
    row = json.loads(lines[1])
    del row["evaluation"]
    file.write_text("\n".join([lines[0], json.dumps(row)]) + "\n")
    assert "line 2: evaluation missing" in import_refused_study(folder)

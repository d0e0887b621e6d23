"""Blank lines between the rows of JSON lines: readers that go back to a row by its offset find the same row."""

import shutil
from pathlib import Path

import pytest

from grading_app.study_import.importers import read_source

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("tool", ["lm_eval", "every_eval_ever", "openai_evals"])
def test_blank_lines_do_not_change_the_answers_and_scores_of_a_study(tool, tmp_path):
    copy = Path(shutil.copytree(FOLDER / tool, tmp_path / tool))
    for file in copy.rglob("*.jsonl"):
        file.write_text("\n\n".join(file.read_text().splitlines()) + "\n\n")
    expected, trials = ([trial for trial in read_source(path).trials()] for path in (FOLDER / tool, copy))
    assert [(one.item, one.answer, one.scores) for one in trials] == [
        (one.item, one.answer, one.scores) for one in expected
    ]
    assert any(one.scores for one in trials)

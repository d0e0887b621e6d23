"""The recipe for a format of studies, carried out on a copy: one module, a line of the registry and a row suffice."""

import pytest

from tests.system.recipes.test_recipes_on_a_copy import Copy

pytestmark = [pytest.mark.slow, pytest.mark.processes]

MODULE = '''"""Chatbench: JSON lines with a question, the reply of a model, and whether it is right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grading_app.publish.export.row_shapes import Shape
from grading_app.study_import.study import (
    INPUT_TURN,
    StudyCondition,
    StudyItem,
    check_shape,
    dig_counts,
    make_metric_score,
    split_model,
)
from grading_app.study_import.study_draft import StudyDraft, StudyFormat
from grading_app.study_import.text_files import find_files, read_first_object, read_objects

TOKENS = {"input_tokens": "usage.prompt", "output_tokens": "usage.reply"}


class Reply(Shape):
    id: int | str
    question: str
    gold: str
    model: str
    reply: str
    right: bool


def read_chatbench(files: Sequence[Path], draft: StudyDraft) -> None:
    """Add the replies. Several replies of a model to a question are repetitions."""
    for row in draft.follow(read_objects(files)):
        check_shape(row, Reply)
        model = row["model"]
        draft.count("unpriced", row.get("cost") is None)
        draft.add_trial(
            draft.add_condition(StudyCondition(model, **split_model(model), messages=INPUT_TURN)),
            draft.add_item(StudyItem(str(row["id"]), input=row["question"], target=row["gold"])).key,
            is_done=True,
            answer=row["reply"],
            **dig_counts(row, TOKENS),
            scores=(make_metric_score("right", row["right"], ""),),
        )


CHATBENCH = StudyFormat(
    name="chatbench",
    label="Chatbench",
    content="a file of replies, or a folder of them",
    suffixes=(".jsonl",),
    find=lambda path: [file for file in find_files(path, ".jsonl") if "gold" in read_first_object(file)],
    missing="no file of replies (.jsonl)",
    read=read_chatbench,
    count_notes={"unpriced": "The cost of {} replies is unknown."},
)
'''
ROW = (
    '{"id": 1, "question": "2 + 2?", "gold": "4", "model": "lab/small", "reply": "%s", "right": %s, '
    '"usage": {"prompt": 9}}'
)
USE = """
from pathlib import Path
from grading_app.study_import.importers import FORMATS, read_source
from grading_app.study_import.study import StudyError
study = read_source(Path("replies.jsonl"))
first, second = study.trials()
print(list(study.items), [condition.provider for condition in study.conditions.values()], study.notes)
print(first.answer, first.input_tokens, first.output_tokens, first.scores[0].value, second.sample_idx)
Path("replies.jsonl").write_text('{"gold": "4", "model": "lab/small"}')
try:
    read_source(Path("replies.jsonl"))
except StudyError as error:
    print(error)
"""


@pytest.fixture
def checkout(tmp_path):
    return Copy(tmp_path)


def test_a_format_is_one_module_one_line_and_a_row(checkout):
    checkout.add("grading_app/study_import/formats/chatbench.py", MODULE)
    importers = "grading_app/study_import/importers.py"
    line = "from grading_app.study_import.formats.every_eval_ever import EVERY_EVAL_EVER\n"
    checkout.change(importers, line, f"from grading_app.study_import.formats.chatbench import CHATBENCH\n{line}")
    checkout.change(importers, "LABEL_STUDIO, HUB_EVAL,", "LABEL_STUDIO, HUB_EVAL, CHATBENCH,")
    checkout.add("replies.jsonl", "\n".join(ROW % reply for reply in (("4", "true"), ("5", "false"))))
    code, output = checkout.run("manage.py", "shell", "--no-imports", "-c", USE)
    assert code == 0, output
    assert "['1'] ['lab'] ['The cost of 2 replies is unknown.']" in output
    assert "4 9 None 1.0 1" in output
    assert "replies.jsonl, line 1: cannot be read, id: field required" in output
    documents = "tests/unit/docs/test_formats_of_studies_are_documented.py"
    code, output = checkout.test(documents)
    assert code == 1, output
    assert "add a row to docs/importing.md" in output
    row = "| `label-studio` | JSON exports of projects: tasks, annotations and predictions |\n"
    checkout.change("docs/importing.md", row, f"{row}| `chatbench` | files of replies |\n")
    code, output = checkout.test(documents)
    assert code == 0, output

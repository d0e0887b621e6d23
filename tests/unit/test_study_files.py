"""A study as files: each value keeps its content and type."""

from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from datasets_app.importing.records import ScratchFolder
from grading_app.study_import.study import (
    HumanNorm,
    StudyCondition,
    StudyDimension,
    StudyItem,
    StudyScore,
    StudyTrial,
)
from grading_app.study_import.study_draft import StudyDraft
from grading_app.study_import.study_files import load_study

TRIAL = StudyTrial(
    where="file, row 2", condition="c", item="a", sample_idx=1, is_done=True, dimension="joy", cost_usd=Decimal("0.10"),
    claimed_at=datetime(2024, 1, 2, tzinfo=UTC), scores=(StudyScore("exact", 1.0, detail={"x": [1, None]}),),
)  # fmt: skip


def test_a_study_survives_a_round_trip_through_files(tmp_path):
    study = StudyDraft(Path("one"), "inspect", ["A note."])
    study.recipe, study.dimensions = {"n": 1}, [StudyDimension("joy", 1, 7)]
    norms = (HumanNorm("joy", 1.5, n=3),)
    study.add_item(StudyItem("a", "?", choices=("x", "y"), metadata={"n": 1.5}, norms=norms))
    study.add_condition(StudyCondition("c", "m", "m", messages=({"role": "user", "content": "?"},)))
    for _ in range(3):
        study.add_trial(**{part.name: getattr(TRIAL, part.name) for part in fields(TRIAL)})
    study.complete({})
    study.write(tmp_path)
    loaded = load_study(ScratchFolder.at(tmp_path))
    assert list(loaded.trials()) == [TRIAL] * 3 == list(loaded.trials())
    for name in ("name", "tool", "items", "conditions", "dimensions", "notes", "recipe"):
        assert getattr(loaded, name) == getattr(study, name)

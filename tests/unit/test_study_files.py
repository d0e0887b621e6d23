"""A study as files: each value keeps its content and type."""

from datetime import UTC, datetime
from decimal import Decimal

from grading_app.study_import.study import (
    HumanNorm,
    Study,
    StudyCondition,
    StudyDimension,
    StudyItem,
    StudyScore,
    StudyTrial,
)
from grading_app.study_import.study_files import load_study_files, write_study_files

TRIAL = StudyTrial(
    where="file, row 2", condition="c", item="a", sample_idx=1, is_done=True, dimension="joy", cost_usd=Decimal("0.10"),
    claimed_at=datetime(2024, 1, 2, tzinfo=UTC), scores=(StudyScore("exact", 1.0, detail={"x": [1, None]}),),
)  # fmt: skip


def test_a_study_survives_a_round_trip_through_files(tmp_path):
    study = Study(
        name="one", tool="inspect", trials=lambda: iter([TRIAL] * 3), notes=["A note."], recipe={"n": 1},
        items=[StudyItem("a", "?", choices=("x", "y"), metadata={"n": 1.5}, norms=(HumanNorm("joy", 1.5, n=3),))],
        conditions=[StudyCondition("c", "m", "m", messages=({"role": "user", "content": "?"},))],
        dimensions=[StudyDimension("joy", 1, 7)],
    )  # fmt: skip
    write_study_files(study, tmp_path)
    loaded = load_study_files(tmp_path)
    assert list(loaded.trials()) == [TRIAL] * 3 == list(loaded.trials())
    for name in ("name", "tool", "items", "conditions", "dimensions", "notes", "recipe"):
        assert getattr(loaded, name) == getattr(study, name)

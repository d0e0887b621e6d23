"""`manage.py rubric VERB ...`: rubrics from files."""

from __future__ import annotations

from typing import Any

from grading_app.grading.judging.grader_specs import build_rubric_row
from grading_app.models import Rubric
from runs_app.experiment_files.specs import WrittenRubricSpec
from runs_app.management.versions import VersionCommand


class Command(VersionCommand):
    help = "Create, show, approve and archive rubrics."
    kind, spec = Rubric, WrittenRubricSpec

    def build_row(self, spec: WrittenRubricSpec) -> Rubric:
        return build_rubric_row(spec)

    def build_spec(self, row: Rubric) -> Any:
        return row.build_spec()

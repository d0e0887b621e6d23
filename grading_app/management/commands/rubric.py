"""`manage.py rubric VERB ...`: rubrics from files."""

from __future__ import annotations

from grading_app.grading.judging.grader_specs import build_rubric_row
from grading_app.models import Rubric
from runs_app.experiment_files.specs import WrittenRubricSpec
from runs_app.management.versions import VersionCommand


class Command(VersionCommand):
    help = "Create, show, approve and archive rubrics."
    kind, spec = Rubric, WrittenRubricSpec
    build_row, build_spec = staticmethod(build_rubric_row), staticmethod(Rubric.build_spec)

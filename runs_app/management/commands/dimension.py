"""The command `manage.py dimension VERB ...`: dimensions from files, with the same rules as in the admin."""

from __future__ import annotations

from runs_app.experiment_files.row_builder import build_dimension
from runs_app.experiment_files.specs import DimensionSpec
from runs_app.management.versions import VersionCommand
from runs_app.models import Dimension
from runs_app.planning.spec_io import build_dimension_spec


class Command(VersionCommand):
    help = "Create, show, approve and archive dimensions."
    kind, spec = Dimension, DimensionSpec
    build_row, build_spec = staticmethod(build_dimension), staticmethod(build_dimension_spec)

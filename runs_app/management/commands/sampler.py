"""The command `manage.py sampler VERB ...`: samplers from files, with the same rules as in the admin."""

from __future__ import annotations

from runs_app.experiment_files.row_builder import build_sampler
from runs_app.experiment_files.specs import SamplerSpec
from runs_app.management.versions import VersionCommand
from runs_app.models import Sampler
from runs_app.planning.spec_io import build_sampler_spec


class Command(VersionCommand):
    help = "Create, show, approve and archive samplers."
    kind, spec = Sampler, SamplerSpec
    build_row, build_spec = staticmethod(build_sampler), staticmethod(build_sampler_spec)

"""The command `manage.py sampler VERB ...`: samplers from files, with the same rules as in the admin."""

from __future__ import annotations

from typing import Any

from runs_app.experiment_files.row_builder import build_sampler
from runs_app.experiment_files.specs import SamplerSpec
from runs_app.management.versions import VersionCommand
from runs_app.models import Sampler
from runs_app.planning.spec_io import build_sampler_spec


class Command(VersionCommand):
    help = "Create, show, approve and archive samplers."
    kind, spec = Sampler, SamplerSpec

    def build_row(self, spec: SamplerSpec) -> Sampler:
        return build_sampler(spec)

    def build_spec(self, row: Sampler) -> Any:
        return build_sampler_spec(row)

"""The command `manage.py prompt VERB ...`: prompts from files, with the same rules as in the admin."""

from __future__ import annotations

from typing import Any

from runs_app.experiment_files.row_builder import build_prompt
from runs_app.experiment_files.specs import PromptSpec
from runs_app.management.versions import VersionCommand
from runs_app.models import Prompt
from runs_app.planning.shipped_designs import create_shipped_designs
from runs_app.planning.spec_io import build_prompt_spec


class Command(VersionCommand):
    help = "Create, show, approve and archive prompts."
    kind, spec = Prompt, PromptSpec
    build_row, build_spec = staticmethod(build_prompt), staticmethod(build_prompt_spec)

    def add_verbs(self, verbs: Any) -> None:
        super().add_verbs(verbs)
        verbs.add_parser("shipped", help="create missing shipped prompts and samplers as approved versions")

    def do_shipped(self, **options: Any) -> None:
        created = create_shipped_designs()
        self.write(f"created {', '.join(created)}" if created else "nothing is missing")

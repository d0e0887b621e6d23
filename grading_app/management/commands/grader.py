"""`manage.py grader VERB ...`: judges and panels of judges, from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from django.db import transaction

from evalsite.lib.history import TransitionError
from evalsite.lib.ops.commands import VerbCommand, add_reason, add_user, refuse_input, resolve_actor, resolve_owner
from grading_app.grading.judging.grader_specs import PanelSpec, build_graders, build_panel, write_grader_spec
from grading_app.models import Grader, Panel
from runs_app.experiment_files.row_builder import RowBuilder
from runs_app.experiment_files.spec_reader import SpecError, read_section
from runs_app.experiment_files.specs import GraderSpec
from runs_app.management.versions import add_create, add_list_and_show, print_history, read_text
from runs_app.planning.spec_io import dump_yaml

PARTS = ("language_model__endpoint", "rubric", "sampler", "text_set", "created_by")


class Command(VerbCommand):
    help = "Create, show and archive graders, which are judge models with a rubric, and panels of graders."
    refusals: ClassVar[tuple[type[Exception], ...]] = (SpecError, TransitionError)

    def add_verbs(self, verbs: Any) -> None:
        add_list_and_show(verbs, "grader")
        add_create(verbs, "grader")
        archive = verbs.add_parser("archive", help="archive a grader")
        archive.add_argument("reference", metavar="NAME")
        add_reason(archive, required=True)
        list_panels = verbs.add_parser("list-panels", help="list all panels, with rule and graders")
        list_panels.add_argument("--json", action="store_true")
        show_panel = verbs.add_parser("show-panel", help="show a panel in the format of its file")
        show_panel.add_argument("reference", metavar="NAME")
        show_panel.add_argument("--json", action="store_true")
        create_panel = verbs.add_parser("create-panel", help="create a panel of graders from a file")
        create_panel.add_argument("file", type=Path)
        add_user(create_panel, "the owner; default: the only superuser")

    def do_list(self, json: bool, **options: Any) -> None:
        graders = list(Grader.objects.select_related(*PARTS))
        if json:
            self.write_json([_build_grader_row(grader) for grader in graders])
            return
        for grader in graders:
            state = "archived" if grader.archived_at else "in use"
            self.write(f"{grader.name:<32} {state:<9} {grader.language_model.name:<24} {grader.rubric}")

    def do_show(self, reference: str, json: bool, **options: Any) -> None:
        grader = _find_grader(reference)
        if json:
            self.write_json({**_build_grader_row(grader), "content": write_grader_spec(grader)})
            return
        self.write(f"# {grader}, {'archived' if grader.archived_at else 'in use'}, by {grader.created_by or '-'}")
        self.write(dump_yaml(write_grader_spec(grader)))
        print_history(self, grader)

    def do_create(self, file: Path, user: str, **options: Any) -> None:
        spec = read_section(read_text(file), GraderSpec, "grader")
        existing_keys = set(Grader.objects.values_list("pk", flat=True))
        builder = RowBuilder(resolve_owner(user), trusted=True, reason="Created by command")
        with transaction.atomic():
            graders = build_graders(builder, "grader", spec)
            if builder.problems:
                raise SpecError(builder.problems)
        for grader in filter(None, graders):
            is_new = grader.pk not in existing_keys
            self.write(f"{grader} was created" if is_new else f"{grader} already has this content; nothing was created")

    def do_archive(self, reference: str, reason: str, user: str, **options: Any) -> None:
        grader = _find_grader(reference)
        grader.archive(by=resolve_actor(user), reason=reason)
        self.write(f"{grader} is archived. Its gradings stay.")

    def do_list_panels(self, json: bool, **options: Any) -> None:
        panels = list(Panel.objects.select_related("created_by").prefetch_related("graders"))
        if json:
            self.write_json([_build_panel_row(panel) for panel in panels])
            return
        for panel in panels:
            self.write(f"{panel.name:<32} {panel.rule:<9} {', '.join(panel.build_spec()['graders'])}")

    def do_show_panel(self, reference: str, json: bool, **options: Any) -> None:
        panel = Panel.objects.filter(name=reference).select_related("created_by").prefetch_related("graders").first()
        if panel is None:
            refuse_input(f"reference: there is no panel {reference}; `grader list-panels` lists them")
        if json:
            self.write_json(_build_panel_row(panel))
            return
        self.write(f"# {panel}, by {panel.created_by or '-'}")
        self.write(dump_yaml(panel.build_spec()))
        print_history(self, panel)

    def do_create_panel(self, file: Path, user: str, **options: Any) -> None:
        spec = read_section(read_text(file), PanelSpec, "panel")
        builder = RowBuilder(resolve_owner(user), trusted=True, reason="Created by command")
        with transaction.atomic():
            panel, is_new = build_panel(builder, spec)
            if builder.problems:
                raise SpecError(builder.problems)
        self.write(f"{panel} was created" if is_new else f"{panel} already has this content; nothing was created")


def _find_grader(name: str) -> Grader:
    grader = Grader.objects.filter(name=name).select_related(*PARTS).first()
    if grader is None:
        refuse_input(f"reference: there is no grader {name}; `grader list` lists them")
    return grader


def _build_grader_row(grader: Grader) -> dict[str, Any]:
    return {
        "name": grader.name,
        "model": grader.language_model.name,
        "rubric": str(grader.rubric),
        "sampler": str(grader.sampler),
        "texts": grader.text_set and str(grader.text_set),
        "on_empty": grader.on_empty,
        "longest_answer": grader.longest_answer,
        "created_by": grader.created_by and grader.created_by.username,
        "archived_at": grader.archived_at,
    }


def _build_panel_row(panel: Panel) -> dict[str, Any]:
    return {
        **panel.build_spec(),
        "quorum": panel.quorum,
        "created_by": panel.created_by and panel.created_by.username,
        "created_at": panel.created_at,
    }

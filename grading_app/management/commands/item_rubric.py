"""`manage.py item_rubric VERB ...`: item rubrics, written by a model and corrected by people."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from django.db.models import Count

from evalsite.lib.history import TransitionError
from evalsite.lib.ops.commands import (
    VerbCommand,
    add_reason,
    add_user,
    refuse_input,
    resolve_actor,
    resolve_approver,
    resolve_owner,
)
from evalsite.lib.text.number_format import format_count, format_money
from grading_app.grading.judging.graders import get_or_create_default_sampler
from grading_app.grading.judging.item_rubrics import RubricWriter
from grading_app.models import Rubric
from runs_app.management.experiment_lookup import get_experiment
from runs_app.management.started_work import wait_for
from runs_app.management.versions import REFERENCE, add_list_and_show, print_history, read_text
from runs_app.models import Experiment, LanguageModel, Run, Sampler, TextSet
from runs_app.planning.work import PlanError


class Command(VerbCommand):
    help = "Generate a rubric for each item with a model. Show, correct, approve and archive the set."
    refusals: ClassVar[tuple[type[Exception], ...]] = (PlanError, ValueError, TransitionError)

    def add_verbs(self, verbs: Any) -> None:
        add_list_and_show(verbs, "set of item rubrics")
        _add_write(verbs)
        collect = verbs.add_parser("collect", help="add the new texts of the model")
        collect.add_argument("reference", help=REFERENCE)
        correct = verbs.add_parser("correct", help="replace the text of one item")
        correct.add_argument("reference", help=REFERENCE)
        correct.add_argument("item", help="the item's key")
        correct.add_argument("file", type=Path, help="a file with the text")
        add_reason(correct, required=True)
        for verb, help_text in (("approve", "freeze the set for judges"), ("archive", "archive the set")):
            parser = verbs.add_parser(verb, help=help_text)
            parser.add_argument("reference", help=REFERENCE)
            add_reason(parser, required=True)

    def do_list(self, json: bool, **options: Any) -> None:
        sets = list(TextSet.objects.select_related("dataset", "created_by").annotate(n=Count("texts")))
        if json:
            self.write_json([_build_row(texts) for texts in sets])
            return
        for texts in sets:
            self.write(f"{texts!s:<40} {texts.status:<10} {format_count(texts.n):>8} texts  {texts.dataset}")

    def do_show(self, reference: str, json: bool, **options: Any) -> None:
        texts = _find_text_set(reference)
        missing = texts.find_missing()
        if json:
            self.write_json({**_build_row(texts), **texts.content, "missing": missing})
            return
        self.write(f"# {texts}, {texts.status}, for {texts.dataset}; {format_count(len(missing))} items have no text")
        for key, text in texts.content["texts"].items():
            self.write(f"## {key}\n{text}\n")
        print_history(self, texts)

    def do_write(self, experiment: str, yes: bool, wait: bool, user: str, **options: Any) -> None:
        experiment_row = get_experiment(experiment, "experiment")
        writer = _build_writer(experiment_row, options["template"], options["model"], options["sampler"])
        if problems := list(writer.find_problems()):
            raise PlanError(problems)
        n_items, call_ceiling = writer.to_do, writer.ceiling
        ceiling = None if call_ceiling is None else n_items * call_ceiling
        self.write(f"{format_count(n_items)} rubrics to write; cost: at most {format_money(ceiling)}")
        if experiment_row.needs_confirmation(ceiling):
            limit = format_money(experiment_row.confirm_above_usd)
            self.confirm(f"This may cost {format_money(ceiling)}, more than {limit}. Write?", yes)
        texts = writer.request(name=options["name"] or f"{experiment_row.slug}-rubrics", by=resolve_owner(user))
        self.write(f"{texts}: {format_count(n_items)} rubrics were requested")
        if wait:
            wait_for(self, Run.objects.filter(condition=texts.written_by))
            texts.collect()  # A worker of the queue may have stored them already. The draft was empty before.
            missing = format_count(len(texts.find_missing()))
            self.write(f"{texts}: {format_count(texts.texts.count())} new texts, {missing} missing")

    def do_collect(self, reference: str, **options: Any) -> None:
        texts = _find_text_set(reference)
        collected = texts.collect()
        self.write(f"{texts}: {format_count(collected)} new texts, {format_count(len(texts.find_missing()))} missing")

    def do_correct(self, reference: str, item: str, file: Path, reason: str, user: str, **options: Any) -> None:
        texts = _find_text_set(reference)
        row = texts.dataset.items.active().filter(key=item).first()
        if row is None:
            refuse_input(f"item: {texts.dataset} has no active item {item}")
        corrected = texts.correct(row, read_text(file), by=resolve_owner(user), reason=reason)
        self.write(f"{item} was corrected in {corrected}")

    def do_approve(self, reference: str, reason: str, user: str, **options: Any) -> None:
        texts = _find_text_set(reference)
        approver = resolve_approver(user, texts.APPROVAL, str(texts._meta.verbose_name))
        texts.approve(by=approver, reason=reason)
        self.write(f"{texts} is approved. Judges can use it, and it can no longer change")

    def do_archive(self, reference: str, reason: str, user: str, **options: Any) -> None:
        texts = _find_text_set(reference)
        texts.archive(by=resolve_actor(user), reason=reason)
        self.write(f"{texts} is archived")


def _add_write(verbs: Any) -> None:
    parser = verbs.add_parser("write", help="generate the rubric of each item with a model, on an experiment's budget")
    parser.add_argument("experiment")
    parser.add_argument("--template", required=True, metavar="R", help="an approved rubric of kind writer")
    parser.add_argument("--model", required=True, metavar="M", help="the writing model")
    parser.add_argument("--sampler", metavar="S", help="default: temperature 0")
    parser.add_argument("--name", default="", metavar="NAME", help="the name of the set; default: EXPERIMENT-rubrics")
    parser.add_argument("--wait", action="store_true", help="wait until all rubrics are written, and add them")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation of the cost")
    add_user(parser, "the owner; default: the only superuser")


def _build_writer(experiment: Experiment, template: str, model: str, sampler: str | None) -> RubricWriter:
    rows = {
        "template": Rubric.objects.named(template).first(),
        "model": LanguageModel.objects.select_related("endpoint").filter(name=model).first(),
        "sampler": Sampler.objects.named(sampler).first() if sampler else get_or_create_default_sampler(),
    }
    references = {"template": template, "model": model, "sampler": sampler}
    for option, row in rows.items():
        if row is None:
            refuse_input(f"--{option}: there is no {'rubric' if option == 'template' else option} {references[option]}")
    return RubricWriter(experiment, rows["template"], rows["model"], rows["sampler"])  # type: ignore[arg-type]


def _find_text_set(reference: str) -> TextSet:
    text_set: TextSet | None = TextSet.objects.newest(reference).select_related("dataset", "created_by").first()
    if text_set is None:
        refuse_input(f"reference: there is no set of item rubrics {reference}; `item_rubric list` lists them")
    return text_set


def _build_row(texts: TextSet) -> dict[str, Any]:
    return {
        "name": texts.name,
        "version": texts.version,
        "status": texts.status,
        "dataset": str(texts.dataset),
        "content_hash": texts.content_hash,
        "created_by": texts.created_by and texts.created_by.username,
        "approved_at": texts.approved_at,
    }

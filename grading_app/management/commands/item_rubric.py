"""`manage.py item_rubric VERB ...`: item rubrics, written by a model and corrected by people."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from django.db.models import Count

from datasets_app.models import TransitionError
from evalsite.lib.ops.commands import VerbCommand, add_reason, add_user, refuse_input, resolve_actor, resolve_owner
from evalsite.lib.text.number_format import format_count, format_money
from grading_app.judging.default_sampler import get_or_create_default_sampler
from grading_app.judging.item_rubrics import (
    RubricWriter,
    approve_texts,
    collect_texts,
    correct_text,
    find_missing,
    request_rubrics,
)
from grading_app.models import Rubric
from runs_app.management.progress_bar import wait_for
from runs_app.management.versions import REFERENCE, add_list_and_show, print_history, read_text
from runs_app.models import Experiment, LanguageModel, Run, Sampler, TextSet
from runs_app.planning.work import PlanError


class Command(VerbCommand):
    help = "Have a model write a rubric for each item; look at, correct, approve and archive the set."
    refusals: ClassVar[tuple[type[Exception], ...]] = (PlanError, ValueError, TransitionError)

    def add_verbs(self, verbs: Any) -> None:
        add_list_and_show(verbs, "set of item rubrics")
        _add_write(verbs)
        collecting = verbs.add_parser("collect", help="take in what its model wrote since")
        collecting.add_argument("reference", help=REFERENCE)
        correcting = verbs.add_parser("correct", help="say something else of one item")
        correcting.add_argument("reference", help=REFERENCE)
        correcting.add_argument("item", help="the item's key")
        correcting.add_argument("file", type=Path, help="a file with the text")
        add_reason(correcting, needed=True)
        for verb, what in (("approve", "freeze it for judges"), ("archive", "take it out of use")):
            parser = verbs.add_parser(verb, help=what)
            parser.add_argument("reference", help=REFERENCE)
            add_reason(parser, needed=True)

    def do_list(self, json: bool, **options: Any) -> None:
        sets = list(TextSet.objects.select_related("dataset", "created_by").annotate(n=Count("texts")))
        if json:
            self.say_json([_facts(texts) for texts in sets])
            return
        for texts in sets:
            self.say(f"{texts!s:<40} {texts.status:<10} {format_count(texts.n):>8} texts  {texts.dataset}")

    def do_show(self, reference: str, json: bool, **options: Any) -> None:
        texts, missing = _found(reference), []
        missing = find_missing(texts)
        if json:
            self.say_json({**_facts(texts), **texts.content, "missing": missing})
            return
        self.say(f"# {texts}, {texts.status}, for {texts.dataset}; {format_count(len(missing))} items have no text")
        for key, text in texts.content["texts"].items():
            self.say(f"## {key}\n{text}\n")
        print_history(self, texts)

    def do_write(self, experiment: str, yes: bool, wait: bool, user: str, **options: Any) -> None:
        found = Experiment.objects.filter(slug=experiment).first()
        if found is None:
            refuse_input(f"experiment: there is no experiment {experiment}")
        writer = _writer(found, options["template"], options["model"], options["sampler"])
        if problems := list(writer.find_problems()):
            raise PlanError(problems)
        n, each = writer.to_do, writer.ceiling
        ceiling = None if each is None else n * each
        self.say(f"{format_count(n)} rubrics to write; cost: at most {format_money(ceiling)}")
        if found.needs_confirmation(ceiling):
            limit = format_money(found.confirm_above_usd)
            self.confirm(f"This may cost {format_money(ceiling)}, more than {limit}. Write?", yes)
        texts = request_rubrics(writer, name=options["name"] or f"{found.slug}-rubrics", by=resolve_owner(user))
        self.say(f"{texts}: {format_count(n)} rubrics are asked for")
        if wait:
            wait_for(self, Run.objects.filter(condition=texts.written_by))
            self.say(f"{texts}: {format_count(collect_texts(texts))} new texts")

    def do_collect(self, reference: str, **options: Any) -> None:
        texts = _found(reference)
        self.say(
            f"{texts}: {format_count(collect_texts(texts))} new texts, {format_count(len(find_missing(texts)))} missing"
        )

    def do_correct(self, reference: str, item: str, file: Path, reason: str, user: str, **options: Any) -> None:
        texts = _found(reference)
        row = texts.dataset.items.active().filter(key=item).first()
        if row is None:
            refuse_input(f"item: {texts.dataset} has no active item {item}")
        corrected = correct_text(texts, row, read_text(file), by=resolve_owner(user), reason=reason)
        self.say(f"{item} is corrected, in {corrected}")

    def do_approve(self, reference: str, reason: str, user: str, **options: Any) -> None:
        texts = _found(reference)
        approve_texts(texts, by=resolve_actor(user), reason=reason)
        self.say(f"{texts} is approved: judges can read it, and nothing changes it")

    def do_archive(self, reference: str, reason: str, user: str, **options: Any) -> None:
        texts = _found(reference)
        texts.archive(by=resolve_actor(user), reason=reason)
        self.say(f"{texts} is archived")


def _add_write(verbs: Any) -> None:
    parser = verbs.add_parser("write", help="ask a model for the rubric of each item, under an experiment's budget")
    parser.add_argument("experiment")
    parser.add_argument("--template", required=True, metavar="R", help="an approved rubric of kind writer")
    parser.add_argument("--model", required=True, metavar="M", help="the model that writes")
    parser.add_argument("--sampler", metavar="S", help="default: temperature 0")
    parser.add_argument("--name", default="", metavar="NAME", help="of the set; default: EXPERIMENT-rubrics")
    parser.add_argument("--wait", action="store_true", help="until all are written, and take them in")
    parser.add_argument("--yes", action="store_true", help="the cost is known")
    add_user(parser, "whose it is; default: the only superuser")


def _writer(experiment: Experiment, template: str, model: str, sampler: str | None) -> RubricWriter:
    by = {
        "template": Rubric.objects.named(template).first(),
        "model": LanguageModel.objects.select_related("endpoint").filter(name=model).first(),
        "sampler": Sampler.objects.named(sampler).first() if sampler else get_or_create_default_sampler(),
    }
    named = {"template": template, "model": model, "sampler": sampler}
    for option, row in by.items():
        if row is None:
            refuse_input(f"--{option}: there is no {'rubric' if option == 'template' else option} {named[option]}")
    return RubricWriter(experiment, by["template"], by["model"], by["sampler"])  # type: ignore[arg-type]


def _found(reference: str) -> TextSet:
    found: TextSet | None = TextSet.objects.named(reference).select_related("dataset", "created_by").first()
    if found is None:
        refuse_input(f"reference: there is no set of item rubrics {reference}; `item_rubric list` lists them")
    return found


def _facts(texts: TextSet) -> dict[str, Any]:
    return {
        "name": texts.name,
        "version": texts.version,
        "status": texts.status,
        "dataset": str(texts.dataset),
        "content_hash": texts.content_hash,
        "created_by": texts.created_by and texts.created_by.username,
        "approved_at": texts.approved_at,
    }

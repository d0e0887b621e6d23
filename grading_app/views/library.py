"""The library: prompts, samplers, dimensions and rubrics, with their versions, an editor, and their approval.

A design's form opens the editor in a dialog. Without a script, the editor is a page with a way back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_htmx.http import trigger_client_event

from evalsite.lib.history import TransitionError
from evalsite.lib.permissions import members_only
from evalsite.lib.text.diff import DiffRow, compare_lines
from evalsite.lib.web.addresses import read_key
from evalsite.lib.web.form_fields import fetch_choices
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.long_text import build_numbered_text_response
from evalsite.lib.web.model_names import hides_model_names
from grading_app.forms.rubrics import RubricForm, RubricPreviewForm
from grading_app.models import Rubric
from grading_app.views.library_previews import (
    build_prompt_preview,
    build_rubric_preview,
    describe_version,
    list_gradings,
    read_try,
    request_try,
)
from runs_app import first_study
from runs_app.forms.definitions import DimensionForm, PromptForm, PromptPreviewForm, SamplerForm
from runs_app.llm import rubric_checks
from runs_app.llm.prompts import PromptError
from runs_app.models import Dimension, Preflight, Prompt, Sampler
from runs_app.models.designs import Versioned, check_archivable
from runs_app.planning.shipped_designs import GENERAL_PROMPTS

PAGE_SIZE = 50  # Names on a page of the list.
MAX_EXPERIMENTS = 100  # Experiments that the page of a version lists.


@dataclass(frozen=True)
class LibraryKind:
    """A kind of versioned definitions: its address, its form, and its field in the form of a design, if any."""

    slug: str
    model: Any
    form: Any
    about: str
    axis: str = ""

    @property
    def title(self) -> str:
        return self.slug.capitalize()

    @property
    def noun(self) -> str:
        return str(self.model._meta.verbose_name)

    def allows(self, user: Any, verb: str) -> bool:
        """Return whether the user may add or change rows of this kind."""
        meta = self.model._meta
        return bool(user.has_perm(f"{meta.app_label}.{verb}_{meta.model_name}"))


KINDS = {
    kind.slug: kind
    for kind in (
        LibraryKind("prompts", Prompt, PromptForm, "The messages that a model gets about each item.", "prompts"),
        LibraryKind(
            "samplers", Sampler, SamplerForm, "The settings of a call, such as temperature and length.", "samplers"
        ),
        LibraryKind(
            "dimensions", Dimension, DimensionForm, "What people and models rate, and on which scale.", "dimensions"
        ),
        LibraryKind("rubrics", Rubric, RubricForm, "The instructions of a judge, and the form of its verdict."),
    )
}


def get_kind(slug: str) -> LibraryKind:
    if slug not in KINDS:
        raise Http404
    return KINDS[slug]


def get_version(kind: LibraryKind, user: Any, name: str, version: int) -> Versioned:
    rows = kind.model.objects.visible_to(user).select_related("created_by")
    row: Versioned = get_object_or_404(rows, name=name, version=version)
    return row


@require_safe
@members_only
@hides_model_names()
def library(request: HttpRequest) -> HttpResponse:
    return redirect("library_list", "prompts")


@require_safe
@members_only
@hides_model_names()
def library_list(request: HttpRequest, kind: str) -> HttpResponse:
    """List the names of a kind, each with its versions. Names whose versions are all archived are shown on request."""
    shown = get_kind(kind)
    words, with_archived = request.GET.get("q", "").strip(), "archived" in request.GET
    rows = shown.model.objects.visible_to(request.user)
    if words:
        rows = rows.filter(name__icontains=words.replace("\0", ""))
    if not with_archived:
        rows = rows.exclude(status=Versioned.Status.ARCHIVED)
    names = rows.order_by("name").values_list("name", flat=True).distinct()
    page = Paginator(names, PAGE_SIZE).get_page(request.GET.get("page"))
    versions: dict[str, list[Versioned]] = {name: [] for name in page.object_list}
    for row in rows.filter(name__in=list(versions)).select_related("created_by").order_by("name", "-version"):
        versions[row.name].append(row)
    entries = []
    for of_name in filter(None, versions.values()):
        # The version that the name means in a design.
        meant = next((row for row in of_name if row.status == Versioned.Status.APPROVED), None)
        entries.append({"versions": of_name, "meant": meant, "summary": summarise_version(meant or of_name[0])})
    context = {
        "kind": shown,
        "page": page,
        "entries": entries,
        "words": words,
        "with_archived": with_archived,
        "may_add": shown.allows(request.user, "add"),
    }
    return render(request, "grading_app/library/list.html", context)


def summarise_version(row: Any) -> str:
    """Return the content of a version in one line."""
    if isinstance(row, Sampler):
        return row.summary
    if isinstance(row, Dimension):
        return f"{row.scale_min} to {row.scale_max}: {row.instructions}"
    turns = " ".join(turn["content"] for turn in row.messages if turn["role"] != "system")
    return f"{row.get_kind_display()}: {turns}" if isinstance(row, Rubric) else turns


@require_safe
@members_only
@hides_model_names()
def library_page(request: HttpRequest, kind: str, name: str) -> HttpResponse:
    """Show the versions of a name: one of them, and its differences from another."""
    shown = get_kind(kind)
    versions = list(shown.model.objects.visible_to(request.user).filter(name=name).select_related("created_by"))
    if not versions:
        raise Http404
    meant = next((row for row in versions if row.status == Versioned.Status.APPROVED), None)
    row = _choose_version(versions, request.GET.get("version", "")) or meant or versions[0]
    older = [other for other in versions if other.version < row.version]
    others = [other for other in versions if other != row]
    before = _choose_version(others, request.GET.get("with", "")) or next(iter(older or others), None)
    context = {
        "kind": shown,
        "name": name,
        "row": row,
        "meant": meant,
        "versions": versions,
        "others": others,
        "before": before,
        "changes": compare_versions(before, row) if before else [],
        "parts": describe_version(row),
        "turns": row.messages if isinstance(row, Prompt | Rubric) else [],
        "may_add": shown.allows(request.user, "add"),
        "may_edit": row.may_edit(request.user),
        "may_approve": row.status in row.UNAPPROVED and row.may_approve(request.user),
        "may_archive": _may_archive(shown, row, request.user),
        "history": list(row.history[:20]),
        "experiments": (
            []
            if isinstance(row, Rubric)
            else list(row.experiments.visible_to(request.user).order_by("slug")[:MAX_EXPERIMENTS])
        ),
        "gradings": list_gradings(row, request.user) if isinstance(row, Rubric) else [],
        "may_judge": isinstance(row, Rubric) and row.can_judge and request.user.has_perm("grading_app.add_grader"),
    }
    return render(request, "grading_app/library/page.html", context)


def _choose_version(versions: Iterable[Any], written: str) -> Any:
    """Return the version with this number, or None without a number. Raise Http404 for an unknown one."""
    if not written:
        return None
    chosen = next((row for row in versions if str(row.version) == written), None)
    if chosen is None:
        raise Http404
    return chosen


def _may_archive(kind: LibraryKind, row: Versioned, user: Any) -> bool:
    if row.status not in row.IN_USE or not kind.allows(user, "change"):
        return False
    try:
        check_archivable(row, user)
    except TransitionError:
        return False
    return True


def compare_versions(before: Any, after: Any) -> list[tuple[str, list[DiffRow]]]:
    """Return the line differences of each part, in reading order."""
    old, new = dict(describe_version(before, whole=True)), dict(describe_version(after, whole=True))
    names = list(dict.fromkeys([*old, *new]))
    return [(name, compare_lines(old.get(name, ""), new.get(name, ""))) for name in names]


# The editor -----------------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
@hides_model_names()
def library_new(request: HttpRequest, kind: str) -> HttpResponse:
    """Write a new name, or with `from` in the address the next version of an existing name."""
    shown = get_kind(kind)
    if not shown.allows(request.user, "add"):
        raise Http404
    source = request.GET.get("from", "")
    if not source:
        return _edit(request, shown, shown.model(), starter=_get_starter(shown, request))
    if not source.isdecimal() or len(source) > 18:
        raise Http404
    former = get_object_or_404(shown.model.objects.visible_to(request.user), pk=int(source))
    return _edit(request, shown, former.copy_content(), former=former)


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
@hides_model_names()
def library_edit(request: HttpRequest, kind: str, name: str, version: int) -> HttpResponse:
    """Change a draft. Any other version is frozen."""
    shown = get_kind(kind)
    row = get_version(shown, request.user, name, version)
    if not row.may_edit(request.user):
        raise Http404
    return _edit(request, shown, row)


def _get_starter(kind: LibraryKind, request: HttpRequest) -> dict[str, Any]:
    """Return the initial values of a new definition: for a rubric, of the kind in the address."""
    if kind.model is Rubric:
        name = request.GET.get("starter", "score")
        starter = rubric_checks.STARTERS.get(name)  # type: ignore[call-overload]
        if starter is None:
            raise Http404
        return {"kind": name, "system": starter.system, "user": starter.user, **starter.fields}
    if kind.model is Prompt:
        dataset = _find_dataset(request)
        guess = first_study.guess_question(dataset) if dataset else None
        return {"user": guess.prompt if guess else str(GENERAL_PROMPTS["plain"]["messages"][0]["content"])}
    return {}


def _find_dataset(request: HttpRequest) -> Any:
    return first_study.find_dataset(request.user, read_key(request.GET.get("dataset", "")))


def _edit(
    request: HttpRequest, kind: LibraryKind, row: Any, *, former: Any = None, starter: dict[str, Any] | None = None
) -> HttpResponse:
    """Show the editor, or save the row, and approve it if the button for that was pressed."""
    data = request.POST if request.method == "POST" else None
    form = kind.form(data, instance=row, initial=starter or {}, auto_id="editor-%s")
    if row.name:
        del form.fields["name"]  # A version with another name would belong to another definition.
    reason = read_reason(request)
    approves = request.POST.get("do") == "approve" and row.may_approve(request.user)
    if data is not None and form.is_valid():
        if not row.name or (row.pk is None and former is None):
            name = form.cleaned_data.get("name")
            if name and kind.model.objects.filter(name=name).exists():
                form.add_error(
                    "name", f"There is a {kind.noun} {name}. Choose another name, or open it and make a new version."
                )
        if approves and not reason:
            form.add_error(None, "Enter a reason for the approval. It is stored in the history.")
        if not form.errors and _save(request, form, reason if approves else ""):
            return _finish(request, kind, form.instance)
    fetch_choices(form)
    shown = former or row
    context = {
        "kind": kind,
        "form": form,
        "former": former,
        "row": row,
        "heading": f"New version of {former.name}" if former else f"Edit {row}" if row.pk else f"New {kind.noun}",
        "may_approve": row.may_approve(request.user),
        "reason": reason,
        "next": get_next_page(request),
        "cancel_url": shown.get_absolute_url() if shown.pk else reverse("library_list", args=[kind.slug]),
        "starters": Rubric.Kind.choices if kind.model is Rubric and row.pk is None and former is None else [],
        **_build_preview(request, kind, form),
    }
    part = wants_part(request)
    return render(request, f"grading_app/library/{'editor' if part else 'edit'}.html", context | {"in_dialog": part})


def _save(request: HttpRequest, form: Any, reason: str) -> bool:
    """Save the form's row, and approve it if there is a reason. Return whether that was possible."""
    row = form.save(commit=False)
    try:
        with transaction.atomic():
            if row.pk is None:
                row.add_version(by=request.user)
            else:
                row.save()
            if reason:
                row.approve(by=cast(User, request.user), reason=reason)
    except (ValueError, TransitionError) as problem:
        form.add_error(None, str(problem))
    except IntegrityError:
        form.add_error(None, "Somebody changed or approved this version at the same time. Open it again.")
    return not form.errors


def read_reason(request: HttpRequest) -> str:
    """Return the reason for a change of state, as the history can store it."""
    return request.POST.get("reason", "").replace("\0", "").strip()[:500]


def get_next_page(request: HttpRequest) -> str:
    """Return the path to go back to, or an empty text. Addresses of other sites and relative ones are ignored."""
    address = request.POST.get("next") or request.GET.get("next", "")
    is_safe = url_has_allowed_host_and_scheme(
        address, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return address if is_safe and address.startswith("/") else ""


def _finish(request: HttpRequest, kind: LibraryKind, row: Any) -> HttpResponse:
    """Lead back with the new row chosen: the dialog closes, or the browser opens the page that it came from."""
    text = f"{row} is saved{' and approved' if row.status == row.Status.APPROVED else ' as a draft'}."
    if wants_part(request):
        response = HttpResponse(status=204)
        return trigger_client_event(response, "made", {"field": kind.axis, "value": str(row.pk), "text": text})
    messages.success(request, text)
    if (address := get_next_page(request)) and kind.axis:
        return redirect(f"{address}{'&' if '?' in address else '?'}{urlencode({kind.axis: row.pk})}")
    return redirect(address or row)


@require_POST
@members_only
@hides_model_names()
def library_preview(request: HttpRequest, kind: str) -> HttpResponse:
    """Show the exact messages of the text in the editor, saved or not. No model is called."""
    shown = get_kind(kind)
    form = _read_editor(request, shown)
    context = {"kind": shown, "slug": kind, **_build_preview(request, shown, form)}
    if "whole" in request.GET:
        turns = context["preview"]["turns"].turns if context.get("preview") else []
        texts = (turn.text for turn in turns)
        return build_numbered_text_response(texts, request.GET["whole"], f"{shown.noun}-message")
    part = "preview" if wants_part(request) else "preview_page"
    return render(request, f"grading_app/library/{part}.html", context | {"unsaved": _list_posted(request)})


def _list_posted(request: HttpRequest) -> list[tuple[str, str]]:
    """Return the fields of the editor, which a page without a script sends again."""
    left_out = ("csrfmiddlewaretoken", "call", "do")
    return [(name, value) for name, values in request.POST.lists() for value in values if name not in left_out]


def _read_editor(request: HttpRequest, kind: LibraryKind) -> Any:
    """Return the form with the text in the editor, or with the stored rubric that the page of a judge has chosen."""
    chosen = request.POST.get("rubric", "") if kind.model is Rubric else ""
    if chosen:
        rows = Rubric.objects.visible_to(request.user)
        stored = get_object_or_404(rows, pk=read_key(chosen) or 0)
        return kind.form(instance=stored, auto_id="editor-%s")
    form = kind.form(request.POST, auto_id="editor-%s")
    form.fields.pop("name")
    return form


def _build_preview(request: HttpRequest, kind: LibraryKind, form: Any) -> dict[str, Any]:
    """Return the form that chooses what to preview, and the preview of the editor's text; {} for other kinds."""
    if kind.model is Prompt:
        dataset = _find_dataset(request)
        choice: Any = PromptPreviewForm(
            request.POST if request.method == "POST" else None,
            user=request.user,
            initial={"dataset": dataset.pk if dataset else None},
            auto_id="editor-%s",
        )
        fetch_choices(choice)
        return {"choice": choice, "preview": build_prompt_preview(form, choice, dataset), "data": request.POST}
    if kind.model is Rubric:
        choice = RubricPreviewForm(
            request.POST if request.method == "POST" else None, user=request.user, auto_id="editor-%s"
        )
        fetch_choices(choice)
        variables = {name: rubric_checks.list_variables(name) for name in rubric_checks.STARTERS}
        return {
            "choice": choice,
            "preview": build_rubric_preview(form, choice),
            "variables": variables,
            "rubric_kind": form["kind"].value(),
        }
    return {}


@require_POST
@members_only
@hides_model_names()
def library_try(request: HttpRequest, kind: str) -> HttpResponse:
    """Send one call with the text in the editor (POST), or show the state of such a call (POST with `call`)."""
    shown = get_kind(kind)
    if shown.model not in (Prompt, Rubric):
        raise Http404
    form = _read_editor(request, shown)
    context: dict[str, Any] = {"kind": shown, "slug": kind}
    choice = _build_preview(request, shown, form)["choice"]
    written = request.POST.get("call", "")
    try:
        if written:
            calls = Preflight.objects.filter(by=cast(User, request.user)).exclude(about="")
            call = get_object_or_404(calls, pk=read_key(written) or 0)
        else:
            call = request_try(form, choice, by=cast(User, request.user))
        context |= {"call": call, **read_try(call, form, choice)}
    except PromptError as problem:
        context["problem"] = str(problem)
    part = "try" if wants_part(request) else "try_page"
    return render(request, f"grading_app/library/{part}.html", context | {"unsaved": _list_posted(request)})


# Approval and archive -------------------------------------------------------------------------------------------------


@require_POST
@members_only
@hides_model_names()
def library_act(request: HttpRequest, kind: str, name: str, version: int, verb: str) -> HttpResponse:
    """Approve or archive a version, by the same rules as everywhere else."""
    shown = get_kind(kind)
    row = get_version(shown, request.user, name, version)
    if verb not in ("approve", "archive") or not shown.allows(request.user, "change"):
        raise Http404
    if verb == "approve" and not row.may_approve(request.user):
        raise Http404
    reason = read_reason(request)
    if not reason:
        messages.error(request, "Enter a reason. It is stored in the history.")
        return redirect(row)
    user = cast(User, request.user)
    try:
        if verb == "approve":
            row.approve(by=user, reason=reason)
            done = f"{row} is approved. {row.name} without a version now means it, unless a newer version is approved."
        else:
            row.archive(by=user, reason=reason)
            done = f"{row} is archived. Experiments that use it keep it."
    except (TransitionError, ValueError) as problem:
        messages.error(request, str(problem))
    else:
        messages.success(request, done)
    return redirect(row)

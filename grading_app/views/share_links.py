"""Share links: the page of an experiment that creates and revokes them, and the read-only pages that they open.

Each public view finds its link again, so a link ends at once when it expires or is revoked. Every failure, also that of
a part which the link does not show, is the same 404. No public page has a form, and none shows a user. Until a
preregistered plan has run, only the design is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import django_tables2 as tables
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from evalsite.lib.models import FailedSignIn, TooManyFailures
from evalsite.lib.permissions import members_only
from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from evalsite.lib.web.model_names import hides_model_names
from evalsite.lib.web.sign_in import get_client_address
from grading_app.models import ShareLink
from grading_app.publish.figures.figure_set import FigureSource
from grading_app.publish.forms import ShareLinkForm
from grading_app.publish.report.build import drop_money_columns, get_report, is_cost_figure, leave_out_costs
from grading_app.publish.report.document import Document
from grading_app.publish.report.files import FILE_TYPES
from grading_app.results.figure import Figure
from grading_app.results.leaderboard import BoardQuery
from grading_app.results.leaderboard_tables import BEST_NOTE, make_leaderboard_table
from grading_app.results.plot_style import WIDE
from grading_app.results.stored_results import get_leaderboard
from grading_app.views.reports import (
    get_stored_document,
    list_page_sections,
    make_figure_response,
    make_file_response,
)
from grading_app.views.tables.results import make_html_table
from grading_app.views.tables_and_figures import make_svg_response, read_theme, read_width, svg_policy
from runs_app.tables.columns import TimeColumn
from runs_app.views.permissions import get_editable_experiment, get_posted_data

MAX_GUESSES = 100
"""Tokens that one address may try in vain within FailedSignIn.WINDOW."""
DESIGN = ("question", "data", "models", "prompts", "settings")
MAX_SHOWN = 200  # Links on the page.
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow",
}
Public = Callable[..., HttpResponse]


class ShareLinkTable(tables.Table):
    scope = tables.Column(verbose_name="Shows")
    label = tables.Column(verbose_name="For")
    created_at = tables.Column(verbose_name="Created")
    expires_at = TimeColumn(verbose_name="Valid until", attrs={})
    state = tables.TemplateColumn(template_name="grading_app/partials/share_link_state.html")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def render_scope(self, record: ShareLink) -> str:
        return f"{record.get_scope_display()}{', with costs' if record.shows_costs else ''}"

    def render_created_at(self, record: ShareLink) -> SafeString:
        author = record.created_by or number_format.MISSING
        return format_html("{}, {}", tags.local_time(record.created_at), author)


@require_http_methods(["GET", "HEAD", "POST"])
@members_only
@hides_model_names()
def share_links(request: HttpRequest, slug: str) -> HttpResponse:
    """List the links of an experiment, and create one. Its address is shown once, because only its hash is stored."""
    experiment = get_editable_experiment(request, slug)
    form, address = ShareLinkForm(get_posted_data(request)[0]), ""
    if request.method == "POST" and form.is_valid():
        cleaned = form.cleaned_data
        chosen = {name: cleaned[name] for name in ("label", "shows_costs")}
        _, token = ShareLink.create(experiment, cleaned["scope"], form.expires_at, by=request.user, **chosen)
        address = request.build_absolute_uri(reverse("shared", args=[token]))
        form = ShareLinkForm()
    links = list(ShareLink.objects.filter(experiment=experiment).select_related("created_by")[:MAX_SHOWN])
    context = {"experiment": experiment, "form": form, "links": ShareLinkTable(links), "address": address}
    response = render(request, "grading_app/share_links.html", context)
    response["Cache-Control"] = "private, no-store"
    return response


@require_POST
@members_only
@hides_model_names()
def share_link_revoke(request: HttpRequest, slug: str, pk: int) -> HttpResponse:
    experiment = get_editable_experiment(request, slug)
    link = get_object_or_404(ShareLink.objects.visible_to(request.user), pk=pk, experiment=experiment)
    changed = link.revoke(by=request.user)
    messages.success(request, "The link is revoked." if changed else "The link was revoked before.")
    return redirect("share_links", slug)


def link_required(scope: str, *, has_results: bool = True) -> Callable[[Public], Public]:
    """Pass the usable link of the token to the view if it shows this part; else answer the one 404 of all links.

    has_results: the part shows results, so that its page waits until a preregistered plan has run.
    """

    def decorate(view: Public) -> Public:
        @wraps(view)
        def wrapped(request: HttpRequest, token: str, **named: Any) -> HttpResponse:
            link, response = _find_link(request, token), None
            if isinstance(link, HttpResponse):
                response = link
            elif link is not None and not link.experiment.is_stored and (not scope or link.shows(scope)):
                try:
                    if has_results and link.experiment.runs_a_plan:
                        if not request.path.endswith("/"):  # No page stands in place of a file or a figure.
                            raise Http404
                        response = _render_page(request, "waiting", _make_context(link, token))
                    else:
                        response = view(request, link, token, **named)
                except Http404:
                    response = None
            response = response or _render_page(request, "gone", {}, status=404)
            for name, value in HEADERS.items():
                response[name] = value
            return response

        return login_not_required(require_safe(wrapped))

    return decorate


def _find_link(request: HttpRequest, token: str) -> ShareLink | HttpResponse | None:
    """Return the usable link of the token, None, or 429 for an address with too many wrong tokens."""
    try:
        guess = FailedSignIn.objects.begin({f"shared {get_client_address(request)}": MAX_GUESSES})
    except TooManyFailures as refusal:
        response = _render_page(request, "gone", {}, status=429)
        response["Retry-After"] = str(refusal.seconds)
        return response
    link = ShareLink.objects.find(token)
    if link is not None:
        FailedSignIn.objects.filter(pk__in=guess).delete()
    return link


@link_required("", has_results=False)
def shared(request: HttpRequest, link: ShareLink, token: str) -> HttpResponse:
    """Open the link: its only part, or a page with all parts of the experiment."""
    if link.scope == ShareLink.Scope.REPORT:
        return redirect("shared_report", token)
    if link.scope == ShareLink.Scope.LEADERBOARD:
        return redirect("shared_leaderboard", token)
    return _render_page(request, "experiment", _make_context(link, token))


def _render_page(request: HttpRequest, name: str, context: dict[str, Any], status: int = 200) -> HttpResponse:
    """Render a public page without the context of a session: it names no user, sets no cookie and has no CSRF token."""
    page = render_to_string(f"grading_app/shared/{name}.html", {**context, "request": request})
    return HttpResponse(page, status=status)


def _make_context(link: ShareLink, token: str, **more: Any) -> dict[str, Any]:
    whole = link.scope == ShareLink.Scope.EXPERIMENT
    return {"link": link, "experiment": link.experiment, "token": token, "is_whole": whole, **more}


def _get_document(link: ShareLink) -> Document | None:
    """Return the report as the readers of the link see it; None before a worker has written it."""
    document = get_stored_document(link.experiment)[1]
    return document if document is None or link.shows_costs else leave_out_costs(document)


@link_required(ShareLink.Scope.REPORT)
def shared_report(request: HttpRequest, link: ShareLink, token: str) -> HttpResponse:
    document = _get_document(link)
    context = _make_context(link, token, document=document, formats=list(FILE_TYPES))
    if document is not None:
        stem = reverse("shared_report_figure", args=[token, "NAME"])
        context["sections"] = list_page_sections(document, lambda name: stem.replace("NAME", name))
    return _render_page(request, "report", context)


@link_required(ShareLink.Scope.REPORT)
@svg_policy
def shared_report_figure(request: HttpRequest, link: ShareLink, token: str, name: str) -> HttpResponse:
    return make_figure_response(request, _get_document(link), name)


@link_required(ShareLink.Scope.REPORT)
def shared_report_file(request: HttpRequest, link: ShareLink, token: str, file_format: str) -> HttpResponse:
    return make_file_response(_get_document(link), file_format)


@link_required(ShareLink.Scope.LEADERBOARD)
def shared_leaderboard(request: HttpRequest, link: ShareLink, token: str) -> HttpResponse:
    board = get_leaderboard(BoardQuery(link.experiment))
    table = make_leaderboard_table(board) if board and board.measures else None
    if table is not None:
        table = table if link.shows_costs else drop_money_columns(table)
        # Without columns of texts that are empty in every row, such as who is best on a measure.
        columns = [one for one in table.columns if one.kind != "text" or any(row.get(one.name) for row in table.rows)]
        has_best = any(one.label == "Best" for one in columns)
        table = replace(table, columns=columns, correction=BEST_NOTE if has_best else "")
    context = _make_context(link, token, table=table, html=make_html_table(table) if table else None)
    return _render_page(request, "leaderboard", context)


@link_required(ShareLink.Scope.EXPERIMENT, has_results=False)
def shared_design(request: HttpRequest, link: ShareLink, token: str) -> HttpResponse:
    """Show the sections of the report that describe the design. The experiment's file would name endpoints."""
    stored = get_report(link.experiment).value
    document = stored.document if stored else None
    if document is not None:
        document = document if link.shows_costs else leave_out_costs(document)
        document = replace(document, sections=[one for one in document.sections if one.name in DESIGN])
    context = _make_context(link, token, document=document, formats=[])
    context["sections"] = list_page_sections(document, str) if document else []
    return _render_page(request, "report", context)


def _shows_figure(link: ShareLink, figure: Figure) -> bool:
    return link.shows_costs or not is_cost_figure(figure)


@link_required(ShareLink.Scope.EXPERIMENT)
def shared_figures(request: HttpRequest, link: ShareLink, token: str) -> HttpResponse:
    source = _make_figure_source(request, link)
    query = f"?{urlencode({'measure': source.measure.key})}" if source.measure else ""
    figures = [
        {
            **{name: getattr(figure, name) for name in ("name", "title", "caption", "alt")},
            "address": reverse("shared_figure", args=[token, figure.name]) + query,
            "size": figure.size(WIDE),
        }
        for figure in source.list_figures()
        if _shows_figure(link, figure)
    ]
    context = _make_context(link, token, figures=figures, measures=source.measures, shown=source.measure)
    return _render_page(request, "figures", context)


def _make_figure_source(request: HttpRequest, link: ShareLink) -> FigureSource:
    """Return the data of the figures of the measure in the address. Readers of a link have no other choice."""
    data = QueryDict(mutable=True)
    if measure := request.GET.get("measure", ""):
        data["measure"] = measure
    source = FigureSource(link.experiment, data)
    if measure and source.measure is None:
        raise Http404
    return source


@link_required(ShareLink.Scope.EXPERIMENT)
@svg_policy
def shared_figure(request: HttpRequest, link: ShareLink, token: str, name: str) -> HttpResponse:
    figure = _make_figure_source(request, link).find_figure(name)
    if figure is None or not _shows_figure(link, figure):
        raise Http404
    return make_svg_response(figure, read_width(request), read_theme(request))

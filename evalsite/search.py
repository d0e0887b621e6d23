"""The search over experiments, datasets, the library, items and pages, as a page and as a dialog (Ctrl-K)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from django.contrib.postgres.search import SearchQuery
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from datasets_app.models import Dataset, Item
from datasets_app.models.items import ITEM_WORDS
from evalsite.lib.permissions import is_member, is_operator, readers_only
from evalsite.lib.web.htmx import wants_part
from evalsite.lib.web.model_names import hides_model_names
from grading_app.models import Grader
from grading_app.views.library import KINDS
from runs_app.models import Experiment, LanguageModel

MAX_FOUND = 8
"""The number of results of each kind."""
MAX_HITS = 1000
"""The number of items that match the words, of which the newest are shown."""
MAX_WORDS = 8
MIN_LENGTH = 2
PAGES = (
    ("Home", "home", "needs you, latest results, spending", "reader"),
    ("Datasets", "dataset_list", "data, items, norms", "reader"),
    ("Experiments", "experiment_list", "studies, runs, results", "reader"),
    ("Trials", "trial_list", "answers, calls", "reader"),
    ("Compare", "compare", "two conditions, differences", "reader"),
    ("Task leaderboard", "leaderboard", "parametric tasks, models", "reader"),
    ("New experiment", "experiment_new", "design", "member"),
    ("Start", "start", "first result, wizard", "member"),
    ("Import a study", "study_import_new", "logs, snapshot, Inspect", "member"),
    ("Library", "library", "prompts, samplers, dimensions, rubrics", "member"),
    ("Judges", "judge_list", "graders, panels", "member"),
    ("People's ratings", "rating_queue_list", "queues, raters, annotation", "member"),
    ("Models", "endpoint_list", "endpoints, keys, prices", "member"),
    ("Workers", "worker_list", "processes, queue", "member"),
    ("Batches", "batch_list", "provider batches", "reader"),
    ("Costs", "ledger", "spending, budget, ledger", "operator"),
    ("Access tokens", "token_list", "API, client", "reader"),
)
"""Each page with its address, other words for it, and who may open it."""


class Found(NamedTuple):
    """One result: its name, a line below it, and its address."""

    name: str
    detail: str
    url: str


class Group(NamedTuple):
    title: str
    found: list[Found]


@require_safe
@readers_only
@hides_model_names()
def search(request: HttpRequest) -> HttpResponse:
    """Show what the words in `q` find, as a page or, for the dialog, as a part."""
    text = request.GET.get("q", "").strip()
    groups = search_site(request.user, text) if len(text) >= MIN_LENGTH else []
    context = {"q": text, "groups": groups, "is_short": 0 < len(text) < MIN_LENGTH}
    return render(request, "partials/search_results.html" if wants_part(request) else "search.html", context)


def search_site(user: Any, text: str) -> list[Group]:
    """Return the groups with results. Each row is one that the user may see; every word must occur."""
    words = text.split()[:MAX_WORDS]
    groups = (
        Group("Experiments", list(_find_experiments(user, words))),
        Group("Datasets", list(_find_datasets(user, words))),
        Group("Library", list(_find_definitions(user, words))),
        Group("Items", list(_find_items(user, words))),
        Group("Pages", list(_find_pages(user, words))),
    )
    return [group for group in groups if group.found]


def _match(words: Iterable[str], *fields: str) -> Q:
    """Return the condition that each word occurs in one of the fields."""
    condition = Q()
    for word in words:
        anywhere = Q()
        for field in fields:
            anywhere |= Q(**{f"{field}__icontains": word})
        condition &= anywhere
    return condition


def _find_experiments(user: Any, words: list[str]) -> Iterator[Found]:
    experiments = Experiment.objects.visible_to(user).filter(_match(words, "slug", "title", "dataset__slug"))
    for experiment in experiments.select_related("dataset").order_by("-pk").distinct()[:MAX_FOUND]:
        detail = " · ".join(filter(None, (experiment.title, str(experiment.dataset))))
        yield Found(experiment.slug, detail, experiment.get_absolute_url())


def _find_datasets(user: Any, words: list[str]) -> Iterator[Found]:
    datasets = Dataset.objects.visible_to(user).filter(_match(words, "slug", "title"))
    for dataset in datasets.order_by("-pk").distinct()[:MAX_FOUND]:
        yield Found(str(dataset), dataset.title, dataset.get_absolute_url())


def _find_definitions(user: Any, words: list[str]) -> Iterator[Found]:
    """Yield prompts, samplers, dimensions, rubrics, judges and models, the newest version of each name."""
    if not is_member(user):
        return
    for kind in KINDS.values():
        rows = kind.model.objects.visible_to(user).filter(_match(words, "name"))
        for name in rows.order_by("name").values_list("name", flat=True).distinct()[:MAX_FOUND]:
            yield Found(name, kind.noun, reverse("library_page", args=[kind.slug, name]))
    graders = Grader.objects.filter(_match(words, "name"))
    for name in graders.order_by("name").values_list("name", flat=True).distinct()[:MAX_FOUND]:
        yield Found(name, "judge", reverse("judge_page", args=[name]))
    models = LanguageModel.objects.filter(_match(words, "name", "model")).order_by("name")[:MAX_FOUND]
    for model in models:
        yield Found(model.name, "model", f"{reverse('endpoint_list')}#model-{model.pk}")


def _find_items(user: Any, words: list[str]) -> Iterator[Found]:
    """Yield items by the beginnings of words in their key and their text, through the index of words."""
    parts = [part for word in words for part in re.findall(r"\w+", word)]
    if not parts:
        return
    query = SearchQuery(" & ".join(f"{part}:*" for part in parts), search_type="raw", config="simple")
    # Ordered or joined in one statement, the database would read all items from the newest on.
    matches = Item.objects.annotate(words=ITEM_WORDS).filter(words=query).visible_to(user).order_by()
    newest = sorted(matches.values_list("pk", flat=True)[:MAX_HITS], reverse=True)[:MAX_FOUND]
    found: Iterable[Any] = Item.objects.filter(pk__in=newest).with_excerpts().select_related("dataset").order_by("-pk")
    for item in found:
        yield Found(item.excerpt or item.key, f"{item.key} · {item.dataset}", reverse("item_page", args=[item.pk]))


def _find_pages(user: Any, words: list[str]) -> Iterator[Found]:
    allowed = {"reader", *(["member"] if is_member(user) else []), *(["operator"] if is_operator(user) else [])}
    for title, name, also, who in PAGES:
        if who in allowed and all(word.lower() in f"{title} {also}".lower() for word in words):
            yield Found(title, also, reverse(name))

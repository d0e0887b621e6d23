"""Queues of ratings and their raters, read-only. They are changed on their own pages."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from evalsite.lib.web.admin import ReadOnlyAdmin, history_list
from grading_app.models import RaterAssignment, RatingQueue
from runs_app.admin.experiments import VisibleAdmin


@admin.register(RatingQueue)
class RatingQueueAdmin(VisibleAdmin):
    list_display = ["name", "status", "dataset", "raters_wanted", "owner", "created_at"]
    list_filter = ["status"]
    list_select_related = ["dataset", "owner"]
    search_fields = ["name", "title"]
    readonly_fields: ClassVar[Any] = [history_list]


@admin.register(RaterAssignment)
class RaterAssignmentAdmin(ReadOnlyAdmin):
    list_display = ["queue", "number", "user", "dimension", "by_link", "started_at", "finished_at", "excluded_at"]
    list_filter = [("queue", admin.RelatedOnlyFieldListFilter)]
    list_select_related = ["queue", "user", "dimension"]
    exclude = ["seed"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[RaterAssignment]:
        """Return assignments of the queues that the user may see.

        A queue over answers is as private as its experiment.
        """
        return super().get_queryset(request).filter(queue__in=RatingQueue.objects.visible_to(request.user))

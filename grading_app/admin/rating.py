"""Queues of ratings and their raters, to be read; they are changed on their own pages."""

from typing import Any, ClassVar

from django.contrib import admin

from evalsite.lib.admin import ReadOnlyAdmin, history_list
from grading_app.models import RaterAssignment, RatingQueue


@admin.register(RatingQueue)
class RatingQueueAdmin(ReadOnlyAdmin):
    list_display = ["name", "status", "dataset", "raters_wanted", "owner", "created_at"]
    list_filter = ["status"]
    list_select_related = ["dataset", "owner"]
    search_fields = ["name", "title"]
    readonly_fields: ClassVar[Any] = [history_list]


@admin.register(RaterAssignment)
class RaterAssignmentAdmin(ReadOnlyAdmin):
    list_display = ["queue", "number", "user", "dimension", "by_link", "started_at", "finished_at", "excluded_at"]
    list_filter = ["queue"]
    list_select_related = ["queue", "user", "dimension"]
    exclude = ["seed"]

"""The tables of an experiment's share links and snapshots."""

from __future__ import annotations

import django_tables2 as tables
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from evalsite.lib.templatetags import evalsite_tags as tags
from evalsite.lib.text import number_format
from grading_app.models import ShareLink, Snapshot
from runs_app.tables.columns import CountColumn, TimeColumn

DIGEST_PART = 16  # Digits of a digest after which a line may break.


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


class SnapshotTable(tables.Table):
    created_at = TimeColumn(seconds=True, verbose_name="Time")
    reason = tables.Column(verbose_name="Purpose", empty_values=())
    actor = tables.Column(verbose_name="By")
    trials = CountColumn(accessor="rows__trials")
    gradings = CountColumn(accessor="rows__gradings")
    digest = tables.Column(verbose_name="Digest (sha256)")
    size = tables.Column(verbose_name="File")

    class Meta:
        orderable = False

    def __init__(self, snapshots: list[Snapshot], slug: str) -> None:
        super().__init__(snapshots)
        self.slug = slug

    def render_reason(self, record: Snapshot) -> SafeString | str:
        if not record.label:
            return record.reason
        return format_html("<strong>{}</strong> {}", record.label, record.reason)

    def render_digest(self, value: str) -> SafeString:
        parts = ((value[start : start + DIGEST_PART],) for start in range(0, len(value), DIGEST_PART))
        return format_html('<span class="mono">{}</span>', format_html_join("", "{}<wbr>", parts))

    def render_size(self, record: Snapshot) -> SafeString:
        return format_html(
            '<a href="{}" download aria-label="Snapshot {} as a zip">{} zip, {}</a>',
            reverse("snapshot_file", args=[self.slug, record.digest]),
            record.digest[:12],
            tags.icon("download"),
            filesizeformat(record.size),
        )

"""The tables of access tokens."""

from __future__ import annotations

import django_tables2 as tables

from evalsite.lib.text import number_format
from runs_app.models import ApiToken
from runs_app.tables.columns import TimeColumn


class ApiTokenTable(tables.Table):
    user = tables.Column(verbose_name="Account")
    label = tables.Column(verbose_name="Name")
    public_id = tables.Column(verbose_name="Begins with")
    scope = tables.Column(verbose_name="Permissions")
    experiment = tables.Column(verbose_name="Reach", empty_values=())
    created_at = TimeColumn(verbose_name="Created")
    last_used_at = TimeColumn(verbose_name="Last used", default="never")
    expires_at = TimeColumn(verbose_name="Valid until")
    state = tables.TemplateColumn(template_name="runs_app/partials/token_state.html")

    class Meta:
        default = number_format.MISSING
        orderable = False

    def render_public_id(self, record: ApiToken) -> str:
        return str(record)

    def render_scope(self, record: ApiToken) -> str:
        return record.scope

    def render_experiment(self, record: ApiToken) -> str:
        return record.experiment.slug if record.experiment else "all experiments"

"""Rows that people edit while the engine counts in them."""

from __future__ import annotations

from typing import Any

from django.db import models


class Counted(models.Model):
    """Columns that are not `editable` belong to the engine, which changes them by UPDATEs under locks.

    Who edits a row read it earlier. To save all of it would put back counters, pauses and learned limits as they were
    then; so a save of a row that is there writes what may be edited, unless it names its columns.
    """

    class Meta:
        abstract = True

    def save(self, **how: Any) -> None:
        if how.get("update_fields") is None and not self._state.adding and not how.get("force_insert"):
            unread = self.get_deferred_fields()
            how["update_fields"] = [
                field.attname
                for field in self._meta.concrete_fields
                if field.editable and not field.primary_key and field.attname not in unread
            ]
        super().save(**how)

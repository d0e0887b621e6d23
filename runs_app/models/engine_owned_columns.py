"""The base of models whose rows people edit while the engine updates counters in them.

Endpoints and models have the base `PricedResource`, because they determine the price of calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Self

from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import models, transaction

from evalsite.lib.history import HasHistory


class EngineOwnedColumns(models.Model):
    """A row whose columns that are not `editable` belong to the engine. The engine updates them under locks.

    A form saves a row that was read some time before. Saving all its columns would restore old counters, pauses and
    learned limits. So `save()` of an existing row writes only the editable columns, unless `update_fields` names
    columns. It raises ValueError if the caller has set an engine-owned column, because it would not write that value.
    """

    # The engine's columns as they were when this row was last read or written. Empty for a new row.
    _engine_read: Mapping[str, Any] = MappingProxyType({})

    class Meta:
        abstract = True

    def save(self, **options: Any) -> None:
        """Save the editable columns.

        Raise ValueError if an engine-owned column was set but not named in `update_fields`.
        """
        if options.get("update_fields") is None and not self._state.adding and not options.get("force_insert"):
            stored = self._engine_read
            changed = [
                name for name, value in self._engine_columns().items() if name not in stored or stored[name] != value
            ]
            if changed:
                raise ValueError(
                    f"{type(self).__name__} {self.pk}: save() would not write {', '.join(changed)}, which the engine "
                    "owns: name it in update_fields, or change it by an UPDATE under the lock of its row"
                )
            options["update_fields"] = [
                field.attname
                for field in self._meta.concrete_fields
                if field.editable and not field.primary_key and field.attname in self.__dict__
            ]
        super().save(**options)
        self._engine_read = {**self._engine_read, **self._engine_columns(options.get("update_fields"))}

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any], **options: Any) -> Self:
        row = super().from_db(db, field_names, values, **options)
        row._engine_read = row._engine_columns()
        return row

    def refresh_from_db(
        self,
        using: str | None = None,
        fields: Iterable[str] | None = None,
        from_queryset: models.QuerySet[Self] | None = None,
    ) -> None:
        names = None if fields is None else list(fields)
        super().refresh_from_db(using, names, from_queryset)
        self._engine_read = {**self._engine_read, **self._engine_columns(names)}

    def _engine_columns(self, names: Collection[str] | None = None) -> dict[str, Any]:
        """Return the engine's columns that are loaded, all or only `names`.

        JSON values are copied, because the caller may change them in place.
        """
        loaded = self.__dict__
        return {
            attname: deepcopy(value) if isinstance(value := loaded[attname], dict | list) else value
            for attname, name in _list_engine_fields(type(self))
            if attname in loaded and (names is None or attname in names or name in names)
        }


@cache
def _list_engine_fields(model: type[EngineOwnedColumns]) -> tuple[tuple[str, str], ...]:
    """Return the attribute and the name of each column that belongs to the engine."""
    return tuple((field.attname, field.name) for field in model._meta.concrete_fields if not field.editable)


class PricedResource(HasHistory, EngineOwnedColumns):
    """A row that determines the price of calls. Changing it changes the reservations of future calls."""

    PRICE_ERROR_FIELD: ClassVar[str]  # The field that shows the error about a missing cost ceiling.
    CONDITION_LOOKUP: ClassVar[str]  # The lookup from a condition to this row.

    class Meta:
        abstract = True

    def save(self, **options: Any) -> None:
        """Save the row and update the reservations of the runs that use it.

        Raise Unbounded if a budgeted experiment would lose its cost ceiling. `clean()` reports this earlier.
        """
        is_new = self._state.adding
        with transaction.atomic():
            super().save(**options)
            if not is_new:
                self.priced_runs.update_reservations()

    def clean(self) -> None:
        if not self._state.adding and (problems := self.priced_runs.find_unbounded(self._attach_to)):
            raise ValidationError({self.PRICE_ERROR_FIELD: problems})

    @property
    def priced_runs(self) -> Any:
        """Return the runs whose calls use this row, as a RunQuerySet."""
        return apps.get_model("runs_app", "Run").objects.filter(**{f"condition__{self.CONDITION_LOOKUP}": self.pk})

    def _attach_to(self, run: Any) -> None:
        """Make the run's condition refer to this instance, so that its unsaved values apply."""
        *path, last = self.CONDITION_LOOKUP.split("__")
        owner = run.condition
        for name in path:
            owner = getattr(owner, name)
        setattr(owner, last, self)

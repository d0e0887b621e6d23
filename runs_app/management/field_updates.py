"""Updates of a row's fields from command options."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError

from evalsite.lib.history import Actor, save_with_history
from evalsite.lib.ops.commands import refuse_input


def update_fields(row: Any, values: dict[str, Any], *, by: Actor, reason: str = "") -> None:
    """Set the fields whose value is not None, and save the row with its history.

    Exit with code 2 and the name of the field if a value is invalid.
    """
    for field, value in values.items():
        if value is not None:
            setattr(row, field, value)
    try:
        row.full_clean()
    except ValidationError as error:
        problems = [f"{field}: {message}" for field, messages in error.message_dict.items() for message in messages]
        refuse_input("; ".join(problems))
    save_with_history(row, by=by, reason=reason)

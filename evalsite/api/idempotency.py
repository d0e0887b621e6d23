"""Idempotency keys: a request that is sent twice with one key acts once, and both requests get the first answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, cast

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.utils import timezone

from evalsite.api.problems import Problem
from runs_app.models import ApiAnswer

HEADER = "Idempotency-Key"
PARAMETER = {
    "in": "header",
    "name": HEADER,
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 128},
    "description": "A text of your choice. If you repeat the request with it, nothing happens twice.",
}


def answer_once(request: HttpRequest, status: int, act: Callable[[], dict[str, Any]]) -> JsonResponse:
    """Return what `act` returns, or the stored answer if the account sent this request before with the same key.

    The key and the effects of `act` are one transaction. A second request waits for the first one: the unique index
    holds it until the first transaction ends. After an error nothing is stored, so the request can be repeated.
    """
    key = request.headers.get(HEADER, "")
    if not key:
        return JsonResponse(act(), status=status)
    if len(key) > 128 or not key.isprintable():
        raise Problem(422, "The idempotency key cannot be used.", [(HEADER, "must have 1 to 128 printable characters")])
    request_hash = hashlib.sha256(
        b"\n".join([str(request.method).encode(), request.get_full_path().encode(), request.body])
    ).hexdigest()
    with transaction.atomic():
        ApiAnswer.objects.filter(user=request.user.pk, created_at__lt=timezone.now() - ApiAnswer.KEPT).delete()
        row, is_new = ApiAnswer.objects.get_or_create(
            user_id=cast(int, request.user.pk), key=key, defaults={"request_hash": request_hash}
        )
        if row.request_hash != request_hash:
            raise Problem(422, "The idempotency key belongs to another request.", [(HEADER, "was used before")])
        if is_new:
            response = JsonResponse(act(), status=status)
            ApiAnswer.objects.filter(pk=row.pk).update(status=status, content=response.content.decode())
            return response
    replay = JsonResponse({}, status=row.status)
    replay.content = row.content
    replay["Idempotent-Replayed"] = "true"
    return replay

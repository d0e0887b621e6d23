"""Rows about signing in, failed ones and one-time links, and the history, which `evalsite.lib.history` defines."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import connection, models, transaction
from django.utils import timezone

from evalsite.lib.history import StatusChange

__all__ = ["FailedSignIn", "SignInLink", "StatusChange", "TooManyFailures"]


class FailedSignInQuerySet(models.QuerySet["FailedSignIn"]):
    def begin(self, limits: Mapping[str, int]) -> list[int]:
        """Record one sign-in attempt under each key and return the ids of the new rows.

        Each row counts as a failure until the caller deletes it after a successful sign-in. `limits` maps each key to
        the number of failures that it may have within WINDOW.
        Raise TooManyFailures, and record nothing, if a key has reached its limit. The keys are locked, so that
        concurrent attempts cannot exceed a limit together.
        """
        now = timezone.now()
        # If the clock was set back, later failures would block until it catches up. A refusal must not undo this.
        self.filter(at__gt=now).update(at=now)
        with transaction.atomic():
            with connection.cursor() as cursor:
                for key in sorted(limits):
                    cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"sign-in {key}"])
            self.filter(at__lte=now - FailedSignIn.WINDOW).delete()
            waits = [wait for key, limit in limits.items() if (wait := self._seconds_to_wait(key, limit, now))]
            if waits:
                raise TooManyFailures(max(waits))
            return [row.pk for row in self.bulk_create(FailedSignIn(key=key, at=now) for key in limits)]

    def _seconds_to_wait(self, key: str, limit: int, now: datetime) -> int:
        """Return the seconds until the key has fewer than `limit` failures within WINDOW, or 0 if it has fewer now."""
        recent = self.filter(key=key, at__gt=now - FailedSignIn.WINDOW).order_by("-at")
        blocking = recent.values_list("at", flat=True)[limit - 1 : limit].first()
        return math.ceil((blocking + FailedSignIn.WINDOW - now).total_seconds()) if blocking else 0


class FailedSignIn(models.Model):
    """A failed sign-in under one key: an account, a network address, or a browser that has signed in before."""

    WINDOW = timedelta(minutes=15)

    key = models.CharField(max_length=100)
    at = models.DateTimeField()

    objects = FailedSignInQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["key", "-at"], name="failedsignin_of_key"),
            models.Index(fields=["at"], name="failedsignin_at"),
        ]

    def __str__(self) -> str:
        return f"{self.key} at {self.at:%Y-%m-%d %H:%M:%S}"


class TooManyFailures(Exception):
    """A refused sign-in attempt. New attempts are refused for another `seconds`."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"wait {seconds} seconds")
        self.seconds = seconds


class SignInLinkQuerySet(models.QuerySet["SignInLink"]):
    def issue(self, user: Any = None) -> str:
        """Create a link for this account, or for the site's first account, and return its code.

        The database stores only a hash of the code. Expired links are deleted.
        """
        now = timezone.now()
        self.filter(expires_at__lte=now).delete()
        code = secrets.token_urlsafe(32)
        self.create(code_hash=_hash_code(code), user=user, expires_at=now + SignInLink.LIFETIME)
        return code

    def find_usable(self, code: str) -> SignInLink | None:
        """Return the unused link with this code. Compare all of them, so that the time tells nothing about a code."""
        digest = _hash_code(code)
        usable = list(self.filter(used_at=None, expires_at__gt=timezone.now()).select_related("user"))
        matches = [link for link in usable if hmac.compare_digest(link.code_hash, digest)]
        return matches[0] if matches else None


def _hash_code(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


class SignInLink(models.Model):
    """A link that signs in once, within an hour: to its account or, without one, to the first account of the site."""

    LIFETIME = timedelta(hours=1)

    code_hash = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+")
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    objects = SignInLinkQuerySet.as_manager()

    def __str__(self) -> str:
        return f"sign-in link {self.pk}"

    def use(self) -> bool:
        """Mark the link as used. Return whether this call did so: of several at once, one does."""
        usable = SignInLink.objects.filter(pk=self.pk, used_at=None, expires_at__gt=timezone.now())
        return usable.update(used_at=timezone.now()) == 1

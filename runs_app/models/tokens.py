"""Access tokens of the API, the request allowance of each account, and the answers to requests with a key."""

from __future__ import annotations

import hmac
import secrets
from datetime import datetime, timedelta
from typing import Any, Self

from django.conf import settings
from django.db import connection, models, transaction
from django.utils import timezone

from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.history import Actor, HasHistory, record_changes
from evalsite.lib.permissions import is_operator
from evalsite.lib.text.hashing import hash_token
from runs_app.models.experiments import Experiment

MARK = "evs"
"""The first part of every token, so that scanners for leaked secrets can find one."""
REVOKED_CHANNEL = "evalsite_revoked_token"
SECRET_BYTES = 32  # 256 bits: a token cannot be guessed.
# The allowance `a` after the time since its last request. A clock that was set back adds nothing.
REFILLED = "least(%(burst)s, a.n_left + %(rate)s * greatest(0, extract(epoch FROM excluded.at - a.at)))"


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def visible_to(self, user: Any) -> Self:
        """Return the user's own tokens. An operator sees all."""
        return self if is_operator(user) else self.filter(user=user)

    def usable(self) -> Self:
        """Exclude tokens that have expired, were revoked, or whose account is not active."""
        return self.filter(revoked_at=None, expires_at__gt=timezone.now(), user__is_active=True)

    def find_bearer(self, header: str) -> ApiToken | None:
        """Return the usable token of a header `Authorization: Bearer TOKEN`. Every other header returns None."""
        scheme, _, text = header.partition(" ")
        return self.find(text.strip()) if scheme.lower() == "bearer" else None

    def find(self, text: str) -> ApiToken | None:
        """Return the usable token that this text is. Every other text returns None.

        The public part selects the row. The secret part is compared by its hash, in constant time.
        """
        mark, _, rest = text.partition("_")
        public_id, _, secret = rest.partition("_")
        if mark != MARK or "\x00" in public_id:
            return None
        token = self.usable().filter(public_id=public_id).select_related("user", "experiment").first()
        matches = hmac.compare_digest(token.secret_hash if token else "", hash_token(secret))
        return token if matches else None


@constrain_numbers()
@constrain_choices
class ApiToken(HasHistory, models.Model):
    """A personal access token of one account. The database stores only the hash of its secret part.

    A token never permits more than its account, whose role and rows are read again at each request.
    """

    class Scope(models.TextChoices):
        READ = "read", "Read"
        RUN = "run", "Read; create, launch, pause and resume experiments"
        ADMIN = "admin", "Everything, also cancel and archive experiments"

        @property
        def rank(self) -> int:
            return list(type(self)).index(self)

    SEEN_AFTER = timedelta(minutes=1)
    """The last use is stored at most once in this time, so that reading costs no write for each request."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    label = models.CharField("name", max_length=80, help_text="Where you use it, such as laptop or nightly report")
    public_id = models.CharField(max_length=12, unique=True, editable=False)
    secret_hash = models.CharField(max_length=64, editable=False)
    scope = models.CharField("permissions", max_length=5, choices=Scope, default=Scope.READ)
    experiment = models.ForeignKey(
        Experiment, on_delete=models.CASCADE, null=True, blank=True, related_name="api_tokens",
        help_text="The only experiment that it reaches. Empty: all experiments of the account",
    )  # fmt: skip
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{MARK}_{self.public_id}"

    @property
    def state(self) -> str:
        if self.revoked_at:
            return "revoked"
        if not self.user.is_active:
            return "without account"
        return "expired" if self.expires_at <= timezone.now() else "active"

    def permits(self, scope: str) -> bool:
        """Return whether its permissions include this scope."""
        return self.Scope(self.scope).rank >= self.Scope(scope).rank

    @classmethod
    def create(
        cls, user: Any, label: str, scope: str, expires_at: datetime, *, experiment: Experiment | None = None
    ) -> tuple[ApiToken, str]:
        """Create a token and return it with its text, which cannot be shown again."""
        secret = secrets.token_urlsafe(SECRET_BYTES)
        with transaction.atomic():
            token = cls.objects.create(
                user=user,
                label=label,
                public_id=secrets.token_hex(6),
                secret_hash=hash_token(secret),
                scope=scope,
                experiment=experiment,
                expires_at=expires_at,
            )
            reach = experiment.slug if experiment else "all experiments"
            text = f"{scope}, {reach}, until {expires_at:%Y-%m-%d %H:%M} UTC"
            record_changes([(token, "", text[:200])], by=user, reason=label, aspect="API token")
        return token, f"{token}_{secret}"

    def revoke(self, *, by: Actor) -> bool:
        """End the token at once. Return False if it was revoked before."""
        with transaction.atomic():
            if not type(self).objects.filter(pk=self.pk, revoked_at=None).update(revoked_at=timezone.now()):
                return False
            record_changes([(self, "active", "revoked")], by=by, reason="", aspect="API token")
            with connection.cursor() as cursor:  # The processes of the gateway hear it when this transaction commits.
                cursor.execute("SELECT pg_notify(%s, %s)", [REVOKED_CHANNEL, str(self.pk)])
        return True

    def record_use(self) -> None:
        now = timezone.now()
        if self.last_used_at is None or self.last_used_at < now - self.SEEN_AFTER:
            type(self).objects.filter(pk=self.pk).update(last_used_at=now)


@constrain_numbers()
class ApiAllowance(models.Model):
    """The requests that an account may still send to the API now. It refills at a constant rate, up to BURST.

    All web processes and all tokens of the account share the row.
    """

    BURST, PER_SECOND = 300, 10

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True, related_name="+")
    n_left = models.FloatField(default=BURST)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.n_left:.0f} requests of {self.user}"

    @classmethod
    def take(cls, user: Any) -> bool:
        """Count one request of the account. Return False, and count nothing, if none is left."""
        with connection.cursor() as cursor:
            cursor.execute(
                f"""INSERT INTO runs_app_apiallowance AS a (user_id, n_left, at)
                    VALUES (%(user)s, %(burst)s - 1, clock_timestamp())
                ON CONFLICT (user_id) DO UPDATE SET n_left = {REFILLED} - 1, at = greatest(a.at, excluded.at)
                    WHERE {REFILLED} >= 1
                RETURNING user_id""",  # noqa: S608 - fixed text
                {"user": user.pk, "burst": cls.BURST, "rate": cls.PER_SECOND},
            )
            return cursor.fetchone() is not None


@constrain_numbers(status=(200, 299))
class ApiAnswer(models.Model):
    """The answer to a request that an account sent with an idempotency key. A repeated request receives it again."""

    KEPT = timedelta(days=7)

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=128)
    request_hash = models.CharField(max_length=64, help_text="SHA-256 of method, address and body")
    status = models.SmallIntegerField(null=True)
    content = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="apianswer_key_of_user")]

    def __str__(self) -> str:
        return f"answer to {self.key}"

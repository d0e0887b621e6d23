"""Texts about items, stored beside the items. A model writes them once, and a curator may correct them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection, models, transaction
from django.urls import reverse
from django.utils import timezone

from datasets_app.models import Dataset, Item
from evalsite.lib.constraints import constrain_choices, constrain_numbers
from evalsite.lib.history import Actor, record_changes
from runs_app.models.designs import Versioned, build_approval_constraint
from runs_app.models.trials import BLANK

MAX_NAMED_ITEMS = 5
MAX_TEXT_LENGTH = 50_000  # Characters.
COPY = """INSERT INTO runs_app_itemtext (text_set_id, item_id, text, trial_id, edited_by_id, edited_at)
SELECT %(new)s, item_id, text, trial_id, edited_by_id, edited_at
FROM runs_app_itemtext WHERE text_set_id = %(old)s"""
COLLECT = f"""INSERT INTO runs_app_itemtext (text_set_id, item_id, text, trial_id)
SELECT %(texts)s, t.item_id, btrim(t.answer, E' \\t\\r\\n'), t.id
FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id
WHERE r.condition_id = %(condition)s AND t.status = 'done' AND NOT t.truncated AND NOT t.refused
AND NOT {BLANK.format(t="t")}
ORDER BY t.item_id, t.id
ON CONFLICT (text_set_id, item_id) DO NOTHING"""  # noqa: S608 - constants only


@constrain_numbers()
@constrain_choices
class TextSet(Versioned):
    """A version of the texts about a dataset's items, such as a rubric for each item. Only a draft can change."""

    APPROVAL = "grading_app.approve_rubric"

    dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="text_sets")
    written_by = models.ForeignKey(
        "runs_app.Condition",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="text_sets",
        help_text="Condition whose model wrote the texts. Empty if people wrote them",
    )

    class Meta(Versioned.Meta):
        constraints = [
            models.UniqueConstraint(fields=["name", "version"], name="text_set_name_version"),
            build_approval_constraint("runs_app_textset"),
        ]

    def get_absolute_url(self) -> str:
        return reverse("text_set", args=[self.name, self.version])

    @property
    def content(self) -> dict[str, Any]:
        """Return the texts by item key; empty for a set that is not stored yet."""
        texts = self.texts.order_by("item__key").values_list("item__key", "text") if self.pk else ()
        return {"texts": dict(texts)}

    def collect(self) -> int:
        """Add the writer's new texts, and return their number. Empty, truncated and refused texts stay missing."""
        with transaction.atomic():
            locked = TextSet.objects.select_for_update().get(pk=self.pk)
            if locked.status != self.Status.DRAFT or locked.written_by_id is None:
                return 0
            with connection.cursor() as cursor:
                cursor.execute(COLLECT, {"texts": locked.pk, "condition": locked.written_by_id})
                added = int(cursor.rowcount)
            if added:
                locked.save(update_fields=["content_hash"])
        return added

    def correct(self, item: Item, text: str, *, by: Any, reason: str) -> TextSet:
        """Replace the text of this item, and return the version that holds the correction.

        A draft with corrections takes further corrections. A model's own draft and an approved version stay unchanged,
        and the correction goes to the next version.
        Raise ValueError for a blank or too long text, or if a newer version exists.
        """
        cleaned = text.replace("\r\n", "\n").strip()
        if not cleaned or len(cleaned) > MAX_TEXT_LENGTH:
            raise ValueError(f"Enter a text of at most {MAX_TEXT_LENGTH:,} characters.")
        with transaction.atomic():
            locked = TextSet.objects.select_for_update().get(pk=self.pk)
            newer = TextSet.objects.filter(name=locked.name, version__gt=locked.version).order_by("-version").first()
            if newer:
                raise ValueError(f"{newer} is newer. Correct that version.")
            is_draft = locked.status == self.Status.DRAFT
            takes_corrections = is_draft and (
                locked.written_by_id is None or locked.texts.exclude(edited_at=None).exists()
            )
            target: TextSet = locked if takes_corrections else locked.create_new_version(by=by)
            if not takes_corrections:
                with connection.cursor() as cursor:
                    cursor.execute(COPY, {"new": target.pk, "old": locked.pk})
                if is_draft:
                    locked.retire(by=by, reason=f"corrected as {target}: {reason}")
            existing = target.texts.filter(item=item).first()
            before = existing.text if existing else ""
            ItemText.objects.update_or_create(
                text_set=target, item=item, defaults={"text": cleaned, "edited_by": by, "edited_at": timezone.now()}
            )
            target.save(update_fields=["content_hash"])
            change = (target, before[:200], cleaned[:200])
            record_changes([change], by=by, reason=reason, aspect=f"text of {item.key}"[:40])
        return target

    def find_missing(self) -> list[str]:
        """Return the keys of active items without a text, in item order."""
        items = self.dataset.items.active().exclude(pk__in=self.texts.values("item")).order_by("position", "pk")
        return list(items.values_list("key", flat=True))

    def clean(self) -> None:
        """Require a text for each active item."""
        super().clean()
        if missing := self.find_missing():
            more = f" and {len(missing) - MAX_NAMED_ITEMS} more" if len(missing) > MAX_NAMED_ITEMS else ""
            raise ValidationError(f"no text for {', '.join(missing[:MAX_NAMED_ITEMS])}{more}.")

    def approve(self, *, by: Actor, reason: str) -> None:
        """Freeze the texts for judges. Raise ValueError if an item has no text, TransitionError if approved before."""
        with transaction.atomic():
            locked = TextSet.objects.select_for_update().get(pk=self.pk)
            if locked.status == self.Status.DRAFT:
                locked.save(update_fields=["content_hash"])
            super().approve(by=by, reason=reason)
        self.refresh_from_db()


@constrain_numbers()
class ItemText(models.Model):
    """The text of one item in a set, and its author."""

    text_set = models.ForeignKey(TextSet, on_delete=models.CASCADE, related_name="texts")
    item = models.ForeignKey(Item, on_delete=models.PROTECT, related_name="+")
    text = models.TextField()
    trial = models.ForeignKey(
        "runs_app.Trial",
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
        help_text="Call that wrote the text. Its trial keeps the original",
    )
    edited_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    edited_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["item"]
        constraints = [models.UniqueConstraint(fields=["text_set", "item"], name="text_of_item_in_set")]
        # For deletions of the call that wrote it.
        indexes = [models.Index(fields=["trial"], name="text_by_call", condition=models.Q(trial__isnull=False))]

    def __str__(self) -> str:
        return self.text[:80]

"""Models of items, their images, and the human norms that answers are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVector
from django.db import models
from django.db.models import BooleanField, ExpressionWrapper, F, Func, Q, Value
from django.db.models.functions import Concat, Left, Length, Replace
from django.db.models.lookups import Exact
from django.urls import reverse

from datasets_app.content_hash import describe_item_content
from datasets_app.models.datasets import Dataset
from evalsite.lib.constraints import LARGEST_FLOAT, constrain_choices, constrain_numbers
from evalsite.lib.ops.shared_files import SharedFile

EXCERPT_CHARS = 240


@constrain_numbers()
@constrain_choices
class Asset(models.Model):
    """An image, addressed by the SHA-256 of its re-encoded bytes. Its file has that name."""

    class Format(models.TextChoices):
        JPEG = "jpeg", "JPEG"
        PNG = "png", "PNG"

    sha256 = models.CharField(max_length=64, primary_key=True)
    format = models.CharField(max_length=4, choices=Format)
    width = models.PositiveIntegerField()
    height = models.PositiveIntegerField()
    size = models.PositiveIntegerField(help_text="Bytes")
    original_name = models.CharField(max_length=255, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.sha256[:12]} ({self.width} x {self.height})"

    @property
    def content_type(self) -> str:
        return f"image/{self.format}"

    @property
    def shared_file(self) -> SharedFile:
        return SharedFile(f"assets/{self.sha256[:2]}/{self.sha256}.{self.format}", self.sha256)

    @property
    def shared_thumbnail(self) -> SharedFile:
        """Return the thumbnail. It is a JPEG of at most 320 px on its longest side."""
        return SharedFile(f"thumbs/{self.sha256[:2]}/{self.sha256}.jpeg")

    @property
    def file(self) -> Path:
        """Return the file's place on this machine. Read it with `shared_file.fetch()`, because it may be elsewhere."""
        return self.shared_file.path

    @property
    def url(self) -> str:
        return reverse("asset", args=[self.sha256])

    @property
    def thumbnail_url(self) -> str:
        return reverse("thumbnail", args=[self.sha256])


WORDS_LENGTH = 4_000
"""The number of characters of an item whose words are searched. A row of an index cannot hold much more."""
ITEM_WORDS = SearchVector(
    Concat(Replace("key", Value("-"), Value(" ")), Value(" "), Left("input", WORDS_LENGTH)), config="simple"
)
"""The words of an item's key and input, as the index `item_words` holds them."""


class ItemQuerySet(models.QuerySet["Item"]):
    def active(self) -> Self:
        """Return the items that are not excluded. Only these are asked."""
        return self.filter(excluded=False)

    def with_parameters(self, params: Mapping[str, str]) -> Self:
        """Return the generated items whose parameters have these values, as JSON writes them: 8, true, ISO."""
        items = self
        for name, value in params.items():
            # Not a key transform, which would read a numeric name as an index of a list.
            path = (F("metadata"), Value("params"), Value(name))
            stored = Func(*path, function="jsonb_extract_path_text", output_field=models.TextField())
            items = items.filter(Exact(stored, Value(value)))
        return items

    def with_excerpts(self) -> Self:
        """Add the start of the input as `excerpt` and the flag `is_cut`. Defer the columns that a list never shows."""
        is_cut = ExpressionWrapper(Q(length__gt=EXCERPT_CHARS), output_field=BooleanField())
        return (
            self.select_related("image")
            .defer("input", "choices", "grading_scheme", "metadata")
            .annotate(excerpt=Left("input", EXCERPT_CHARS), target_excerpt=Left("target", 80), length=Length("input"))
            .annotate(is_cut=is_cut)
        )

    def visible_to(self, user: Any) -> Self:
        return self.filter(dataset__in=Dataset.objects.visible_to(user))


class Item(models.Model):
    """A question for a model: a text, an image or both. A database trigger freezes it when its dataset is approved."""

    dataset = models.ForeignKey(Dataset, on_delete=models.CASCADE, related_name="items")
    key = models.CharField(max_length=200)
    position = models.PositiveIntegerField(default=0, help_text="Order of import, from 0")
    input = models.TextField(blank=True)
    image = models.ForeignKey(Asset, on_delete=models.PROTECT, null=True, blank=True, related_name="items")
    target = models.TextField(blank=True)
    choices = models.JSONField(default=list, blank=True)
    grading_scheme = models.TextField(blank=True)
    category = models.CharField(max_length=200, blank=True, db_index=True, help_text="Stratum for sampling")
    metadata = models.JSONField(default=dict, blank=True)
    excluded = models.BooleanField(default=False)
    note = models.TextField(blank=True, help_text="Why it is excluded")

    objects = ItemQuerySet.as_manager()

    class Meta:
        ordering = ["position", "pk"]
        constraints = [models.UniqueConstraint(fields=["dataset", "key"], name="item_key_in_dataset")]
        indexes = [
            models.Index(fields=["dataset", "position", "id"], name="item_in_order"),
            GinIndex(ITEM_WORDS, name="item_words"),
        ]

    def __str__(self) -> str:
        return self.key

    @property
    def content(self) -> dict[str, Any]:
        """Return everything that the dataset's hash covers, with the item's norms."""
        return describe_item_content(
            key=self.key,
            input=self.input,
            image_sha256=self.image_id,
            target=self.target,
            choices=self.choices,
            grading_scheme=self.grading_scheme,
            category=self.category,
            metadata=self.metadata,
            norms=[(norm.dimension, norm.mean, norm.sd, norm.n) for norm in self.norms.all()],
        )


@constrain_numbers(sd=(0, LARGEST_FLOAT))
class Norm(models.Model):
    """The human reference for one item on one dimension. It is frozen together with the item."""

    item = models.ForeignKey(Item, on_delete=models.CASCADE, related_name="norms")
    dimension = models.CharField(max_length=80)
    mean = models.FloatField()
    sd = models.FloatField(null=True, blank=True)
    n = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["dimension"]
        constraints = [models.UniqueConstraint(fields=["item", "dimension"], name="norm_item_dimension")]

    def __str__(self) -> str:
        return f"{self.dimension}: {self.mean}"

"""Rows for the inline definitions of a file: prompts, samplers, dimensions and models. Existing rows are reused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import models

from evalsite.lib.history import Actor, record_changes
from evalsite.lib.ops.commands import resolve_actor
from evalsite.lib.text.hashing import hash_content
from runs_app.experiment_files.model_draw import Candidate, Draw, DrawError, DrawSpec, draw
from runs_app.experiment_files.specs import (
    JUDGING_SAMPLER,
    PROVIDER_DEFAULT,
    DimensionSpec,
    ModelSpec,
    PromptSpec,
    SamplerSpec,
)
from runs_app.experiment_options import BUDGET, list_options
from runs_app.models import Dimension, Endpoint, LanguageModel, Prompt, Sampler
from runs_app.models.designs import Versioned

# Samplers that the site defines itself, so that a file that mentions them brings in nothing.
SITE_SAMPLERS = (SamplerSpec(name=PROVIDER_DEFAULT), JUDGING_SAMPLER)
SITE = "defined by the site"
CREATED_WITH_EXPERIMENT = "Made for an experiment"  # No experiment name: the whole group can read a prompt's history.
# Fields whose key in the file differs from the column.
KEYS = {
    "slug": "experiment",
    **{option.name: option.key for option in list_options(group=BUDGET)},
    "scale_min": "min",
    "scale_max": "max",
    "__all__": "it",
}


def build_prompt(spec: PromptSpec) -> Prompt:
    return Prompt(name=spec.name, messages=spec.turns, answer_format=spec.answer_format)


def build_sampler(spec: SamplerSpec) -> Sampler:
    return Sampler(**spec.model_dump())


def build_dimension(spec: DimensionSpec) -> Dimension:
    return Dimension(
        name=spec.name,
        title=spec.title,
        instructions=spec.instructions,
        scale_min=spec.min,
        scale_max=spec.max,
        labels={str(point): label for point, label in spec.labels.items()},
    )


def draw_models(spec: DrawSpec, visible: Any) -> Draw:
    """Draw from the active models of the QuerySet `visible`, at current prices. Raise DrawError if that fails."""
    rows = visible.filter(is_active=True, endpoint__is_active=True).select_related("endpoint")
    return draw(spec, map(build_candidate, rows), at=datetime.now(UTC).isoformat(timespec="seconds"))


def build_candidate(model: LanguageModel) -> Candidate:
    prices = model.prices
    return Candidate(
        name=model.name,
        endpoint=model.endpoint.name,
        provider=model.endpoint.provider,
        model=model.model,
        input_price=_format_price(prices.input),
        output_price=_format_price(prices.output),
        price_source=prices.source,
        price_date=prices.as_of.isoformat() if prices.as_of else "",
        sees_images=model.sees_images,
    )


def _format_price(price: Decimal | None) -> str | None:
    return None if price is None else f"{price.normalize():f}"


class RowBuilder:
    """A builder of rows that collects all problems. `reason` is stored in the history of new rows.

    `trusted` skips the permission checks, for users of the command line. The definitions of an import serve it alone,
    because nobody on this site wrote them: they are not approved, whoever imports them.
    """

    def __init__(
        self, by: User, trusted: bool, reason: str = CREATED_WITH_EXPERIMENT, *, is_import: bool = False
    ) -> None:
        self.by, self.trusted, self.reason, self.is_import = by, trusted, reason, is_import
        self.problems: list[str] = []
        self.draws: dict[str, Any] = {}
        self.used: frozenset[Any] = frozenset()  # Versions that an extended design uses, including archived ones.

    def make_draw(self, path: str, spec: DrawSpec) -> Draw | None:
        """Return a draw from the models that the author can see, or None with a problem."""
        try:
            return draw_models(spec, self.list_visible(LanguageModel))
        except DrawError as error:
            self.problems.append(f"{path}.{error.key}: {error}")
            return None

    def find_drawn_models(self, draw: Draw) -> list[LanguageModel]:
        """Return the rows of a new draw, in its order."""
        rows = {row.name: row for row in LanguageModel.objects.filter(name__in=draw.drawn).select_related("endpoint")}
        return [rows[name] for name in draw.drawn]

    def list_visible(self, kind: Any) -> Any:
        return kind.objects.all() if self.trusted else kind.objects.visible_to(self.by)

    def find_by_name(self, path: str, kind: Any, reference: str) -> Any:
        if kind is Sampler and reference == PROVIDER_DEFAULT:
            return self.find_or_create_sampler(path, SamplerSpec(name=PROVIDER_DEFAULT))
        rows = self.list_visible(kind)
        found = rows.filter(name=reference) if kind is LanguageModel else rows.named(reference, author=self.by)
        row = found.first()
        if row is None:
            hint = "" if kind is LanguageModel else rows.suggest_version(reference)
            self.problems.append(f"{path}: there is no {kind._meta.verbose_name} {reference}{hint}")
        return row

    # --- inline definitions ------------------------------------------------------------------------------------------

    def find_or_create_model(self, path: str, spec: ModelSpec) -> LanguageModel | None:
        existing: LanguageModel | None = LanguageModel.objects.select_related("endpoint").filter(name=spec.name).first()
        if existing is None:
            endpoint = Endpoint.objects.filter(name=spec.endpoint).first()
            if endpoint is None:
                self.problems.append(
                    f"{path}.endpoint: there is no endpoint {spec.endpoint}; ask an operator to create it"
                )
                return None
            row = LanguageModel(name=spec.name, endpoint=endpoint, model=spec.model)
            if not self.save(path, row):
                return None
            record_changes([(row, "", "created")], by=self.by, reason=self.reason)
            return row
        if (existing.endpoint.name, existing.model) != (spec.endpoint, spec.model):
            self.problems.append(
                f"{path}: model {spec.name} is {existing.model} at {existing.endpoint} on this site; use another name"
            )
        return existing

    def find_or_create_prompt(self, path: str, spec: PromptSpec) -> Any:
        return self.find_or_approve(path, build_prompt(spec))

    def find_or_create_sampler(self, path: str, spec: SamplerSpec) -> Any:
        return self.find_or_approve(path, build_sampler(spec), is_of_site=spec in SITE_SAMPLERS)

    def find_or_create_dimension(self, path: str, spec: DimensionSpec) -> Any:
        return self.find_or_approve(path, build_dimension(spec))

    def find_or_approve(self, path: str, row: Versioned, *, is_of_site: bool = False) -> Any:
        """Return the version of this name with the same content, or a new one, approved if the author may approve it.

        Return None if the new one is invalid. is_of_site: the site defines this content, and approves it. If only the
        command line may approve it, the history names its account.
        """
        version, is_new = self.find_or_create_version(path, row, is_of_site=is_of_site)
        if is_new and (is_of_site or self.may_define(version)):
            own: Actor = self.by if self.by.has_perm(version.APPROVAL) else resolve_actor()
            by = SITE if is_of_site else own
            type(version).objects.transition_one(
                version, sources=["draft"], target="approved", by=by, reason=self.reason
            )
        return version

    def find_or_create_version(self, path: str, row: Versioned, *, is_of_site: bool = False) -> tuple[Any, bool]:
        """Return the version of this name with the same content, or a new one, and whether it is new.

        The version is None if the new one is invalid. An import, and an author who may not approve it, bring in an
        imported version: other designs that name it without a version keep theirs. is_of_site: the site defines this
        content. Drafts of other authors are not reused, because these authors can change them.
        """
        model: Any = type(row)
        may_share = is_of_site or self.may_define(model)
        same = model.objects.filter(name=row.name, content_hash=hash_content(row.content)).order_by("-version")
        in_use = next((version for version in same if version in self.used), None)
        existing = in_use or same.offered().exclude(~models.Q(created_by=self.by), status=model.Status.DRAFT).first()
        if existing is None and not may_share:
            existing = same.filter(status=model.Status.IMPORTED).first()
        if existing is not None:
            return existing, False
        row.version = model.get_next_version(row.name)
        row.created_by = self.by
        row.status = model.Status.DRAFT if may_share else model.Status.IMPORTED
        if not self.save(path, row):
            return None, False
        if not may_share:
            record_changes([(row, "", row.status)], by=self.by, reason=self.reason)
        return row, True

    def save(self, path: str, row: models.Model) -> bool:
        """Save a new row if it is valid and the author may add it. Return whether it was saved."""
        meta = row._meta
        if not self.may(f"{meta.app_label}.add_{meta.model_name}"):
            self.problems.append(f"{path}: you may not add a {meta.verbose_name}; use the name of an existing one")
            return False
        if not self.check(path, row):
            return False
        row.save()
        return True

    def may(self, permission: str) -> bool:
        return self.trusted or self.by.has_perm(permission)

    def may_define(self, model: Any) -> bool:
        """Return whether a new version of this kind becomes the meaning of its name for everybody."""
        return not self.is_import and self.may(model.APPROVAL)

    def check(self, path: str, row: models.Model, exclude: Sequence[str] = ()) -> bool:
        try:
            row.full_clean(exclude=exclude)
        except ValidationError as error:
            for field, messages in error.message_dict.items():
                key = KEYS.get(field, field)
                full_path = f"{path}.{key}" if path else key
                self.problems += [f"{full_path}: {message}" for message in messages]
            return False
        return True

"""The default sampler of judges: temperature 0."""

from __future__ import annotations

from evalsite.lib.text.hashing import hash_content
from runs_app.experiment_files.row_builder import build_sampler
from runs_app.experiment_files.specs import JUDGING_SAMPLER
from runs_app.models import Sampler


def get_or_create_default_sampler() -> Sampler:
    """Return the newest sampler with the default name and settings. Create it if none exists."""
    sampler = build_sampler(JUDGING_SAMPLER)
    same = Sampler.objects.filter(name=sampler.name, content_hash=hash_content(sampler.content)).offered()
    existing: Sampler | None = same.order_by("-version").first()
    if existing is not None:
        return existing
    sampler.version = Sampler.get_next_version(sampler.name)
    sampler.save()
    return sampler

"""The default sampler of judges: temperature 0."""

from __future__ import annotations

from evalsite.lib.text.hashing import hash_content
from runs_app.experiment_files.row_builder import SITE, build_sampler
from runs_app.experiment_files.specs import JUDGING_SAMPLER
from runs_app.models import Sampler


def get_or_create_default_sampler() -> Sampler:
    """Return the newest approved sampler with the default name and settings. Create it if none exists."""
    sampler = build_sampler(JUDGING_SAMPLER)
    same = Sampler.objects.filter(name=sampler.name, content_hash=hash_content(sampler.content))
    existing: Sampler | None = same.filter(status=Sampler.Status.APPROVED).order_by("-version").first()
    if existing is not None:
        return existing
    sampler.version = Sampler.get_next_version(sampler.name)
    sampler.save()
    sampler.approve(by=SITE, reason="The default of judges")
    return sampler

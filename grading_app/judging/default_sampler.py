"""The default sampler of judges: temperature 0."""

from __future__ import annotations

from runs_app.experiment_files.specs import JUDGING_SAMPLER
from runs_app.models import Sampler


def get_or_create_default_sampler() -> Sampler:
    """Return the newest sampler with the default name and settings. Create it if none exists."""
    default = JUDGING_SAMPLER
    settings = {"temperature": default.temperature, "max_tokens": default.max_tokens}
    usable = Sampler.objects.filter(name=default.name, **settings).offered()
    existing: Sampler | None = usable.order_by("-version").first()
    if existing is not None:
        return existing
    newest = Sampler.objects.filter(name=default.name).order_by("-version").first()
    sampler: Sampler = Sampler.objects.create(
        name=default.name, version=newest.version + 1 if newest else 1, **settings
    )
    return sampler

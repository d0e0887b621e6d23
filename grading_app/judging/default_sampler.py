"""The default sampler of judges: temperature 0."""

from __future__ import annotations

from runs_app.experiment_files.specs import JUDGING_SAMPLER
from runs_app.models import Sampler


def default_sampler() -> Sampler:
    """Return the newest sampler with the default name and settings. Create it if none exists."""
    said = JUDGING_SAMPLER
    settings = {"temperature": said.temperature, "max_tokens": said.max_tokens}
    known = Sampler.objects.filter(name=said.name, **settings).exclude(status=Sampler.Status.ARCHIVED)
    found: Sampler | None = known.order_by("-version").first()
    if found is not None:
        return found
    newest = Sampler.objects.filter(name=said.name).order_by("-version").first()
    made: Sampler = Sampler.objects.create(name=said.name, version=newest.version + 1 if newest else 1, **settings)
    return made

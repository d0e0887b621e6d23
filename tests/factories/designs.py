"""The parts of a design: endpoints, models, prompts, samplers, dimensions."""

from decimal import Decimal

from django.contrib.auth import get_user_model
from django.utils import timezone

from evalsite.lib import permissions
from runs_app.models import (
    Dimension,
    Endpoint,
    Experiment,
    LanguageModel,
    Preflight,
    Prompt,
    Sampler,
)
from tests.factories.datasets import make_dataset
from tests.factories.people import NOON, make_user


def find_or_create(model, defaults, **keys):
    """Return the row with these keys. Unlike `get_or_create`, it needs no savepoint, because no other writer exists."""
    return model.objects.filter(**keys).first() or model.objects.create(**keys, **defaults)


def make_endpoint(name="lab", **fields):
    defaults = {"base_url": "http://127.0.0.1:9/v1", "is_free": False}
    return find_or_create(Endpoint, {**defaults, **fields}, name=name)


def make_model(name="small", **fields):
    """Create or return a model priced at 1 and 2 US dollars per million tokens."""
    defaults = {"model": f"vendor/{name}", "input_price": Decimal(1), "output_price": Decimal(2)}
    defaults |= {"price_source": "test", "price_date": NOON.date()}
    endpoint = fields.pop("endpoint", None) or make_endpoint()
    return find_or_create(LanguageModel, {"endpoint": endpoint, **defaults, **fields}, name=name)


def make_preflight(model, status="ok", **fields):
    """Create a completed free preflight by an author without an account. `experiment` is optional."""
    now = timezone.now()
    defaults = {"actor": "a person", "latency_ms": 240, "served_model": model.model, "cost_usd": Decimal(0)}
    return Preflight.objects.create(
        model=model, status=status, started_at=now, finished_at=now, **{**defaults, **fields}
    )


def make_prompt(name="plain", *, user="{{input}}", system="", answer_format="text", status="approved", **fields):
    """Create a prompt with these two turns, or with `messages`."""
    turns = [{"role": "system", "content": system}] if system else []
    turns.append({"role": "user", "content": user})
    content = {"messages": turns, **fields}
    return Prompt.objects.create(name=name, answer_format=answer_format, status=status, **content)


def make_sampler(name="default", *, status="approved", **fields):
    return Sampler.objects.create(name=name, status=status, **fields)


def make_dimension(name="valence", *, low=1, high=7, status="approved", **fields):
    defaults = {"title": name.capitalize(), "instructions": f"How much {name} does this show?"}
    return Dimension.objects.create(name=name, scale_min=low, scale_max=high, status=status, **{**defaults, **fields})


def make_experiment(slug="pilot", *, owner=None, dataset=None, models=None, prompts=None, samplers=None, **fields):
    """Create an experiment with defaults for missing parts. Accepts `dimensions` and any field of Experiment."""
    dimensions, shared_with = fields.pop("dimensions", ()), fields.pop("shared_with", ())
    owner = (
        owner or get_user_model().objects.filter(username="owner").first() or make_user("owner", permissions.RESEARCHER)
    )
    defaults = {"title": slug.capitalize(), "max_usd": Decimal(5)}
    experiment = Experiment.objects.create(
        slug=slug, owner=owner, dataset=dataset or make_dataset(f"{slug}-items"), **{**defaults, **fields}
    )
    experiment.language_models.add(*([make_model()] if models is None else models))
    experiment.prompts.add(*([make_prompt(f"{slug}-prompt")] if prompts is None else prompts))
    experiment.samplers.add(*([make_sampler(f"{slug}-sampler")] if samplers is None else samplers))
    experiment.dimensions.add(*dimensions)
    experiment.shared_with.add(*shared_with)
    return experiment

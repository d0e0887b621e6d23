"""One small world for tests of designs: a researcher, a free endpoint, approved texts, and an approved dataset."""

from decimal import Decimal
from itertools import count

from django.contrib.auth.models import User

from datasets_app.models import Dataset, Item
from runs_app.models import Dimension, Endpoint, Experiment, LanguageModel, Prompt, Sampler

numbers = count(1)
QUESTION = [{"role": "system", "content": "Answer the question."}, {"role": "user", "content": "{{input}}"}]
RATING = [{"role": "user", "content": "{{input}}: {{dimension_instructions}} {{scale_min}} to {{scale_max}}"}]


def make_user(username="rita", **fields):
    return User.objects.get_or_create(username=username, defaults=fields)[0]


def make_endpoint(name="rehearsal", **fields):
    return Endpoint.objects.get_or_create(name=name, defaults={"base_url": "http://127.0.0.1:9599/v1", **fields})[0]


def make_model(name="sim-large", *, endpoint=None, **fields):
    defaults = {"model": name, "input_price": Decimal("0.5"), "output_price": Decimal("1.5"), "price_source": "test"}
    return LanguageModel.objects.create(name=name, endpoint=endpoint or make_endpoint(), **(defaults | fields))


def make_prompt(name="plain", messages=QUESTION, *, status="approved", **fields):
    return Prompt.objects.create(name=name, messages=messages, status=status, **fields)


def make_sampler(name="greedy", **fields):
    return Sampler.objects.create(name=name, **({"temperature": 0, "max_tokens": 100} | fields))


def make_dimension(name="valence", **fields):
    return Dimension.objects.create(name=name, **({"instructions": f"How much {name}?"} | fields))


def make_dataset(items=3, *, slug=None, approve=True, excluded=(), **fields):
    """`items` is a number of items, or their inputs."""
    dataset = Dataset.objects.create(slug=slug or f"questions-{next(numbers)}")
    inputs = [f"What is {at} + 1?" for at in range(items)] if isinstance(items, int) else items
    Item.objects.bulk_create(
        Item(dataset=dataset, key=f"q{at:06}", position=at, input=text, excluded=at in excluded, **fields)
        for at, text in enumerate(inputs)
    )
    dataset.refresh_counts()
    if approve:
        Dataset.objects.transition_one(dataset, sources=["draft"], target="approved", by="test")
    return dataset


def make_experiment(slug="pilot", *, dataset=None, models=None, prompts=None, samplers=None, dimensions=(), **fields):
    experiment = Experiment.objects.create(
        slug=slug, owner=fields.pop("owner", None) or make_user(), dataset=dataset or make_dataset(), **fields
    )
    experiment.language_models.set(models if models is not None else [make_model()])
    experiment.prompts.set(prompts if prompts is not None else [make_prompt()])
    experiment.samplers.set(samplers if samplers is not None else [make_sampler()])
    experiment.dimensions.set(dimensions)
    return experiment

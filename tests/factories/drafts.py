"""Designs before their launch, for tests of planning.

Their samplers and dimensions are drafts, and their texts have the lengths that tests of cost estimates expect. The
builders of `designs` create approved parts.
"""

from decimal import Decimal
from itertools import count

from django.contrib.auth.models import User

from datasets_app.models import Dataset
from tests import factories

numbers = count(1)


QUESTION = [{"role": "system", "content": "Answer the question."}, {"role": "user", "content": "{{input}}"}]


RATING = [{"role": "user", "content": "{{input}}: {{dimension_instructions}} {{scale_min}} to {{scale_max}}"}]


def get_or_make_user(username="rita", **fields):
    """Return the user of this name. Create the user if it is missing."""
    return User.objects.filter(username=username).first() or factories.make_user(username, **fields)


def make_rehearsal_model(name="sim-large", *, endpoint=None, **fields):
    """Create or return a model on the `rehearsal` endpoint, priced at 0.5 and 1.5 US dollars per million tokens."""
    defaults = {"model": name, "input_price": Decimal("0.5"), "output_price": Decimal("1.5"), "price_source": "test"}
    return factories.make_model(name, endpoint=endpoint or factories.make_endpoint("rehearsal"), **(defaults | fields))


def make_question_prompt(name="plain", messages=QUESTION, **fields):
    """Create an approved prompt with a system turn and the question."""
    return factories.make_prompt(name, messages=messages, **fields)


def make_draft_sampler(name="greedy", **fields):
    """Create a draft sampler at temperature 0 with at most 100 output tokens."""
    return factories.make_sampler(name, **({"temperature": 0, "max_tokens": 100, "status": "draft"} | fields))


def make_draft_dimension(name="valence", **fields):
    """Create a draft dimension without a title."""
    return factories.make_dimension(
        name, **({"title": "", "instructions": f"How much {name}?", "status": "draft"} | fields)
    )


def make_questions(items=3, *, slug=None, approve=True, excluded=(), **fields):
    """Create a dataset with the history and the hash that an approval stores.

    `items` is a number of items or a list of inputs. `fields` are set on each item.
    """
    inputs = [f"What is {position} + 1?" for position in range(items)] if isinstance(items, int) else items
    rows = [
        {"key": f"q{position:06}", "input": text, "excluded": position in excluded, **fields}
        for position, text in enumerate(inputs)
    ]
    dataset = factories.make_dataset(slug or f"questions-{next(numbers)}", rows, approved=False)
    dataset.refresh_counts()
    if approve:
        approval = {"content_hash": dataset.hash_items(), "approved_at": factories.NOON}
        Dataset.objects.transition_one(dataset, sources=["draft"], target="approved", by="test", **approval)
    return dataset


def make_draft_experiment(slug="pilot", *, dataset=None, models=None, prompts=None, samplers=None, **fields):
    """Create an experiment without a budget from the parts of this module."""
    return factories.make_experiment(
        slug,
        owner=fields.pop("owner", None) or get_or_make_user(),
        dataset=dataset or make_questions(),
        models=[make_rehearsal_model()] if models is None else models,
        prompts=[make_question_prompt()] if prompts is None else prompts,
        samplers=[make_draft_sampler()] if samplers is None else samplers,
        **{"title": "", "max_usd": None, **fields},
    )

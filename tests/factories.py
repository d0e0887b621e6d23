"""A small world for tests: people in their roles, an approved dataset, and an experiment with runs and trials.

Every function makes rows that the product itself could have made: datasets are approved after their items are in,
prompts and samplers are approved, the counters of a run equal its trials.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from uuid import uuid4

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db.models import Count, Q, Sum
from django.utils import timezone

from datasets_app.models import Dataset, Item, Norm
from evalsite.lib import permissions
from evalsite.lib.text.hashing import condition_id, content_hash, slugify_name
from runs_app.models import (
    Attempt,
    Condition,
    Dimension,
    Endpoint,
    Experiment,
    LanguageModel,
    Preflight,
    Prompt,
    Run,
    Sampler,
    Trial,
    Wave,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class World:
    """The owner's experiment is private; a teammate is a member it is shared with, an outsider a viewer it is not."""

    owner: object
    teammate: object
    outsider: object
    rater: object
    operator: object


def make_user(name, *role_names, superuser=False):
    user = get_user_model().objects.create_user(name, is_superuser=superuser, is_staff=superuser)
    user.groups.set(Group.objects.filter(name__in=role_names))
    return user


def make_world():
    return World(
        owner=make_user("owner", permissions.RESEARCHER),
        teammate=make_user("teammate", permissions.RESEARCHER),
        outsider=make_user("outsider", permissions.VIEWER),
        rater=make_user("rater", permissions.RATER),
        operator=make_user("operator", permissions.OPERATOR),
    )


def make_dataset(slug="questions", items=3, *, version=1, approved=True, **fields):
    """`items` is how many plain questions, or a list of mappings of Item fields, with `norms={dimension: mean}`."""
    dataset = Dataset.objects.create(slug=slug, version=version, title=slug.capitalize(), **fields)
    rows = [plain_question(number) for number in range(items)] if isinstance(items, int) else items
    made = Item.objects.bulk_create(
        Item(dataset=dataset, position=position, **{name: value for name, value in row.items() if name != "norms"})
        for position, row in enumerate(rows)
    )
    Norm.objects.bulk_create(
        Norm(item=item, dimension=dimension, mean=mean, sd=1.0, n=100)
        for item, row in zip(made, rows, strict=True)
        for dimension, mean in row.get("norms", {}).items()
    )
    if approved:
        approve(dataset)
    return dataset


def plain_question(number):
    return {
        "key": f"item-{number}",
        "input": f"What is {number} plus {number}?",
        "target": str(2 * number),
        "category": ("even", "odd")[number % 2],
    }


def approve(dataset):
    """As the curator's approval leaves it, without the history."""
    dataset.refresh_counts()
    Dataset.objects.filter(pk=dataset.pk).update(
        status="approved", content_hash=content_hash([item.key for item in dataset.items.all()]), approved_at=NOON
    )
    dataset.refresh_from_db()


def make_endpoint(name="lab", **fields):
    return Endpoint.objects.get_or_create(
        name=name, defaults={"base_url": "http://127.0.0.1:9/v1", "is_free": False, **fields}
    )[0]


def make_model(name="small", **fields):
    """Priced at 1 and 2 US dollars a million tokens."""
    defaults = {"model": f"vendor/{name}", "input_price": Decimal(1), "output_price": Decimal(2)}
    defaults |= {"price_source": "test", "price_date": NOON.date()}
    endpoint = fields.pop("endpoint", None) or make_endpoint()
    return LanguageModel.objects.get_or_create(name=name, defaults={"endpoint": endpoint, **defaults, **fields})[0]


def make_preflight(model, status="ok", **fields):
    """One that was made, at no cost, by a person without an account; `experiment` may be given."""
    now = timezone.now()
    defaults = {"actor": "a person", "latency_ms": 240, "served_model": model.model, "cost_usd": Decimal(0)}
    return Preflight.objects.create(
        model=model, status=status, started_at=now, finished_at=now, **{**defaults, **fields}
    )


def make_prompt(name="plain", *, user="{{input}}", system="", answer_format="text", status="approved", **fields):
    """Of these two turns, or of the `messages` given."""
    turns = [{"role": "system", "content": system}] if system else []
    turns.append({"role": "user", "content": user})
    given = {"messages": turns, **fields}
    return Prompt.objects.create(name=name, answer_format=answer_format, status=status, **given)


def make_sampler(name="default", *, status="approved", **fields):
    return Sampler.objects.create(name=name, status=status, **fields)


def make_dimension(name="valence", *, low=1, high=7, status="approved", **fields):
    defaults = {"title": name.capitalize(), "instructions": f"How much {name} does this show?"}
    return Dimension.objects.create(name=name, scale_min=low, scale_max=high, status=status, **{**defaults, **fields})


def make_experiment(slug="pilot", *, owner=None, dataset=None, models=None, prompts=None, samplers=None, **fields):
    """Crosses what is given with defaults for what is not; `dimensions` and any field of Experiment may be given."""
    dimensions, shared_with = fields.pop("dimensions", ()), fields.pop("shared_with", ())
    owner = (
        owner or get_user_model().objects.filter(username="owner").first() or make_user("owner", permissions.RESEARCHER)
    )
    defaults = {"title": slug.capitalize(), "max_usd": Decimal(5)}
    experiment = Experiment.objects.create(
        slug=slug, owner=owner, dataset=dataset or make_dataset(f"{slug}-items"), **{**defaults, **fields}
    )
    experiment.language_models.set([make_model()] if models is None else models)
    experiment.prompts.set([make_prompt(f"{slug}-prompt")] if prompts is None else prompts)
    experiment.samplers.set([make_sampler(f"{slug}-sampler")] if samplers is None else samplers)
    experiment.dimensions.set(dimensions)
    experiment.shared_with.set(shared_with)
    return experiment


def make_wave(experiment, number=0, label=""):
    wave, _ = Wave.objects.get_or_create(
        experiment=experiment,
        number=number,
        defaults={
            "label": label or ("" if number == 0 else f"wave-{number}"),
            "epoch_offset": number * experiment.samples,
        },
    )
    return wave


def make_conditions(experiment):
    """One for each cell of models x prompts x samplers, in that order."""
    cells = product(experiment.language_models.all(), experiment.prompts.all(), experiment.samplers.all())
    return [make_condition(experiment, *cell) for cell in cells]


def make_condition(experiment, model, prompt, sampler):
    content = {"model": model.identity, "prompt": prompt.content, "sampler": sampler.content}
    slug = slugify_name(f"{model.name}-{prompt.name}-{sampler.name}")
    return Condition.objects.get_or_create(
        experiment=experiment,
        condition_id=condition_id(slug, content),
        defaults={"model": model, "prompt": prompt, "sampler": sampler, "content": content},
    )[0]


def make_runs(experiment, *, wave=0, status="running"):
    """One run for each condition of the experiment in this wave, without trials."""
    observed = make_wave(experiment, wave)
    return [
        Run.objects.create(experiment=experiment, condition=condition, wave=observed, status=status, started_at=NOON)
        for condition in make_conditions(experiment)
    ]


def plan_trials(run, *, answer=None, **fields):
    """Every trial of the run: items x dimensions x samples, pending, or done where `answer` gives one.

    `answer(item, dimension, sample_idx)` returns a text, a mapping of Trial fields, or None for a trial that waits.
    """
    experiment = run.experiment
    items = experiment.dataset.items.active()
    cells = product(items, list(experiment.dimensions.all()) or [None], range(experiment.samples))
    Trial.objects.bulk_create(
        Trial(
            run=run,
            item=item,
            dimension=dimension,
            sample_idx=index,
            **{**_outcome(answer(item, dimension, index) if answer else None), **fields},
        )
        for item, dimension, index in cells
    )
    refresh_counters(run)
    return list(run.trials.all())


def _outcome(answer):
    if answer is None:
        return {}
    given = answer if isinstance(answer, dict) else {"answer": answer}
    return answered(**given)


def answered(**fields):
    """The fields of a trial that is done: what was not said is filled in plausibly."""
    defaults = {
        "status": "done",
        "attempts": 1,
        "answer": "",
        "raw_response": fields.get("answer", ""),
        "finish_reason": "stop",
        "input_tokens": 100,
        "output_tokens": 10,
        "cost_usd": Decimal("0.00012"),
        "latency_ms": 250,
        "claimed_at": NOON,
        "completed_at": NOON + timedelta(milliseconds=250),
    }
    return {**defaults, **fields}


def failed(error_class="server", error="HTTP 500"):
    return answered(
        status="failed", attempts=3, error_class=error_class, error=error, raw_response=None, finish_reason=""
    )


def make_attempt(trial, *, outcome="ok", **fields):
    defaults = {
        "cost_usd": trial.cost_usd,
        "input_tokens": trial.input_tokens,
        "output_tokens": trial.output_tokens,
        "finished_at": trial.completed_at or NOON,
    }
    return Attempt.objects.create(
        trial=trial, run_id=trial.run_id, token=uuid4(), outcome=outcome, **{**defaults, **fields}
    )


def refresh_counters(run):
    """Set the counters of a run to what its trials say."""
    statuses = ("pending", "running", "done", "failed", "cancelled")
    counts = run.trials.aggregate(**{f"n_{status}": Count("pk", filter=Q(status=status)) for status in statuses})
    sums = run.trials.aggregate(
        spent_usd=Sum("cost_usd", default=Decimal(0)),
        input_tokens=Sum("input_tokens", default=0),
        output_tokens=Sum("output_tokens", default=0),
    )
    Run.objects.filter(pk=run.pk).update(**counts, **sums)
    run.refresh_from_db()

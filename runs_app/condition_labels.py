"""Names of conditions for people: only what differs between the conditions of an experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

from runs_app.models import Condition


def load_labels(experiments: Collection[int]) -> dict[int, str]:
    """Return the labels of all conditions of these experiments, by primary key, in one query.

    A judge's or a rubric writer's condition has the names of its model and stage.
    """
    rows = Condition.objects.filter(experiment__in=experiments).select_related("model", "prompt", "sampler")
    labels: dict[int, str] = {}
    for _, group in groupby(rows.defer("content").order_by("experiment", "pk"), key=lambda row: row.experiment_id):
        conditions = list(group)
        labels |= {row.pk: row.label for row in conditions}
        labels |= make_condition_labels([row for row in conditions if row.stage == Condition.Stage.GENERATE])
    return labels


def make_condition_labels(conditions: Sequence[Condition], letters: Mapping[int, str] | None = None) -> dict[int, str]:
    """Return labels that distinguish the conditions, in their order or in the order of a blind reading's letters.

    A label has the names of the facets that differ. If names are not enough, it has versions, too. If versions are not
    enough, it has the hash of the request, for example for a model that was changed under the same name.
    """
    if letters:
        positions = {key: position for position, key in enumerate(letters)}
        conditions = sorted(conditions, key=lambda condition: (positions[condition.model_id], condition.pk))
    labels: dict[int, str] = {}
    for versioned in (False, True):
        parts = {condition.pk: condition.name_facets(versioned, letters) for condition in conditions}
        differs = [len(set(column)) > 1 for column in zip(*parts.values(), strict=True)]
        labels = {
            pk: " · ".join(name for name, varies in zip(names, differs, strict=True) if varies) or names[0]
            for pk, names in parts.items()
        }
        if len(set(labels.values())) == len(labels):
            return labels
    label_counts = Counter(labels.values())
    hashes = {condition.pk: condition.content_hash for condition in conditions}
    return {pk: f"{label} ({hashes[pk]})" if label_counts[label] > 1 else label for pk, label in labels.items()}

"""What a leaderboard compares: equal items, or all datasets that were built from one definition of a space."""

from datasets_app.models import Dataset
from grading_app.surfaces.model_board import list_scopes
from runs_app.models import Experiment


def experiment_on(key, content, definition="", version=1):
    recipe = {"strategy": "parametric", "space": "study", "definition_hash": definition}
    dataset = Dataset(pk=key, slug="reasoning", version=version, content_hash=content * 16, recipe=recipe)
    return Experiment(slug=f"on-{key}", dataset=dataset)


def scopes_of(*experiments):
    return {scope.label: scope.datasets for scope in list_scopes(experiments)}


def test_equal_items_are_one_scope_whatever_their_dataset_is():
    found = scopes_of(experiment_on(1, "a"), experiment_on(2, "a"), experiment_on(3, "b", version=2))
    assert found == {"reasoning@1": (1, 2), "reasoning@2": (3,)}


def test_datasets_of_one_space_with_other_items_are_a_scope_too():
    one, other = experiment_on(1, "a", "d" * 16), experiment_on(2, "b", "d" * 16, version=2)
    assert scopes_of(one, other) == {
        "reasoning@1": (1,), "reasoning@2": (2,), "all datasets of the space study": (1, 2),
    }  # fmt: skip


def test_a_space_with_equal_items_alone_is_no_second_scope():
    assert scopes_of(experiment_on(1, "a", "d" * 16), experiment_on(2, "a", "d" * 16)) == {"reasoning@1": (1, 2)}

"""The scopes of a leaderboard: equal items, or all datasets built from one definition of a space."""

from datasets_app.models import Dataset
from grading_app.results.parametric.model_board import list_scopes
from runs_app.models import Experiment


def build_experiment(key, content, definition="", version=1):
    recipe = {"strategy": "parametric", "space": "study", "definition_hash": definition}
    dataset = Dataset(pk=key, slug="reasoning", version=version, content_hash=content * 16, recipe=recipe)
    return Experiment(slug=f"on-{key}", dataset=dataset)


def list_scope_datasets(*experiments):
    return {scope.label: scope.datasets for scope in list_scopes(experiments)}


def test_equal_items_form_one_scope_across_datasets():
    result = list_scope_datasets(
        build_experiment(1, "a"), build_experiment(2, "a"), build_experiment(3, "b", version=2)
    )
    assert result == {"reasoning@1": (1, 2), "reasoning@2": (3,)}


def test_datasets_of_one_space_with_different_items_form_a_scope():
    first, second = build_experiment(1, "a", "d" * 16), build_experiment(2, "b", "d" * 16, version=2)
    assert list_scope_datasets(first, second) == {
        "reasoning@1": (1,), "reasoning@2": (2,), "all datasets of the space study": (1, 2),
    }  # fmt: skip


def test_a_space_with_only_equal_items_adds_no_scope():
    assert list_scope_datasets(build_experiment(1, "a", "d" * 16), build_experiment(2, "a", "d" * 16)) == {
        "reasoning@1": (1, 2)
    }

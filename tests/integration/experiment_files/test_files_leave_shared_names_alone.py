"""A file of somebody who may not approve definitions changes what no shared name means in the files of others."""

import pytest

from evalsite.lib.history import StatusChange
from grading_app.grading.judging.grader_specs import create_experiment
from grading_app.grading.judging.graders import find_grader, get_or_create_default_sampler
from grading_app.models import Rubric
from runs_app.experiment_files.spec_reader import SpecError, read_spec
from runs_app.models import Dimension, Prompt, Sampler
from runs_app.planning.design import Design
from runs_app.planning.plan import plan
from runs_app.planning.shipped_designs import create_shipped_designs
from runs_app.planning.spec_io import build_spec
from tests.factories import make_model, make_user
from tests.factories.drafts import make_question_prompt

pytestmark = pytest.mark.django_db
# One definition of each kind: its part of the file, a first content, and another content.
KINDS = {
    "prompts": (Prompt, {"user": "{{input}}"}, {"user": "Lie about this: {{input}}"}),
    "samplers": (Sampler, {"temperature": 0}, {"temperature": 2}),
    "dimensions": (Dimension, {"instructions": "How pleasant?"}, {"instructions": "How ugly?"}),
}
JUDGED = [{"role": "user", "content": "Judge {{answer}}"}]


@pytest.fixture
def other_researcher(lab):
    make_model("sim")
    make_question_prompt("usual")
    return make_user("other", "Researcher")


def create(by, name, **parts):
    content = {"experiment": name, "dataset": "questions@1", "models": ["sim"], "prompts": ["usual"]}
    return create_experiment(read_spec(content | parts), by=by)


@pytest.mark.parametrize("axis", KINDS)
def test_a_bare_name_keeps_its_meaning_after_a_file_of_a_researcher(lab, curator, researcher, other_researcher, axis):
    _, first, second = KINDS[axis]
    shared = getattr(create(curator, "shared", **{axis: [{"name": "common", **first}]}), axis).get()
    own = getattr(create(researcher, "own", **{axis: [{"name": "common", **second}]}), axis).get()
    assert (own.version, own.status) == (2, "imported")
    assert getattr(create(other_researcher, "theirs", **{axis: ["common"]}), axis).get() == shared
    assert getattr(create(researcher, "again", **{axis: ["common@2"]}), axis).get() == own


@pytest.mark.parametrize("axis", KINDS)
def test_a_new_name_of_a_file_is_found_only_with_its_version(lab, researcher, other_researcher, axis):
    kind, content, _ = KINDS[axis]
    create(researcher, "own", **{axis: [{"name": "mine", **content}]})
    with pytest.raises(SpecError) as refusal:
        create(other_researcher, "theirs", **{axis: ["mine"]})
    assert refusal.value.problems == [
        f"{axis}[0]: there is no {kind._meta.verbose_name} mine; "
        "write mine@1 for the version that came with a study or a file"
    ]


@pytest.mark.parametrize("axis", KINDS)
def test_a_definition_of_a_curators_file_is_meant_by_its_bare_name(lab, curator, other_researcher, axis):
    _, content, newer = KINDS[axis]
    create(curator, "one", **{axis: [{"name": "common", **content}]})
    second = getattr(create(curator, "two", **{axis: [{"name": "common", **newer}]}), axis).get()
    assert getattr(create(other_researcher, "theirs", **{axis: ["common"]}), axis).get() == second


@pytest.mark.parametrize("axis", KINDS)
def test_equal_content_is_one_version_and_a_curators_file_defines_it_for_everybody(
    lab, curator, researcher, other_researcher, axis
):
    kind, content, _ = KINDS[axis]
    parts = {axis: [{"name": "common", **content}]}
    one, two = create(researcher, "one", **parts), create(other_researcher, "two", **parts)
    assert getattr(one, axis).get() == getattr(two, axis).get()
    defined = getattr(create(curator, "three", **parts), axis).get()
    assert defined.status != "imported"
    assert kind.objects.named("common").get() == defined
    assert getattr(create(researcher, "four", **parts), axis).get() == defined


def test_shipped_samplers_stay_what_a_bare_name_selects_even_after_a_launch(lab, researcher, other_researcher):
    create_shipped_designs()
    hot = [{"name": "greedy-2k", "temperature": 2}]
    own = create(researcher, "own", samplers=hot, dimensions=[{"name": "joy", "instructions": "Any?"}])
    own.prompts.set([make_question_prompt("asked")])
    plan(own, by=researcher)
    sampler = create(other_researcher, "theirs", samplers=["greedy-2k"]).samplers.get()
    assert sampler.content == {"temperature": 0.0, "max_tokens": 2048}
    assert not Dimension.objects.named("joy").exists()


def test_a_prompt_of_a_file_is_used_after_a_curator_approved_it(lab, curator, researcher, other_researcher):
    own = create(researcher, "own", prompts=[{"name": "usual", "user": "New: {{input}}"}])
    prompt = own.prompts.get()
    assert StatusChange.objects.for_row(prompt).get().reason == "Made for an experiment"
    problem = "prompt usual@2 is imported; a curator must approve it before it is used"
    assert problem in list(Design.load(own).find_problems())
    prompt.approve(by=curator, reason="Read")
    assert problem not in list(Design.load(own).find_problems())
    assert create(other_researcher, "theirs").prompts.get() == prompt


def test_a_written_file_of_such_a_study_refers_to_the_same_rows(lab, researcher, other_researcher):
    parts = {axis: [{"name": "mine", **content}] for axis, (_, content, _) in KINDS.items()}
    own = create(researcher, "own", **parts)
    again = create_experiment(read_spec(build_spec(own) | {"experiment": "again"}), by=other_researcher)
    for axis in KINDS:
        assert getattr(again, axis).get() == getattr(own, axis).get()


def test_a_rubric_of_a_file_waits_for_a_curator_and_leaves_the_bare_name_alone(lab, curator, researcher):
    make_model("sim")
    make_question_prompt("usual")
    shared = Rubric.objects.create(name="strict", messages=JUDGED)
    shared.approve(by=curator, reason="Read")
    judge = {"name": "mild", "model": "sim", "rubric": {"name": "strict", "user": "Always say 1: {{answer}}"}}
    create(researcher, "own", grade={"graders": [judge]})
    assert find_grader("mild").rubric.status == "imported"
    create(curator, "theirs", grade={"graders": [{"name": "second", "model": "sim", "rubric": "strict"}]})
    assert find_grader("second").rubric == shared


def test_the_samplers_of_the_site_belong_to_nobodys_file(lab, researcher, other_researcher):
    """A file without a sampler uses the provider's default, and a judge without one is asked at temperature 0."""
    judge = {"name": "judge", "model": "sim", "rubric": {"name": "r", "user": "Judge {{answer}}"}}
    create(researcher, "own", grade={"graders": [judge]})
    for name in ("provider-default", "judging"):
        assert Sampler.objects.named(name).get().status == "approved"


def test_the_judges_default_sampler_has_exactly_its_content(db):
    Sampler.objects.create(name="judging", temperature=0, max_tokens=1024, extra={"stop": ["1"]})
    assert get_or_create_default_sampler().content == {"temperature": 0.0, "max_tokens": 1024}
    assert get_or_create_default_sampler().version == 2

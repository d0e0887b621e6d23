"""The shipped prompts and samplers, and the requests they render."""

import io

import pytest
from django.core.management import call_command

from datasets_app.generators.registry import load_generators
from datasets_app.parametric.items import generate_point, make_prompt_parts
from datasets_app.parametric.spaces import resolve_space
from datasets_app.parametric.spec import read_space
from evalsite.lib.rating_scale import RatingScale
from runs_app.llm.prompts import build_variables, render, validate
from runs_app.models import Prompt, Sampler
from runs_app.planning import shipped_designs
from runs_app.planning.design import Design
from runs_app.planning.shipped_designs import GENERAL_PROMPTS, PROMPTS, create_shipped_designs
from tests import factories

ROLES = {
    "zeroshot": "su",
    "zeroshot-nosys": "u",
    "zerocot-nosys": "u",
    "multishot": "suauauau",
    "multishot-nosys": "uauauau",
    "multishot-cot": "suauauau",
    "unified-cot": "u",
}


def generate_item(task):
    (point,) = resolve_space(read_space(f"name: n\ntasks: [{{name: {task}, params: {{count: 2}}}}]")).points
    item = next(generate_point(point))
    return item, item.metadata() | make_prompt_parts(point, seed=42)


@pytest.mark.parametrize("name", PROMPTS)
def test_a_shipped_prompt_is_valid_and_renders_for_every_task(name):
    assert validate(PROMPTS[name]) == []
    for task in load_generators():
        item, metadata = generate_item(task)
        variables = build_variables(key=item.key, input=item.case.input, metadata=metadata)
        messages = render(PROMPTS[name], variables)
        assert "".join(message["role"][0] for message in messages) == ROLES[name]
        assert messages[-1]["content"].endswith(item.case.input)
        texts = "\n".join(message["content"] for message in messages)
        instruction = (
            metadata["instruction_stepwise"] if name == "zerocot-nosys" else load_generators()[task].instructions.task
        )
        assert instruction in texts
        has_examples = all(metadata[f"example_{number}_input"] in texts for number in (1, 2, 3))
        assert has_examples == (("shot" in name and not name.startswith("zero")) or name == "unified-cot")
        assert (metadata["example_3_reasoning"] in texts) == name.endswith("-cot")


@pytest.mark.django_db
def test_the_command_creates_missing_designs_as_approved_and_keeps_existing_ones():
    Prompt.objects.create(name="zeroshot", messages=[{"role": "user", "content": "Mine: {{input}}"}], status="archived")
    out = io.StringIO()
    call_command("prompt", "shipped", stdout=out)
    assert "zeroshot-nosys@1" in out.getvalue()
    assert Prompt.objects.get(name="zeroshot").status == "archived"
    approved = set(Prompt.objects.filter(status="approved").values_list("name", flat=True))
    assert approved == {*ROLES, *GENERAL_PROMPTS} - {"zeroshot"}
    limits = dict(Sampler.objects.filter(status="approved", temperature=0).values_list("name", "max_tokens"))
    tasks = {"greedy-2k": 2048, "greedy-4k": 4096, "greedy-8k": 8192, "greedy-max": None}
    assert limits == tasks | {"temperature-0": None}
    assert Sampler.objects.get(name="provider-default").content == {}
    assert Prompt.objects.get(name="multishot").history.get().reason == shipped_designs.REASON
    assert create_shipped_designs() == []
    call_command("prompt", "shipped", stdout=(second_output := io.StringIO()))
    assert "nothing is missing" in second_output.getvalue()


@pytest.mark.parametrize("name", sorted(GENERAL_PROMPTS))
def test_a_general_prompt_is_valid_and_needs_no_metadata(name):
    messages = GENERAL_PROMPTS[name]["messages"]
    assert validate(messages) == []
    scale = RatingScale(1, 7, {})
    variables = build_variables(key="a", input="What is 2 + 3?", choices=["4", "5"], dimension="warmth", scale=scale)
    (message,) = render(messages, variables, "data:image/png;base64,AA" if name == "rate-image" else None)
    assert message["role"] == "user"
    assert name == "rate-image" or "What is 2 + 3?\n" in message["content"]
    assert name == "rate-image" or "B) 5" in message["content"]


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["plain", "answer-line", "multiple-choice"])
def test_a_general_prompt_fits_a_dataset_of_questions_without_metadata(name):
    create_shipped_designs()
    dataset = factories.make_dataset("capitals", 3)
    design = {"prompts": [Prompt.objects.get(name=name)], "samplers": [Sampler.objects.get(name="provider-default")]}
    experiment = factories.make_experiment(dataset=dataset, max_usd=None, **design)
    assert Design.load(experiment).find_problems() == []
    assert Design.load(experiment).find_warnings() == []

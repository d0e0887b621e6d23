"""Datasets of parametric tasks, and simulated models that answer them in this process."""

import json

from datasets_app.parametric.dataset_builder import SpaceFiles, create_parametric_dataset
from datasets_app.parametric.spaces import resolve_space
from datasets_app.parametric.spec import read_space
from runs_app.simulator.known_answers import AnswerKey
from runs_app.simulator.model_behaviour import Answerer
from runs_app.simulator.request_parser import read_chat
from runs_app.simulator.responses import Reply, count_tokens
from runs_app.simulator.skill_profiles import parse_profiles
from tests import factories


def make_parametric_dataset(text, slug="reasoning", *, approved=True, **options):
    dataset = create_parametric_dataset(
        resolve_space(read_space(text), **options), SpaceFiles(text), slug=slug, by="test"
    )
    if approved:
        factories.approve(dataset)
    return dataset


def make_answerer(dataset, profiles, seed=0):
    """Return simulated models that answer the cases of a dataset with the skill of their profiles."""
    key = AnswerKey()
    for row in dataset.iterate_answer_key():
        key.add(row)
    return Answerer(seed, {}, key, profiles=parse_profiles(profiles))


def ask(models, text, model, **options):
    """Return the reply of a model to one user turn, truncated at `max_tokens`."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], **options}
    request = read_chat(json.dumps(body).encode())
    return Reply(models.answer(request).content).truncate(request.max_tokens)


def build_reply_fields(reply):
    """Return the fields of a trial with this reply."""
    return {
        "answer": reply.content,
        "finish_reason": reply.finish_reason,
        "truncated": reply.finish_reason == "length",
        "output_tokens": count_tokens(reply.content),
    }

"""Datasets, items, prompts and models."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router

from datasets_app.models import Dataset, Item
from evalsite.api import reach
from evalsite.api.schemas import (
    DatasetOut,
    DatasetPage,
    ItemPage,
    ModelPage,
    PageQuery,
    PromptOut,
    PromptPage,
    read_page,
)
from runs_app.models import LanguageModel, Prompt

MAX_VERSION = 2**31 - 1
router = Router(auth=reach.AccessToken(reach.READ), tags=["Designs"])


@router.get("/datasets", response=DatasetPage, summary="List datasets")
def datasets(request: HttpRequest, page: Query[PageQuery]) -> Any:
    """The datasets that your account may see, oldest first."""
    return read_page(reach.list_datasets(request), page, _write_dataset)


@router.get("/datasets/{slug:name}/{int:version}", response=DatasetOut, summary="Read a dataset")
def dataset(request: HttpRequest, name: str, version: int) -> Any:
    return _write_dataset(_get_dataset(request, name, version))


@router.get("/datasets/{slug:name}/{int:version}/items", response=ItemPage, summary="List the items of a dataset")
def items(request: HttpRequest, name: str, version: int, page: Query[PageQuery]) -> Any:
    return read_page(_get_dataset(request, name, version).items.all(), page, _write_item)


@router.get("/prompts", response=PromptPage, summary="List prompts")
def prompts(request: HttpRequest, page: Query[PageQuery]) -> Any:
    return read_page(reach.list_prompts(request), page, _write_prompt)


@router.get("/prompts/{slug:name}/{int:version}", response=PromptOut, summary="Read a version of a prompt")
def prompt(request: HttpRequest, name: str, version: int) -> Any:
    return _write_prompt(get_object_or_404(reach.list_prompts(request), name=name, version=min(version, MAX_VERSION)))


@router.get("/models", response=ModelPage, summary="List models")
def models(request: HttpRequest, page: Query[PageQuery]) -> Any:
    """The language models of the site, with their prices. Keys and addresses of endpoints are never shown."""
    return read_page(reach.list_models(request), page, _write_model)


def _get_dataset(request: HttpRequest, name: str, version: int) -> Dataset:
    row: Dataset = get_object_or_404(reach.list_datasets(request), slug=name, version=min(version, MAX_VERSION))
    return row


def _write_dataset(row: Dataset) -> dict[str, Any]:
    names = ("version", "title", "status", "licence", "source", "content_hash", "created_at")
    return {"name": row.slug, "items": row.item_count, **{name: getattr(row, name) for name in names}}


def _write_item(row: Item) -> dict[str, Any]:
    names = ("key", "position", "input", "target", "choices", "category", "metadata", "excluded")
    return {"id": row.pk, "image": row.image_id, **{name: getattr(row, name) for name in names}}


def _write_prompt(row: Prompt) -> dict[str, Any]:
    names = ("name", "version", "status", "messages", "answer_format", "content_hash")
    return {name: getattr(row, name) for name in names}


def _write_model(row: LanguageModel) -> dict[str, Any]:
    return {
        "name": row.name,
        "model": row.model,
        "endpoint": row.endpoint.name,
        "provider": row.endpoint.provider,
        "is_active": row.is_active,
        "sees_images": row.sees_images,
        "input_price": _write_money(row.input_price),
        "output_price": _write_money(row.output_price),
    }


def _write_money(amount: Any) -> str | None:
    return None if amount is None else str(amount)

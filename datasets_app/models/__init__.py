"""Models of datasets, their items, images and human norms; and the jobs of all apps."""

from datasets_app.models.background_jobs import BackgroundJob
from datasets_app.models.datasets import Dataset, ParametricSpace
from datasets_app.models.items import Asset, Item, Norm

__all__ = [
    "Asset",
    "BackgroundJob",
    "Dataset",
    "Item",
    "Norm",
    "ParametricSpace",
]

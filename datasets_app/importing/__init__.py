"""The import of datasets: a file becomes item records without Django, and `dataset_writer` saves valid readings."""

from datasets_app.importing.column_map import FIELDS, guess_mapping, parse_mapping
from datasets_app.importing.image_reader import BadImage, read_image, thumbnail
from datasets_app.importing.item_reader import read_columns, read_items
from datasets_app.importing.limits import LIMITS, Limits
from datasets_app.importing.norm_reader import NormReading, read_norms
from datasets_app.importing.records import (
    ImageRecord,
    ItemRecord,
    NormRecord,
    Reading,
    Refused,
    Remark,
    dataset_hash,
    item_content,
)

__all__ = [
    "FIELDS",
    "LIMITS",
    "BadImage",
    "ImageRecord",
    "ItemRecord",
    "Limits",
    "NormReading",
    "NormRecord",
    "Reading",
    "Refused",
    "Remark",
    "dataset_hash",
    "guess_mapping",
    "item_content",
    "parse_mapping",
    "read_columns",
    "read_image",
    "read_items",
    "read_norms",
    "thumbnail",
]

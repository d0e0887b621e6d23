"""The import of datasets: a file becomes item records without Django, and `dataset_writer` saves valid readings."""

from datasets_app.importing.column_map import FIELDS, guess_mapping, parse_mapping
from datasets_app.importing.image_reader import BadImage, make_thumbnail, read_image
from datasets_app.importing.item_reader import read_columns, read_items
from datasets_app.importing.limits import LIMITS, Limits
from datasets_app.importing.norm_reader import NormReading, read_norms
from datasets_app.importing.records import (
    FileError,
    ImageRecord,
    ItemReading,
    ItemRecord,
    NormRecord,
    Remark,
)

__all__ = [
    "FIELDS",
    "LIMITS",
    "BadImage",
    "FileError",
    "ImageRecord",
    "ItemReading",
    "ItemRecord",
    "Limits",
    "NormReading",
    "NormRecord",
    "Remark",
    "guess_mapping",
    "make_thumbnail",
    "parse_mapping",
    "read_columns",
    "read_image",
    "read_items",
    "read_norms",
]

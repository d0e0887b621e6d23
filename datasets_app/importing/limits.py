"""How much an upload may ask of the machine: every limit of the import, in one place."""

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, texts in characters; checked while reading, so nothing larger is ever held."""

    file_bytes: int = 512 * MIB
    table_bytes: int = 128 * MIB
    json_array_bytes: int = 32 * MIB  # A JSON array is parsed in one piece; JSON lines are not.
    decoded_bytes: int = 512 * MIB  # of all cells of a table, whatever its file compresses them to
    rows: int = 100_000
    columns: int = 500
    column_chars: int = 500  # of a column's name
    line_chars: int = 2_000_000
    text_chars: int = 200_000
    key_chars: int = 200
    category_chars: int = 200
    metadata_chars: int = 100_000  # of one item, as JSON
    choices: int = 100
    zip_members: int = 50_000
    unpacked_bytes: int = 2048 * MIB
    member_ratio: int = 200  # unpacked to packed; only looked at above `ratio_from_bytes`
    ratio_from_bytes: int = MIB
    image_bytes: int = 32 * MIB
    image_pixels: int = 50_000_000  # width x height x frames
    image_side: int = 2048  # longer images are scaled down to this
    remarks: int = 100  # errors, and warnings, that are kept; the rest are counted
    hints: int = 20  # missing images for which a similar name is looked up
    reader_memory_bytes: int = 2048 * MIB  # address space of the process that reads a file
    preview_seconds: int = 120  # to read the columns and the first rows
    reader_seconds: int = 1800  # to read all of a file


LIMITS = Limits()

"""All limits of the import on size, memory and time."""

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an import: sizes in bytes, texts in characters. They are checked during reading, to bound memory."""

    file_bytes: int = 512 * MIB
    table_bytes: int = 128 * MIB
    json_array_bytes: int = 32 * MIB  # A JSON array is parsed as a whole, unlike JSON lines.
    decoded_bytes: int = 512 * MIB  # decoded size of all cells of a table, however its file compresses them
    rows: int = 100_000
    columns: int = 500
    column_chars: int = 500  # name of a column
    line_chars: int = 2_000_000
    text_chars: int = 200_000
    key_chars: int = 200
    category_chars: int = 200
    metadata_chars: int = 100_000  # metadata of one item, as JSON
    choices: int = 100
    zip_members: int = 50_000
    unpacked_bytes: int = 2048 * MIB
    member_ratio: int = 200  # unpacked size / packed size; checked only above `ratio_from_bytes`
    ratio_from_bytes: int = MIB
    image_bytes: int = 32 * MIB
    image_pixels: int = 50_000_000  # width x height x frames
    image_scans: int = 100  # passes of a JPEG over its pixels; a scan of 100 bytes can cost as much as a whole image
    image_side: int = 2048  # longest side; larger images are scaled down
    remarks: int = 100  # stored errors, and stored warnings; further ones are only counted
    hints: int = 20  # missing images for which a similar name is searched
    reader_memory_bytes: int = 2048 * MIB  # address space of the reader process
    preview_seconds: int = 120  # to read the columns and the first rows
    reader_seconds: int = 1800  # to read all of a file


LIMITS = Limits()

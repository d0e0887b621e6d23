"""Make `samples/photographs/`, `photographs.csv` and `norms.csv` again from their sources.

    python samples/make_samples.py FOLDER_OF_ORIGINALS

The folder holds the originals named in `catalogue.SOURCES`, taken from three packages (SOURCES.md says which versions):
the files of `skimage/data/` in scikit-image's wheel, `scipy/misc/face.dat` in SciPy's, and
`matplotlib/mpl-data/sample_data/grace_hopper.jpg` in Matplotlib's. The drawings need no originals. The means in
`norms.csv` are invented so that the demonstration has something to compare with; they describe no group of people.
"""

import bz2
import csv
import random
import sys
from pathlib import Path

from catalogue import PICTURES, SOURCES, Picture
from drawings import DRAWINGS, HEIGHT, WIDTH
from PIL import Image

HERE = Path(__file__).parent
JPEG_QUALITY = 82
MADE_UP = "made up for demonstration"
NORM_COLUMNS = ("mean", "SD", "N")


def original(name: str, folder: Path) -> Image.Image:
    """The photograph a crop is cut from. SciPy stores its raccoon as compressed raw pixels, 1024 by 768."""
    path = folder / SOURCES[name].file
    if path.suffix == ".dat":
        return Image.frombytes("RGB", (1024, 768), bz2.decompress(path.read_bytes()))
    return Image.open(path).convert("RGB")


def rendered(picture: Picture, folder: Path) -> Image.Image:
    if picture.source == "drawing":
        return DRAWINGS[picture.key.replace("-", "_")]()
    crop = original(picture.source, folder).crop(picture.box)
    return crop.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


def description(picture: Picture) -> dict[str, str]:
    drawn = picture.source == "drawing"
    box = "x".join(map(str, picture.box))
    source = "drawn for this project" if drawn else f"{SOURCES[picture.source].source}, crop {box}"
    licence = "CC0" if drawn else SOURCES[picture.source].licence
    file = f"{picture.key}.jpg"
    return dict(
        key=picture.key, file=file, category=picture.category, caption=picture.caption, source=source, licence=licence
    )


def made_up_norms(picture: Picture, rng: random.Random) -> dict[str, str]:
    row = {"Theme": picture.key, "Category": picture.category}
    for dimension, mean in (("Valence", picture.valence), ("Arousal", picture.arousal)):
        values = (f"{mean:.2f}", f"{rng.uniform(0.8, 1.6):.2f}", str(rng.randint(96, 108)))
        row |= {f"{dimension}_{column}": value for column, value in zip(NORM_COLUMNS, values, strict=True)}
    return row | {"source": MADE_UP}


def write_table(name: str, rows: list[dict[str, str]]) -> None:
    with (HERE / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(originals: Path) -> None:
    folder = HERE / "photographs"
    folder.mkdir(exist_ok=True)
    for picture in PICTURES:
        rendered(picture, originals).save(folder / f"{picture.key}.jpg", quality=JPEG_QUALITY, optimize=True)
    write_table("photographs.csv", [description(picture) for picture in PICTURES])
    rng = random.Random(900)  # noqa: S311 - made-up spreads, repeatable
    write_table("norms.csv", [made_up_norms(picture, rng) for picture in PICTURES])


if __name__ == "__main__":
    main(Path(sys.argv[1]))

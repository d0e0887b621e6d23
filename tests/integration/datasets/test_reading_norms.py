"""Norms in wide and long tables, with corrections reported by line."""

import pytest

from datasets_app.importing import NormRecord, read_items, read_norms
from tests.factories.files import build_upload, list_messages
from tests.factories.recordings import find_recording

ITEMS = {"Bark 5": "Object", "Acorns 1": "Object", "Cat 2": "Animal"}


def test_wide_columns_in_any_case():
    text = "Theme,Category,Valence_mean,Valence_SD,Valence_N,AROUSAL_MEAN\nBark 5,Object,4.2,0.9,101,2.06\n"
    assert read_norms(build_upload(text), ITEMS).norms == [
        NormRecord("Bark 5", "valence", 4.2, 0.9, 101),
        NormRecord("Bark 5", "arousal", 2.06),
    ]


def test_a_long_table_has_a_row_for_each_norm():
    text = "key;dimension;mean;sd;n\nBark 5;Valence;4.2;0.9;101.0\nBark 5;arousal;2.06;;\n"
    assert [(n.dimension, n.mean, n.sd, n.n) for n in read_norms(build_upload(text), ITEMS).norms] == [
        ("valence", 4.2, 0.9, 101),
        ("arousal", 2.06, None, None),
    ]


def test_small_differences_of_keys_are_repaired_and_reported():
    """The table has old line ends, an unnamed column, trailing blanks in keys, and other spellings."""
    text = ",Theme,Category,Valence_mean\r1,Bark 5 ,Objects,4.2\r2,acorns  1,object,5\r3,Cat 2.jpg,Scene,6\r"
    reading = read_norms(build_upload(text), ITEMS)
    assert reading.ok
    assert [norm.key for norm in reading.norms] == ["Bark 5", "Acorns 1", "Cat 2"]
    assert list_messages(reading.report.warnings) == [
        "header: column 1 has no name and is left out",
        "row 1 (line 2), key: 'Bark 5 ' is read as 'Bark 5'",
        "row 1 (line 2), category: 'Objects' is another spelling of the dataset's 'Object', which is kept",
        "row 2 (line 3), key: 'acorns  1' is read as 'Acorns 1'",
        "row 2 (line 3), category: 'object' is another spelling of the dataset's 'Object', which is kept",
        "row 3 (line 4), key: 'Cat 2.jpg' is read as 'Cat 2'",
        "row 3 (line 4), category: 'Scene' differs from the dataset's 'Animal', which is kept",
    ]


def test_a_spelling_that_fits_two_items_is_not_guessed():
    reading = read_norms(build_upload("key,v_mean\nBARK 5,4\n"), {"Bark 5": "", "bark 5": ""})
    assert reading.norms == []
    assert "1 not in the dataset: 'BARK 5' (row 1)" in str(reading.report.warnings[0])


def test_keys_without_items_and_items_without_norms_are_counted():
    text = "key,v_mean\nBark 5,4\n" + "".join(f"Other {n},4\n" for n in range(9))
    warnings = list_messages(read_norms(build_upload(text), ITEMS).report.warnings)
    assert warnings[0].startswith("key: 9 not in the dataset: 'Other 0' (row 2)")
    assert warnings[0].endswith("and 4 more")
    assert warnings[1] == "key: 2 items have no norms: 'Acorns 1', 'Cat 2'"


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("four,1,9", "v_mean: 'four' is not a number"),
        ('"4,25",1,9', "v_mean: '4,25' is not a number; write 4.25"),
        ("nan,1,9", "v_mean: 'nan' is not a finite number"),
        ("4,-1,9", "v_sd: an sd of -1 is negative"),
        ("4,1,9.5", "v_n: an n of 9.5 is not a whole number from 1"),
        ("4,1,0", "v_n: an n of 0 is not a whole number from 1"),
        (",1,9", "v: has no mean"),
    ],
)
def test_impossible_numbers_are_errors(cells, message):
    reading = read_norms(build_upload(f"key,v_mean,v_sd,v_n\nBark 5,{cells}\n"), ITEMS)
    assert list_messages(reading.report.errors) == [f"row 1 (line 2), {message}"]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_decimal_commas_are_read_where_commas_do_not_separate_columns(delimiter):
    text = "key;v_mean;v_sd;v_n\nBark 5;4,25;-0,5;9\nCat 2;3;0,75;9\nAcorns 1;1.234,5;1;9\n".replace(";", delimiter)
    reading = read_norms(build_upload(text), ITEMS)
    assert reading.norms == [NormRecord("Cat 2", "v", 3.0, 0.75, 9)]
    assert list_messages(reading.report.errors) == [
        "row 1 (line 2), v_sd: an sd of -0.5 is negative",
        "row 3 (line 4), v_mean: '1.234,5' is not a number",
    ]
    assert list_messages(reading.report.warnings)[0] == (
        "row 1 (line 2), v_mean: '4,25' is read as 4.25; this file's norms have decimal commas"
    )
    items = read_items(build_upload("id;text;v_mean\na;Q;4,5\nb;R;3,5\n"))
    assert [norm.mean for item in items.items for norm in item.norms] == [4.5, 3.5]
    assert len(items.report.warnings) == 1


def test_blank_cells_give_no_norm():
    reading = read_norms(build_upload("key,v_mean,v_sd\nBark 5,,\nCat 2,3,\n"), ITEMS)
    assert (reading.ok, [norm.key for norm in reading.norms]) == (True, ["Cat 2"])


def test_two_norms_for_one_item_are_an_error():
    reading = read_norms(build_upload("key,v_mean\nBark 5,4\nBark 5 ,5\n"), ITEMS)
    assert list_messages(reading.report.errors) == ["row 2 (line 3), v: 'Bark 5' has this norm in row 1 already"]


def test_a_table_without_keys_or_means_is_refused():
    assert "no column contains the keys" in str(read_norms(build_upload("x,v_mean\na,1\n"), ITEMS).report.errors[0])
    assert "no column of means" in str(read_norms(build_upload("key,v\nBark 5,1\n"), ITEMS).report.errors[0])


def test_a_mapping_names_the_column_of_keys():
    assert read_norms(build_upload("stim nr,v_mean\nBark 5,4\n"), ITEMS, {"key": "stim nr"}).ok


def test_norms_may_be_in_the_table_of_items():
    reading = read_items(build_upload("id,text,human_valence_mean,human_valence_sd\na,Q,4.5,1\nb,R,,\n"))
    assert [item.norms for item in reading.items] == [(NormRecord("a", "valence", 4.5, 1.0),), ()]
    assert reading.items[0].metadata == {}


def test_the_real_items_carry_their_norms():
    reading = read_items(find_recording("uniform40-items.csv"), mapping={"input": "image_id"})
    assert len(reading.items) == 40
    assert {norm.dimension for item in reading.items for norm in item.norms} == {"valence", "arousal"}
    second_reading = read_norms(
        find_recording("uniform40-items.csv"), {item.key: item.category for item in reading.items}
    )
    assert second_reading.norms == [norm for item in reading.items for norm in item.norms]

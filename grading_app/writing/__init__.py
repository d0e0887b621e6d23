"""Rubrics of items: a model writes one for each from its reference, once; people correct them; judges read them.

`planning` asks the model, `collecting` makes a set of what it wrote, `correcting` changes and approves the set.
"""

"""The tables of pages, with django-tables2."""

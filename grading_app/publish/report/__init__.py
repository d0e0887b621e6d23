"""The written report of an experiment: a document that is generated from rows, and its HTML, PDF and zip.

`document` is the model: sections of blocks. Each module of `sections` generates the blocks of one section, `build` puts
them together and stores the document, and `files` writes it. Every number of a document is computed.
"""

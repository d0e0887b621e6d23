"""Every figure of an experiment, for papers: as SVG, PNG, PDF, and as a table of the numbers behind it.

`figure_set` has the registry of figures and their data. `print_style` writes them in the size, font size and colours
that the reader chose. `rating_summary` states the numbers of a rating study as JSON.
"""

"""Every figure of an experiment, for papers: as SVG, PNG, PDF, and as CSV of the numbers behind it.

`registry` lists the figures of an experiment, each provider module adds some, and `print_style` writes them in the
size, font size and colours that the reader chose.
"""

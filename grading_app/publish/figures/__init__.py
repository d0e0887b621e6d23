"""Every figure of an experiment, for papers: as SVG, PNG, PDF, and as CSV of the numbers behind it.

`figure_registry` lists the figures of an experiment. Each module of a provider adds some of them. `print_style` writes
them in the size, font size and colours that the reader chose.
"""

"""The site: settings, URLs and static files. `__version__` is the only place that states the version."""

__version__ = "0.1.0"

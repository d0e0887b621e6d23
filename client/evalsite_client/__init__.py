"""A client of the API of an Evalsite: experiments, their rows as data frames, results and launches."""

from evalsite_client.connection import ApiError
from evalsite_client.lab import Lab, RemoteExperiment, Results
from evalsite_client.tables import Table

__version__ = "0.1.0"
__all__ = ["ApiError", "Lab", "RemoteExperiment", "Results", "Table"]

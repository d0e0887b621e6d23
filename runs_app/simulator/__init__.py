"""A simulated model provider: an OpenAI-compatible server for demos, tests and load.

Reading order: `config` (what may be set), `reading` (what was asked), `faults` (what goes wrong), `asking` and
`answering` (what a model would say), `replaying` (what a model did say), `counting` and `server`. `launching` starts
one in a process of its own. Nothing here imports Django or opens a database.
"""

from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import SimulatorProcess, simulator_process
from runs_app.simulator.server import RunningSimulator, start

__all__ = ["RunningSimulator", "SimulatorConfig", "SimulatorProcess", "simulator_process", "start"]

"""A simulated model provider: an OpenAI-compatible server for demos, tests and load tests.

Reading order: `config` (settings), `request_parser` (requests), `responses` (replies, errors and latency),
`model_behaviour` (made-up answers), `known_answers` (recorded answers), `batches`, `request_counters` and `server`.
`process` starts a server in a child process. Nothing here imports Django or opens a database.
"""

from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.process import SimulatorProcess, simulator_process
from runs_app.simulator.server import RunningSimulator, start

__all__ = ["RunningSimulator", "SimulatorConfig", "SimulatorProcess", "simulator_process", "start"]

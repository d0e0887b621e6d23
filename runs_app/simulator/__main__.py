"""`python -m runs_app.simulator`: the simulated provider without Django, which starts faster than the command."""

import argparse
import sys

from runs_app.simulator.config import ConfigError, add_options, build_config
from runs_app.simulator.server import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulate_provider", description="An OpenAI-compatible simulated provider.")
    add_options(parser)
    try:
        run(build_config(vars(parser.parse_args())))
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

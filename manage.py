#!/usr/bin/env python
"""The command line of a checkout. `python manage.py help` lists the commands."""

from evalsite.command_line import main

if __name__ == "__main__":
    main()

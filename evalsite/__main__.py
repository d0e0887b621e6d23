"""`python -m evalsite`: the command line, from a checkout or an installed package."""

from evalsite.command_line import main

if __name__ == "__main__":
    main()

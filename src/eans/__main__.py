"""``python -m eans``: the command line, by the Python that runs it."""

from eans.cli import main

if __name__ == "__main__":
    main()

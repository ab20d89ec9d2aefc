"""`python -m pyggml`: the command line."""

from pyggml.cli import main

if __name__ == "__main__":
    main()

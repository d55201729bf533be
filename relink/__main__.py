"""``python -m relink``."""

from relink.cli import main

if __name__ == "__main__":
    main()

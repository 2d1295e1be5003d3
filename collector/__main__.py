"""`python -m collector` is `fusewire`."""

from collector.cli import main

if __name__ == "__main__":
    main()

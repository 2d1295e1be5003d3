"""The command line. `main` is the entry point; each module here holds a few commands."""


def main() -> None:
    """Run `fusewire` with the arguments of the process."""
    from collector.cli.root import fusewire

    fusewire.main(prog_name="fusewire")

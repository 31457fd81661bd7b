"""`python -m turnout_client` is `turnout-client`: the commands that ask a server, with the extra `cli`."""

import sys


def main() -> None:
    """Run the commands; without the packages that they need, name the extra that brings them."""
    try:
        from turnout_client.cli import main as run
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("typer", "rich"):
            raise
        sys.exit("error: turnout-client needs typer and rich for its commands: pip install 'turnout-client[cli]'")
    run()


if __name__ == "__main__":
    main()

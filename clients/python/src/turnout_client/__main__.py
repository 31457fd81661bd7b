"""Run `turnout-client` as `python -m turnout_client`; needs the extra `cli`."""

import sys


def main() -> None:
    """Run the command line; if its packages are missing, exit with the name of the extra that installs them."""
    try:
        from turnout_client.cli import main as run
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in ("typer", "rich"):
            raise
        sys.exit("error: turnout-client needs typer and rich for its commands: pip install 'turnout-client[cli]'")
    run()


if __name__ == "__main__":
    main()

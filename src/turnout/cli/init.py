"""`init`: a configuration file to start from."""

from pathlib import Path
from typing import Annotated

import typer

from turnout.cli import options, output
from turnout.cli.app import app, examples
from turnout.errors import TurnoutError


@app.command(epilog=examples("turnout init && turnout check -c turnout.yaml", "turnout init /etc/turnout --force"))
def init(
    path: Annotated[Path, typer.Argument(help="The file to write, or a folder for it.")] = Path("turnout.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: options.Json = False,
) -> None:
    """Write a commented turnout.yaml to start from."""
    from turnout.config import default_text

    file = path / "turnout.yaml" if path.is_dir() else path
    try:
        with file.open("w" if force else "x", encoding="utf-8") as opened:
            opened.write(default_text())
    except FileExistsError:
        raise TurnoutError(
            code="file_exists", message=f"{file} is there already", hint="give another path, or --force to replace it"
        ) from None
    except OSError as error:
        raise TurnoutError(
            code="file_unwritable", message=f"{file} cannot be written: {error.strerror}", hint="give another path"
        ) from None
    if json:
        output.print_json({"path": str(file)})
    else:
        print(f"Wrote {file}. Next: edit it, then turnout check -c {file}, then turnout run -c {file}")

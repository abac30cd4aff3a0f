"""The command line: finds the commands, and turns every ending into an exit code and at most one line on stderr.

A command lives in ``apps/NAME_command.py`` and offers ``register(app)``; nothing else has to know it.  Such a module
imports heavy packages (numpy, pandas, simpy, the simulator) inside its functions, so that ``--help`` is quick.

Exit codes: 0 done, 1 an error (bad options included), 2 the answer is "no" (does not fit, target missed), 130 stopped
by the user.  Data goes to stdout or to ``-o``, words for people to stderr.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import apps

OK, ERROR, NO, INTERRUPTED = 0, 1, 2, 130

#: click's exceptions, found through typer: newer typers carry a click of their own.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_ClickException: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="servecast",
    help="How many users can this vLLM server carry before its latency breaks?\n\n"
    "Every command explains itself: servecast COMMAND --help",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"servecast {version('servecast')}")
        raise typer.Exit(OK)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _register_commands() -> None:
    """Import every ``apps/*_command.py`` and let it add itself."""
    for module in sorted(found.name for found in pkgutil.iter_modules(apps.__path__)):
        if module.endswith("_command"):
            importlib.import_module(f"apps.{module}").register(app)


_register_commands()


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _failed(error: BaseException) -> int:
    """Say what went wrong in one line; return the exit code.  Unknown errors are bugs and are raised again."""
    from simulator.errors import DoesNotFitError, ServecastError

    if isinstance(error, _ClickException):
        context = getattr(error, "ctx", None)
        hint = f" (see '{context.command_path} --help')" if context and isinstance(error, _UsageError) else ""
        message = f"{_one_line(error.format_message()).rstrip('.')}{hint}"  # type: ignore[attr-defined]
    elif isinstance(error, ServecastError):
        message = _one_line(error)
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{error.strerror or error}"
    else:
        raise error
    typer.echo(f"error: {message}", err=True)
    return NO if isinstance(error, DoesNotFitError) else ERROR


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.  No traceback for anything a user can cause."""
    try:
        code = app(
            args=list(sys.argv[1:] if arguments is None else arguments), prog_name="servecast", standalone_mode=False
        )
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else ERROR
    except BrokenPipeError:  # the reader has seen enough; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ERROR
    except Exception as error:
        return _failed(error)
    return code if isinstance(code, int) else OK


if __name__ == "__main__":
    sys.exit(main())

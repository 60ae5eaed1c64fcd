"""A program of commands: what goes wrong in it is one line on standard error and an exit status.

0 for success, 1 for a run that failed, 2 for a mistake in the call, 130 for an interruption.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import typer

from eans.errors import EansError, Interrupted, UsageError
from eans.signals import stop_while_importing
from eans.streams import standard_streams

__all__ = ["execute"]

STATUS: dict[type[EansError], int] = {UsageError: 2, Interrupted: 130, EansError: 1}


def execute(app: typer.Typer, program: str, arguments: list[str] | None = None) -> None:
    """Do what the arguments say, those of the process by default, and exit; messages start with `program`."""
    if threading.current_thread() is threading.main_thread():
        stop_while_importing()
    with standard_streams():
        try:
            status = _run(app, program, arguments)
        except EansError as error:
            status = next(status for kind, status in STATUS.items() if isinstance(error, kind))
            _say(program, str(error))
        except KeyboardInterrupt:
            status = STATUS[Interrupted]
            _say(program, "interrupted")
        except BrokenPipeError:  # the reader, such as `head`, has gone
            status = 1
        except OSError as error:  # of a file: what reads and writes those of runs says more
            status = 1
            _say(program, f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except (MemoryError, RuntimeError) as error:
            if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
                raise
            status = 1
            _say(program, "not enough memory; lower model.dim, train.batch_size or sampler.negatives")
    sys.exit(status)


def _run(app: typer.Typer, program: str, arguments: list[str] | None) -> int:
    """The exit status of the command."""
    command: Any = typer.main.get_command(app)
    try:
        status = command.main(args=arguments, prog_name=program, standalone_mode=False)
    except Exception as error:
        # Typer reports wrong options by exceptions of its own that know how to show themselves.
        if not (hasattr(error, "show") and hasattr(error, "exit_code")):
            raise
        shown: Any = error
        context: Any = getattr(error, "ctx", None)
        options = [] if context is None else [option.name for option in context.command.params]
        if "unexpected extra argument" in str(error) and "=" in str(error) and "set_" in options:
            _say(program, f"{str(error).rstrip('.')}; settings are given with --set KEY=VALUE")
        elif context is None or not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
            shown.show()
        else:
            _say(program, f"{shown.format_message().rstrip('.')} (see {context.command_path} --help)")
        return int(shown.exit_code)
    sys.stdout.flush()  # here a failure can still be reported
    if status == STATUS[Interrupted]:  # what Typer makes of Ctrl-C
        _say(program, "interrupted")
    return status if isinstance(status, int) else 0


def _say(program: str, message: str) -> None:
    print(f"{program.split()[-1]}: error: {message}", file=sys.stderr)

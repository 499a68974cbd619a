"""The `dsopt` command: dispatch, exit codes, and the one place where errors are printed.

Exit codes: 0 done; 1 something the user can fix; 2 wrong usage; 3 a bug in dsopt; 130 interrupted.
"""

import difflib
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from dsopt.api.storage import database_error
from dsopt.cli.prose import say
from dsopt.cli.streams import prepare_streams
from dsopt.errors import DsoptError, Interrupted
from dsopt.version import __version__

_OBJECTS_UNTIL_COLLECTION = 50_000  # most of what a command makes, it needs until its end

_COMMANDS = {
    "study": ("dsopt.cli.study", "study", "Create, list, show, stop, resume and delete studies."),
    "trial": ("dsopt.cli.trial", "trial", "Show one run of a study, and its logs."),
    "diff": ("dsopt.cli.diff", "diff", "Show what the best configuration changes, and what each change is worth."),
    "report": ("dsopt.cli.report", "report", "Write a study as one file: HTML, Markdown or JSON."),
    "export": ("dsopt.cli.export", "export", "Export every run of a study: CSV, Parquet, MLflow, wandb."),
    "worker": ("dsopt.cli.worker", "worker", "Work on studies with the devices of this machine."),
    "workers": ("dsopt.cli.workers", "workers", "List the workers on all nodes, with what each runs."),
    "slurm": ("dsopt.cli.slurm", "slurm", "Print a batch script that works on a study in Slurm."),
    "tune": ("dsopt.cli.tune", "tune", "Tune a command on this machine and print the summary."),
    "run": ("dsopt.cli.tune", "run", "Tune a command, then train with the best configuration."),
    "compare": ("dsopt.cli.compare", "compare", "Compare configurations: vanilla, yours, hand-tuned, dsopt's."),
    "estimate": ("dsopt.cli.estimate", "estimate", "Estimate the memory of a model's states, and what fits."),
    "import": ("dsopt.cli.import_", "import_", "Import the results of DeepSpeed's own autotuner into a study."),
    "key": ("dsopt.cli.key", "key", "Create and list keys, with which studies are signed."),
    "db": ("dsopt.cli.db", "db", "Create, upgrade, check, back up and restore the database."),
    "doctor": ("dsopt.cli.doctor", "doctor", "Check the machine, the storage and a study before hours are spent."),
    "report-issue": ("dsopt.cli.report_issue", "report_issue", "Collect what an issue needs, without secrets."),
    "dashboard": ("dsopt.cli.dashboard", "dashboard", "Serve pages of all studies, and optuna-dashboard, read-only."),
}


class _LazyGroup(click.Group):
    """Imports a command's module when the command is called, so that `--help` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, name, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggests the nearest command for one that is not there, or the same one of a group."""
        groups = (name for name in ("study", "trial") if args[0] not in _COMMANDS)
        within = [f"{name} {args[0]}" for name in groups if self._has(ctx, name, args[0])]
        meant = within or difflib.get_close_matches(args[0], _COMMANDS, 1)
        if args[0] not in _COMMANDS and not ctx.resilient_parsing and not args[0].startswith("-") and meant:
            raise click.UsageError(f"No such command '{args[0]}'. Did you mean '{meant[0]}'?", ctx)
        return super().resolve_command(ctx, args)

    def _has(self, ctx: click.Context, group: str, name: str) -> bool:
        command = self.get_command(ctx, group)
        return isinstance(command, click.Group) and name in command.list_commands(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, _, about) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="dsopt")
def dsopt() -> None:
    """Find the fastest DeepSpeed configuration for a training job with short, real runs.

    \b
    Everything on one machine:
      dsopt tune -- deepspeed --num_gpus 8 train.py --deepspeed_config ds_config.json
    A study for several workers:
      dsopt study create studies/tiny-gpt/study.yaml
      dsopt worker tiny-gpt
      dsopt study best tiny-gpt -o ds_config_optimal.json
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        raise DsoptError("the working folder was removed. Go to one that is there (cd), and try again.") from None


def main() -> None:
    """Runs the command line and exits."""
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTION)
    prepare_streams()
    try:
        _check_text(sys.argv[1:])
        code = dsopt(standalone_mode=False, prog_name="dsopt")
        sys.exit(code if isinstance(code, int) else 0)  # `dsopt run` has the exit code of the training
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except DsoptError as error:
        say(f"error: {error}", err=True)
        sys.exit(1)
    except (Interrupted, KeyboardInterrupt) as error:
        say(str(error) or "Interrupted.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # the reader of our output, such as `head`, is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        # a full disk or a folder without write permission: something the user can fix, wherever it happens
        where = f"{error.filename}: " if error.filename else ""
        say(f"error: {where}{error.strerror or error}", err=True)
        sys.exit(1)
    except Exception as error:
        reason = database_error(error)
        if reason is not None:
            say(f"error: {reason}", err=True)
            sys.exit(1)
        traceback.print_exc()
        click.echo(
            "error: this is a bug in dsopt. Please report it with the lines above and the output of: "
            "dsopt report-issue",
            err=True,
        )
        sys.exit(3)


def _check_text(words: Sequence[str]) -> None:
    """Refuses words that are no text: no database, and no file of dsopt, can hold them."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"{word!r} is not UTF-8 text.") from None

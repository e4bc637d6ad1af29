"""The command line: `holdfast serve`, `worker`, `migrate`, `backup`, `doctor` and `audit`.

Each command is a file of its own. Commands read settings and report errors; the server itself is put together in `app`.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast import __version__
from holdfast.settings import Settings, SettingsError


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    environment = dict(os.environ)
    for name, value in (
        ("HOLDFAST_HOST", getattr(options, "host", None)),
        ("HOLDFAST_PORT", getattr(options, "port", None)),
        ("HOLDFAST_DATABASE", getattr(options, "database", None)),
    ):
        if value is not None:
            environment[name] = str(value)
    try:
        settings = Settings.from_environment(environment)
    except SettingsError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 2
    try:
        return _run(options, settings)
    except OSError as error:
        if error.filename is None:
            raise
        from holdfast.cli.failures import fail, file_error_text

        return fail(file_error_text(error))


def _run(options: argparse.Namespace, settings: Settings) -> int:
    """Run a command. Its file is imported only now, so that `holdfast --version` does not import the server.

    What is imported stays, so the garbage collector would only look at it again and again: it took an eighth of a
    start. Server and worker switch it on when they are open (`cli.serve.collect_garbage`)."""
    if options.command in ("serve", "worker"):
        gc.disable()
    match options.command:
        case "serve":
            from holdfast.cli.serve import serve

            return serve(settings)
        case "worker":
            from holdfast.cli.worker import worker

            return worker(settings)
        case "migrate":
            from holdfast.cli.database import migrate_database

            return migrate_database(settings)
        case "backup":
            from holdfast.cli.database import back_up_database

            return back_up_database(settings, options.file)
        case "audit":
            from holdfast.cli.audit import audit

            return audit(settings, options.expect, options.expect_count)
        case _:
            from holdfast.cli.doctor import doctor

            return doctor(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="holdfast", description="A server for stateful AI agents.")
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="migrate the database and start the server")
    serve.add_argument("--host", help="address to listen on (127.0.0.1)")
    serve.add_argument("--port", help="port to listen on (8283)")
    worker = commands.add_parser("worker", help="drive runs that servers accept, on the same Postgres")
    migrate = commands.add_parser("migrate", help="bring the database to this version's schema")
    backup = commands.add_parser("backup", help="copy the SQLite database, also while a server runs")
    backup.add_argument("file", type=Path, help="where the copy goes; must not exist yet")
    doctor = commands.add_parser("doctor", help="say what is set up, what is missing and how to get it")
    audit = commands.add_parser("audit", help="check that the log of decisions is whole")
    audit.add_argument(
        "--expect", metavar="HASH", help="a head hash that was printed before; it must be in the log still"
    )
    audit.add_argument("--expect-count", metavar="N", type=int, help="how many decisions there were at that time")
    for command in (serve, worker, migrate, backup, doctor, audit):
        command.add_argument("--database", metavar="URL", help="sqlite:///path or postgresql://user@host/name")
    return parser

"""`holdfast doctor`: checks the setup and prints what works, what is missing and how to fix it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from holdfast import __version__
from holdfast.app.private_files import CannotStart
from holdfast.app.toolbox import process_toolbox
from holdfast.cli.failures import database_error_text, file_error_text, folder_problem
from holdfast.core.errors import ModelError
from holdfast.providers import factory, tokenizers
from holdfast.settings import Settings
from holdfast.storage.schema.migrate import HEAD, version_of
from holdfast.storage.sql.database import make_engine


def doctor(settings: Settings) -> int:
    """Print a line per finding. The exit code is 0 if a server could start now."""
    print(f"Holdfast {__version__}")
    ok = _folder(settings) and _database(settings)
    asyncio.run(_models(settings))
    ok = asyncio.run(_tools(settings)) and ok
    if not tokenizers.IS_INSTALLED:
        _print("note", "tokens", "only estimated in /context; to count them: pip install 'holdfast-server[tokenizers]'")
    if settings.password is None:
        _print(
            "note", "access", "no password: only this machine can use the server. Set HOLDFAST_PASSWORD to share it."
        )
    else:
        _print("ok", "access", "a password is set")
    return 0 if ok else 1


def _print(mark: str, about: str, text: str) -> None:
    print(f"  {mark:5} {about:9} {text}")


def _folder(settings: Settings) -> bool:
    if (problem := folder_problem(settings.data_dir)) is not None:
        _print("FAIL", "folder", problem)
        return False
    _print("ok", "folder", str(settings.data_dir))
    return True


def _database(settings: Settings) -> bool:
    url = make_url(settings.database_url)
    shown = url.render_as_string(hide_password=True)
    try:
        if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
            _print("ok", "database", f"{shown} (will be made at the first start)")
            return True
        engine = make_engine(settings.database_url)
        version = version_of(engine)
        engine.dispose()
    except ImportError:
        _print("FAIL", "database", f"{shown} needs the Postgres driver: pip install 'holdfast-server[postgres]'")
        return False
    except SQLAlchemyError as error:
        _print("FAIL", "database", f"cannot be reached: {database_error_text(settings, error)}")
        return False
    except OSError as error:
        _print("FAIL", "database", file_error_text(error))
        return False
    state = "up to date" if version == HEAD else f"at {version or 'nothing'}; `holdfast migrate` brings it to {HEAD}"
    _print("ok", "database", f"{shown} ({state})")
    return True


async def _tools(settings: Settings) -> bool:
    """Test which sandbox tools can really get on this machine. False if the server would not start."""
    try:
        toolbox = process_toolbox(settings)
    except CannotStart as error:
        _print("FAIL", "tools", str(error))
        return False
    found = await toolbox.isolation()
    await toolbox.close()
    _print("ok" if found.runs else "FAIL", "tools", found.described())
    if found.weaker:
        _print("note", "tools", found.weaker)
    return True


async def _models(settings: Settings) -> None:
    values = settings.provider_values()
    for name, model in factory.build(values):
        try:
            listed = await model.list_models()
            _print("ok", "models", f"{name}: {len(listed)} models, such as {name}/{listed[0].name if listed else '…'}")
        except ModelError as error:
            _print("FAIL", "models", f"{name}: {error.message}")
        finally:
            await model.close()
    for name in ("openai", "anthropic"):
        if not values[f"{name}_api_key"] and not values[f"{name}_base_url"]:
            _print("note", "models", f"{name}: not set up; set {name.upper()}_API_KEY (or {name.upper()}_BASE_URL)")

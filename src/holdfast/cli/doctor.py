"""`holdfast doctor`: what is set up, what is missing and how to get it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from holdfast import __version__
from holdfast.app.tooling import process_toolbox
from holdfast.core.errors import ModelError
from holdfast.providers import catalog
from holdfast.settings import Settings
from holdfast.storage.database import make_engine
from holdfast.storage.migrate import HEAD, version_of

Say = Callable[[str, str, str], None]


def doctor(settings: Settings) -> int:
    """Prints a line per finding; 0 if a server could start now."""
    print(f"Holdfast {__version__}")
    well = _database(settings)
    asyncio.run(_models(settings))
    asyncio.run(_tools(settings))
    if settings.password is None:
        _say("note", "access", "no password: only this machine can use the server. Set HOLDFAST_PASSWORD to share it.")
    else:
        _say("ok", "access", "a password is set")
    return 0 if well else 1


def _say(mark: str, about: str, text: str) -> None:
    print(f"  {mark:5} {about:9} {text}")


def _database(settings: Settings) -> bool:
    url = make_url(settings.database_url)
    shown = url.render_as_string(hide_password=True)
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        _say("ok", "database", f"{shown} (will be made at the first start)")
        return True
    try:
        engine = make_engine(settings.database_url)
        version = version_of(engine)
        engine.dispose()
    except ImportError:
        _say("FAIL", "database", f"{shown} needs the Postgres driver: pip install 'holdfast[postgres]'")
        return False
    except SQLAlchemyError as error:
        reason = str(error).splitlines()[0]
        _say("FAIL", "database", f"{shown} cannot be reached: {reason}")
        return False
    state = "up to date" if version == HEAD else f"at {version or 'nothing'}; `holdfast migrate` brings it to {HEAD}"
    _say("ok", "database", f"{shown} ({state})")
    return True


async def _tools(settings: Settings) -> None:
    """Tries out for real how tools can be confined here."""
    toolbox = process_toolbox(settings)
    found = await toolbox.isolation()
    await toolbox.close()
    _say("ok" if found.runs else "FAIL", "tools", found.described())


async def _models(settings: Settings) -> None:
    values = settings.provider_values()
    for name, model in catalog.build(values):
        try:
            listed = await model.list_models()
            _say("ok", "models", f"{name}: {len(listed)} models, such as {name}/{listed[0].name if listed else '…'}")
        except ModelError as error:
            _say("FAIL", "models", f"{name}: {error.message}")
        finally:
            await model.close()
    for name in ("openai", "anthropic"):
        if not values[f"{name}_api_key"] and not values[f"{name}_base_url"]:
            _say("note", "models", f"{name}: not set up; set {name.upper()}_API_KEY (or {name.upper()}_BASE_URL)")

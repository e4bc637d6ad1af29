"""Tests of the settings from environment variables: names, older names, defaults, and errors for bad values."""

from dataclasses import fields
from pathlib import Path

import pytest

from holdfast.settings import VARIABLES, VENDOR_VARIABLES, Settings, SettingsError, describe


def read(**env: str) -> Settings:
    return Settings.from_environment({"HOME": "/home/ann", **env})


def test_an_empty_environment_gives_a_private_server_on_sqlite() -> None:
    settings = read()
    assert (settings.host, settings.port, settings.password) == ("127.0.0.1", 8283, None)
    assert settings.data_dir == Path("/home/ann/.local/share/holdfast")
    assert settings.database_url == "sqlite:////home/ann/.local/share/holdfast/holdfast.db"
    assert (settings.lease_seconds, settings.event_retention_days, settings.max_body_bytes) == (10, 7, 33_554_432)
    assert (settings.tool_timeout_seconds, settings.log_level, settings.demo) == (180, "info", True)
    assert settings.openai_api_key is settings.openai_base_url is settings.redis_url is None


def test_every_field_has_one_row_in_the_table() -> None:
    rows = [variable.field for variable in VARIABLES]
    assert sorted([*rows, "vendors"]) == sorted(field.name for field in fields(Settings))


def test_no_name_is_used_twice() -> None:
    names = [name for variable in (*VARIABLES, *VENDOR_VARIABLES) for name in (variable.name, *variable.aliases)]
    assert len(names) == len(set(names))


def test_an_empty_variable_counts_as_unset() -> None:
    assert read(HOLDFAST_PORT=" ", LETTA_PG_URI="", HOLDFAST_PASSWORD="") == read()


def test_the_data_folder_follows_xdg_and_is_absolute() -> None:
    assert read(XDG_DATA_HOME="/srv").data_dir == Path("/srv/holdfast")
    here = read(XDG_DATA_HOME="/srv", HOLDFAST_DATA_DIR="data")
    assert here.data_dir == Path.cwd() / "data"
    assert here.database_url == f"sqlite:///{Path.cwd()}/data/holdfast.db"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgresql://a:b@db:5432/x", "postgresql://a:b@db:5432/x"),
        ("postgresql+asyncpg://a:b@db/x", "postgresql://a:b@db/x"),
        ("postgresql+pg8000://a:b@db/x?sslmode=require", "postgresql://a:b@db/x?sslmode=require"),
        ("postgres://db/x", "postgresql://db/x"),
        ("sqlite+aiosqlite:////tmp/x.db", "sqlite:////tmp/x.db"),
    ],
)
def test_the_driver_in_a_database_url_is_dropped(given: str, used: str) -> None:
    assert read(HOLDFAST_DATABASE=given).database_url == used
    assert read(HOLDFAST_DATABASE_URL=given).database_url == used
    assert read(LETTA_PG_URI=given).database_url == used


def test_our_own_name_wins_over_lettas() -> None:
    settings = read(LETTA_PG_URI="postgresql://letta/x", HOLDFAST_DATABASE="sqlite:////tmp/x.db", LETTA_PG_HOST="db")
    assert settings.database_url == "sqlite:////tmp/x.db"


def test_a_letta_database_in_parts_becomes_one_url() -> None:
    parts = {
        "LETTA_PG_HOST": "db",
        "LETTA_PG_DB": "letta",
        "LETTA_PG_USER": "ann",
        "LETTA_PG_PASSWORD": "p@s/word",
    }
    assert read(**parts).database_url == "postgresql://ann:p%40s%2Fword@db:5432/letta"
    assert read(**parts, LETTA_PG_PORT="6000").database_url == "postgresql://ann:p%40s%2Fword@db:6000/letta"


def test_half_a_letta_database_is_refused_with_the_missing_names() -> None:
    with pytest.raises(SettingsError, match=r"not LETTA_PG_DB, LETTA_PG_PASSWORD.*HOLDFAST_DATABASE"):
        read(LETTA_PG_HOST="db", LETTA_PG_USER="ann")


def test_lettas_password_counts_only_in_secure_mode() -> None:
    assert read(LETTA_SERVER_PASSWORD="x").password is None
    assert read(LETTA_SERVER_PASSWORD="x", LETTA_SERVER_SECURE="false").password is None
    assert read(LETTA_SERVER_PASSWORD="x", LETTA_SERVER_SECURE="true").password == "x"
    assert read(LETTA_SERVER_PASSWORD="x", LETTA_SERVER_SECURE="true", HOLDFAST_PASSWORD="y").password == "y"


def test_secure_without_a_password_says_what_to_set() -> None:
    with pytest.raises(SettingsError, match="Set HOLDFAST_PASSWORD"):
        read(LETTA_SERVER_SECURE="true")


def test_older_names_are_understood() -> None:
    settings = read(OPENAI_API_BASE="http://localhost:8000/v1/", TOOL_SANDBOX_TIMEOUT="30")
    assert (settings.openai_base_url, settings.tool_timeout_seconds) == ("http://localhost:8000/v1", 30)


@pytest.mark.parametrize("secret", ["whsec_abc", "whsec_", "whsec_-_-_", "two words"])
def test_a_secret_that_receivers_could_not_verify_with_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(SettingsError, match="expected whsec_ and the key in base64") as refused:
        read(HOLDFAST_WEBHOOK_SECRET=secret)
    assert f"'{secret}'" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("HOLDFAST_PORT", "http", "a whole number from 0 to 65535"),
        ("HOLDFAST_PORT", "70000", "a whole number from 0 to 65535"),
        ("HOLDFAST_LEASE_SECONDS", "0", "a number from 0.1 to 3600"),
        ("HOLDFAST_LEASE_SECONDS", "nan", "a number from 0.1 to 3600"),
        ("HOLDFAST_EVENT_RETENTION_DAYS", "0", "a whole number from 1 to 36500"),
        ("HOLDFAST_MAX_BODY_BYTES", "32MB", "a whole number from 1024 to 1073741824"),
        ("HOLDFAST_LOG_LEVEL", "loud", "one of debug, info, warning, error"),
        ("HOLDFAST_DEMO", "maybe", "true or false"),
        ("LETTA_SERVER_SECURE", "maybe", "true or false"),
        ("OPENAI_API_BASE", "localhost:8000", "a URL that starts with http:// or https://"),
        ("OPENAI_BASE_URL", "http://[::1", "a URL that starts with http:// or https://"),
        ("HOLDFAST_REDIS_URL", "localhost", "a URL that starts with redis:// or rediss:// or unix://"),
        ("HOLDFAST_OPENAI_WIRE", "telegraph", "one of auto, chat, responses"),
        ("HOLDFAST_DATABASE", "mysql://db/x", "postgresql://user:password@host:5432/name or sqlite"),
    ],
)
def test_a_bad_value_is_named_with_what_is_expected(name: str, value: str, expected: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read(**{name: value})
    assert str(refused.value).startswith(f"{name} is {value!r}; expected {expected}")


def test_a_bad_secret_is_refused_without_being_shown() -> None:
    with pytest.raises(SettingsError, match="OPENAI_API_KEY") as refused:
        read(OPENAI_API_KEY="sk-123\n456")
    assert "123" not in str(refused.value)
    with pytest.raises(SettingsError, match=r"mysql://ann:\*\*\*@db/x"):
        read(HOLDFAST_DATABASE="mysql://ann:hunter2@db/x")


def test_the_repr_shows_no_secret() -> None:
    settings = read(
        HOLDFAST_PASSWORD="hunter2",
        OPENAI_API_KEY="hunter2",
        ANTHROPIC_API_KEY="hunter2",
        GEMINI_API_KEY="hunter2",
        GROQ_API_KEY="hunter2",
        AWS_SECRET_ACCESS_KEY="hunter2",
        HOLDFAST_DATABASE="postgresql://ann:hunter2@db/x",
        HOLDFAST_REDIS_URL="redis://:hunter2/@cache/0?password=hunter2&db=1",
        OPENAI_BASE_URL="https://ann:hunter2@proxy/v1",
    )
    assert "hunter2" not in repr(settings)
    assert "postgresql://ann:***@db/x" in repr(settings)


def test_the_values_of_every_vendor_are_read_by_the_names_the_catalog_takes() -> None:
    settings = read(
        OPENAI_API_KEY="a", GROQ_API_KEY="b", VLLM_API_BASE="http://gpu:8000", AWS_DEFAULT_REGION="eu-west-1"
    )
    given = {name: value for name, value in settings.provider_values().items() if value}
    assert given == {
        "openai_api_key": "a",
        "groq_api_key": "b",
        "vllm_base_url": "http://gpu:8000",
        "bedrock_region": "eu-west-1",
    }


def test_the_docs_can_list_every_variable() -> None:
    rows = {row.name: row for row in describe()}
    assert rows["HOLDFAST_PORT"].default == "8283"
    assert rows["HOLDFAST_DATABASE"].aliases == ("HOLDFAST_DATABASE_URL", "LETTA_PG_URI")
    assert all(row.meaning.endswith(".") for row in rows.values())


def test_origins_are_read_as_browsers_send_them() -> None:
    assert read().cors_origins is None
    given = read(ACCEPTABLE_ORIGINS="https://App.example.com:443/, http://localhost:3000")
    assert given.cors_origins == ("https://app.example.com", "http://localhost:3000")


@pytest.mark.parametrize("value", ["app.example.com", "https://x/path", "https://", ",", "null", "https://*.x"])
def test_what_is_not_an_origin_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="expected origins like"):
        read(HOLDFAST_CORS_ORIGINS=value)


def test_every_page_is_let_in_only_with_a_password() -> None:
    assert read(HOLDFAST_CORS_ORIGINS="*", HOLDFAST_PASSWORD="x").cors_origins == ("*",)
    with pytest.raises(SettingsError, match="set HOLDFAST_PASSWORD too"):
        read(HOLDFAST_CORS_ORIGINS="*")

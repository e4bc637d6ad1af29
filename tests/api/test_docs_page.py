"""The page at /docs works without a network: this server has every file, as docs/fetch_swagger_ui.py put them there."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from api.conftest import serving
from holdfast.api.docs_page.docs_routes import FOLDER, MEDIA_TYPES, PAGE, START

SCRIPT = Path(__file__).parents[2] / "docs/fetch_swagger_ui.py"


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("docs")
    with (
        serving(f"sqlite:///{folder}/x.db", folder, HOLDFAST_PASSWORD="sesame") as url,
        httpx.Client(base_url=url, timeout=30) as plain,
    ):
        yield plain


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_swagger_ui", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_and_all_that_it_loads_come_from_this_server_and_need_no_password(http: httpx.Client) -> None:
    page = http.get("/docs/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert "/docs/swagger-ui-bundle.js" in loaded
    for path in loaded:
        if path != "data:,":
            assert path.startswith("/")
            assert http.get(path).status_code == 200, path


def test_the_content_security_policy_allows_only_this_server(http: httpx.Client) -> None:
    for path in ("/docs", "/docs/start.js", "/docs/swagger-ui.css"):
        headers = http.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert "<style" not in PAGE
    assert not re.search(r"<script>|\son\w+=|\sstyle=", PAGE)
    assert "http" not in START


def test_the_files_have_their_types_and_no_others_are_served(http: httpx.Client) -> None:
    for name, kind in MEDIA_TYPES.items():
        response = http.get(f"/docs/{name}")
        assert response.headers["content-type"].startswith(kind)
        assert response.content == (FOLDER / name).read_bytes()
    for name in ("docs_routes.py", "..%2fdocs_routes.py", "%2e%2e/__init__.py", "x"):
        assert http.get(f"/docs/{name}").status_code == 404


def test_the_style_sheet_and_the_script_load_nothing_from_elsewhere() -> None:
    style = (FOLDER / "swagger-ui.css").read_text()
    assert all(url.strip("'\"").startswith("data:") for url in re.findall(r"url\((.{6})", style))
    assert "@import" not in style
    assert "sourceMappingURL" not in style + (FOLDER / "swagger-ui-bundle.js").read_text()


def test_the_folder_is_what_the_script_makes(script: ModuleType) -> None:
    assert script.FOLDER.resolve() == FOLDER.resolve()
    assert {file.name: script.digest(file.read_bytes()) for file in FOLDER.iterdir()} == script.FILES
    assert set(script.FILES) == set(MEDIA_TYPES)

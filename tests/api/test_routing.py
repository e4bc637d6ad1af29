"""Routes are built on first use, without a visible difference."""

from __future__ import annotations

from httpx import ASGITransport, AsyncClient

from holdfast.api.app import MODULES, make_app
from holdfast.api.http.lazy_routes import LazyRoute, lazy_router
from holdfast.api.routes import agents


def declared() -> list[LazyRoute]:
    router = lazy_router("/things", "things")

    @router.get("/{name}")
    async def look(name: str, often: int = 1) -> dict[str, object]:
        return {"name": name, "often": often}

    return [route for route in router.routes if isinstance(route, LazyRoute)]


def is_built(route: LazyRoute) -> bool:
    return "dependant" in vars(route)


async def test_a_route_is_built_by_its_first_request_and_not_before() -> None:
    app = make_app(None)
    (route,) = declared()
    app.router.routes.append(route)
    assert not is_built(route)
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        assert (await client.get("/elsewhere")).status_code == 404
        assert (await client.post("/things/anchor")).status_code == 405
        assert not is_built(route)
        assert (await client.get("/things/anchor?often=3")).json() == {"name": "anchor", "often": 3}
        assert is_built(route)
        assert (await client.get("/things/anchor?often=x")).status_code == 422


async def test_the_openapi_page_shows_every_route() -> None:
    async with AsyncClient(transport=ASGITransport(make_app(None)), base_url="http://test") as client:
        shown = (await client.get("/openapi.json")).json()["paths"]
    ours = [route for module in MODULES for route in module.router.routes] + agents.internal_router.routes
    assert all(isinstance(route, LazyRoute) for route in ours)
    expected = {(route.path, method.lower()) for route in ours for method in route.methods if route.include_in_schema}
    assert {(path, method) for path, methods in shown.items() for method in methods} == expected


def test_a_wrong_attribute_is_still_an_attribute_error() -> None:
    (route,) = declared()
    assert not hasattr(route, "no_such_thing")

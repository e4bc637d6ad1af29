"""What every test may ask for. Fixtures live in modules beside this one; this file only lists them."""

pytest_plugins = ("postgres_fixture", "redis_fixture", "database_fixture", "server_fixture")

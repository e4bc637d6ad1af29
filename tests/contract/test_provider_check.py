"""`POST /v1/providers/check` asks the address that the operator set for the vendor, not the vendor's own."""

from __future__ import annotations

import httpx
import pytest

from server_fixture import Served


@pytest.mark.parametrize("vendor", ["openai", "anthropic", "google_ai"])
def test_a_key_is_checked_at_the_configured_base_url(served: Served, vendor: str) -> None:
    body = {"provider_type": vendor, "api_key": "test-key"}
    checked = httpx.post(f"{served.url}/v1/providers/check", json=body, timeout=30)
    assert checked.json() == {"message": f"Valid api key for provider_type={vendor}"}


def test_a_base_url_of_the_request_is_still_guarded(served: Served) -> None:
    body = {"provider_type": "openai", "api_key": "test-key", "base_url": f"{served.model_server}/v1"}
    checked = httpx.post(f"{served.url}/v1/providers/check", json=body, timeout=30)
    assert checked.status_code == 400

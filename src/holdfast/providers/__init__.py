"""The only room that knows model vendors.

Each wire is a translation in two directions: a `ModelRequest` to the vendor's JSON (`*_request.py`) and the
vendor's events to `Delta`s (`*_reply.py`), joined by a small class that implements `ports.model.Model`. What
the wires share is beside them: `turns` (how messages become turns), `assembly` (turns kept between
requests), `http` and `sse` (bytes), `failures` (statuses to `ModelError`), `calling` (retries). Start at
`catalog`, which lists the kinds of providers and tells how to add one; `directory` finds a model by handle.
"""

"""Model providers: everything that knows a model vendor's API, and nothing that runs an agent.

Each vendor API is a translation in two directions: a `ModelRequest` to the vendor's JSON (`*_request.py`) and the
vendor's events to `Delta`s (`*_reply.py`), joined by a small class that implements `ports.model.Model`. There is one
folder per API (`openai`, `anthropic`, `gemini`), one for APIs behind a cloud's addresses and credentials (`clouds`),
and one for the built-in `demo` model. `encoding` and `http` hold the parts that the APIs share.

Start at `factory`, which makes providers and tells how to add one; `vendors` lists the vendors; `directory` finds a
model by its handle.
"""

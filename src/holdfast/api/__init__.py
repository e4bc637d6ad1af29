"""HTTP: routes, wire shapes, server-sent events, auth, errors to statuses. It joins no rooms; `app` does."""

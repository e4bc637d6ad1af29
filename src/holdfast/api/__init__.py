"""The HTTP API: routes, request and response bodies, server-sent events, authentication, errors as statuses.

It translates between HTTP and `engine` or `records`, and holds no rules about agents, tools or runs. It never opens a
database or builds a service: `app` does that and passes the services in.
"""

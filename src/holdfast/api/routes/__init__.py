"""The endpoints of the API, one file per resource. A route parses the request, calls a service and responds.

Rules about agents, tools and runs belong in `records` and `engine`, never here.
"""

"""HTTP code that all routes share: parsing bodies and parameters, their limits, JSON responses, connections.

Nothing here knows an endpoint or what its fields mean.
"""

"""How processes that share a database wake each other: not at all (alone), through Postgres, or through Redis.

All of them implement `ports.bus.Bus`.
"""

"""Wake-up hints between processes that share a database: none (a single process), over Postgres, or over Redis.

Every bus here implements `ports.bus.Bus`; `process_liveness` tells which processes of this machine have crashed.
Nothing here reads or writes a table.
"""

"""Wake-up hints between processes that share a database: none (a single process), over Postgres, or over Redis.

Every bus here implements `ports.bus.Bus`; `process_liveness` tells which processes of this machine have crashed. A hint
never carries data: receivers read the database. Nothing here reads or writes a table.
"""

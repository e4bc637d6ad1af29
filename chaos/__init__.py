"""The kill test: kills real server processes under HTTP load on a real database, then checks that nothing is lost.

    make chaos                        # 100 kills on SQLite, 100 on Postgres
    make chaos KILLS=5000 DATABASE=postgres

Simulated users (`people`) send requests over HTTP to a fleet of servers and workers (`fleet`), with tools that count
each effect in a file (`effects`). Meanwhile `nemesis` injects faults at random times: it kills processes, suspends them
past their lease, cuts database connections and fills the disk. After the last fault `verdict` checks that no
acknowledged run is lost, no settled effect was repeated, no run is stuck, streams replay identically, and every
conversation accepts the next message. `storm` puts one such test together.
"""

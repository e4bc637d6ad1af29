"""The kill test: real processes on a real database, many runs over HTTP, and things that really go wrong.

    make chaos                        # 100 kills on SQLite, 100 on Postgres
    make chaos KILLS=5000 DATABASE=postgres

People (`people`) talk to a fleet of servers and workers (`fleet`) through HTTP, with tools that count each effect in a
file (`effects`). Meanwhile (`nemesis`) processes are killed, stopped past their lease and continued, database
connections are cut, and the disk is full, at random instants. Then all is left in peace, and `verdict` looks: nothing
that was acknowledged is lost, no settled effect was repeated, nothing is stuck, streams replay identically, and every
conversation accepts the next message.
"""

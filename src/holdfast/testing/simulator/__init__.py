"""The simulator: the real core and engine on a clock, store, model and toolbox that a seed controls.

One *history* is one seed: some processes share a store and work on some conversations, clients talk to them, and
things go wrong. Processes die between two awaits, freeze past their lease and go on, the store fails before or after
it has written, requests come twice and late. After every step the promises of the design are checked; at the end the
survivors must bring everything to rest and every conversation must accept the next message. The same seed gives the
same history, callback by callback, so a failure is a number:

    make sim SEED=1234            # one history, told step by step
    make sim HISTORIES=100000     # many, from SEED on

`loop` is time and order, `store` the database, `wire` the way to it, `world` the agents, models and tools, `clients`
the people, `auditor` the promises, `history` the course of things and `play` what starts it.
"""

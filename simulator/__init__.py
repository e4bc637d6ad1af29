"""A deterministic simulator: the real core and engine with a clock, store, model and toolbox controlled by a seed.

One *history* is one seed: several processes share a store and work on conversations, clients send requests, and faults
are injected. Processes crash between two awaits or freeze past their lease and continue, the store fails before or
after a write, requests are duplicated and delayed. After every step `auditor` checks the promises of the README; at the
end the surviving processes must bring every run to rest, and every conversation must accept the next message. The same
seed gives the same history, callback by callback, so a failure can be repeated:

    make sim SEED=1234            # one history, printed step by step
    make sim HISTORIES=100000     # many, from SEED on

`loop` is the event loop, `store` the database, `wire` the network between a process and the store, `world` the agents,
models and tools, `clients` the API clients, `auditor` the checks, `history` one history and `play` its entry point.
"""

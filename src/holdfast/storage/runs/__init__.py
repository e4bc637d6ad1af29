"""Everything a run writes: acceptance, leases, checkpoints, the ledger of tool calls, the event log, audit and outbox.

Start with `run_store`, then `checkpoint`. Each change of a run is one transaction. Listings of runs are in
`storage.run_listing`; agents, tools and other user data are in `storage.records`.
"""

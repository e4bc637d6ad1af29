"""The guarded HTTP client, for every URL that a user gives: it refuses addresses that are not public.

Other packages use it through `ports.outbound`; nothing else may connect to an address that a user gave. Start with
`guarded_client`. Model vendors that the operator configures are not called through here.
"""

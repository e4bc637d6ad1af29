"""The life of a run: accepted, driven, taken over, brought to rest. Start with `driver`.

What a run decides is in `core`; what is awaited is here.
"""

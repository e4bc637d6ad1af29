"""What the message routes share: starting a turn, waiting for it or streaming it, resuming its stream, cancelling it.

The endpoints themselves are in `api.routes`. Nothing here decides what a run does; `engine` does.
"""

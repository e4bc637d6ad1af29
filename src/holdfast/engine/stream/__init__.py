"""The event stream of a run: a numbered log that is written once and read by any number of subscribers.

The stream of the approval inbox is here too. Nothing here decides about a run or slows it down.
"""

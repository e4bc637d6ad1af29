"""The event stream of a run: a numbered log that is written once and read by any number of subscribers."""

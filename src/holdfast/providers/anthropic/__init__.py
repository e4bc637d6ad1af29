"""The Anthropic Messages API: `anthropic` calls it, the other files encode requests and decode replies.

Used for Anthropic and for other vendors that speak its API; Claude on a cloud is in `providers.clouds`.
"""

"""Response bodies: records and values as the JSON that the official SDKs parse, with every field spelled out.

A response that only one route gives may stand in that route's file. Nothing here changes a record.
"""

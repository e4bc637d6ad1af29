"""Approval of tool calls: when a person is asked, what an approval covers, how answers apply, when requests expire.

Only pure functions. Storing requests and carrying out expired ones is work for `storage` and `engine.chores`.
"""

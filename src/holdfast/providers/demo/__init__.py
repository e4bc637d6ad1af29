"""The built-in demo model: rule-based, without key or network, the same reply every time. Start with `demo_model`.

It is no language model and knows no vendor.
"""

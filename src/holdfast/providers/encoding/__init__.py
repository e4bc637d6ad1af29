"""What the vendor APIs share when they encode requests and decode replies: turns, content, images, tool schemas.

Pure functions and in-memory builders; nothing here sends anything or knows one vendor.
"""

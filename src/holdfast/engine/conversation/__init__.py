"""What is done to a conversation outside of any run: preview it, compact it, recompile its system message."""

"""Operations on a conversation outside of any run: preview its request, compact it, recompile its system message.

What changes a conversation during a run belongs in `engine.run`.
"""

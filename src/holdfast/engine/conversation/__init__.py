"""Operations on a conversation outside of any run: preview its request, compact it, recompile its system message."""

"""OpenAI's two APIs, Chat Completions and Responses, and servers that are compatible with them. Start with `openai`.

Azure OpenAI is in `providers.clouds.azure`.
"""

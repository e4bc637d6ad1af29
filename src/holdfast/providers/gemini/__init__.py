"""The Gemini API: `gemini` calls it, the other files encode requests and decode replies.

Gemini on Vertex AI is in `providers.clouds.vertex`.
"""

"""An embedded storage engine for the key-value caches of language models."""

"""Choices: which families to try, which of them held up on held-back data, the model to take."""

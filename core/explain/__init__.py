"""Explanations: what each input of an example adds to the answer."""

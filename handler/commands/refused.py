"""What a command says when it does not do what it was asked for."""


class Refused(Exception):
    """One line for the person at the terminal."""

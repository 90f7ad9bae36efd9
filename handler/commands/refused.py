"""The refusal of a command."""


class Refused(Exception):
    """The command does not do what its arguments ask for. The message is one line for the terminal."""


class WrongOption(Refused):
    """A flag's value is none that the flag can have, or flags contradict each other: nothing else can cure it."""

"""The refusal of a command."""


class Refused(Exception):
    """The command does not do what its arguments ask for. The message is one line for the terminal."""


class WrongOption(Refused):
    """The value of a flag is wrong, or flags contradict each other. Only another command line helps."""

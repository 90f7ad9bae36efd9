"""What a conversion is refused with: one line, by name."""


class Refused(Exception):
    pass

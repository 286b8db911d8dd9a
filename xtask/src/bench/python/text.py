"""The program `text` of programs.py: an encoder and a decoder of JSON in Python. Runs on CPython 3.8 and newer."""


def encode(value):
    return "".join(pieces(value))


def pieces(value):
    if value is None:
        yield "null"
    elif value is True:
        yield "true"
    elif value is False:
        yield "false"
    elif isinstance(value, str):
        yield quote(value)
    elif isinstance(value, (int, float)):
        yield repr(value)
    elif isinstance(value, list):
        yield "["
        for position, item in enumerate(value):
            if position:
                yield ","
            yield from pieces(item)
        yield "]"
    else:
        yield "{"
        for position, (key, item) in enumerate(value.items()):
            if position:
                yield ","
            yield quote(key)
            yield ":"
            yield from pieces(item)
        yield "}"


def quote(text):
    return '"' + "".join(map(escape, text)) + '"'


def escape(character):
    return "\\" + character if character in '"\\' else character


class Decoder:
    def __init__(self, text):
        self.text = text
        self.at = 0

    def peek(self):
        return self.text[self.at]

    def skip(self, expected):
        if not self.text.startswith(expected, self.at):
            raise ValueError(expected)
        self.at += len(expected)

    def value(self):
        first = self.peek()
        if first == "{":
            return self.members()
        if first == "[":
            return self.items()
        if first == '"':
            return self.string()
        for word, value in (("null", None), ("true", True), ("false", False)):
            if first == word[0]:
                self.skip(word)
                return value
        return self.number()

    def string(self):
        self.skip('"')
        found = []
        while self.peek() != '"':
            if self.peek() == "\\":
                self.at += 1
            found.append(self.peek())
            self.at += 1
        self.skip('"')
        return "".join(found)

    def number(self):
        start = self.at
        while self.at < len(self.text) and self.peek() in "-+.eE0123456789":
            self.at += 1
        text = self.text[start : self.at]
        return float(text) if "." in text else int(text)

    def items(self):
        self.skip("[")
        found = []
        while self.peek() != "]":
            if found:
                self.skip(",")
            found.append(self.value())
        self.skip("]")
        return found

    def members(self):
        self.skip("{")
        found = {}
        while self.peek() != "}":
            if found:
                self.skip(",")
            key = self.string()
            self.skip(":")
            found[key] = self.value()
        self.skip("}")
        return found


DOCUMENT = {
    "numbers": [n * 1.5 for n in range(60)],
    "users": [{"id": n, "name": 'user "%d"' % n, "active": n % 2 == 0, "tags": ["a", "b", None]} for n in range(40)],
}


def text(times=2):
    for _ in range(times):
        encoded = encode(DOCUMENT)
        decoded = Decoder(encoded).value()
    return decoded == DOCUMENT

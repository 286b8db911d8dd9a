"""Programs of which `cargo xtask bench profile` compares two profiles: cProfile's and the tool's, of the same calls.
Runs on CPython 3.8 and newer.

    corpus.py

The commands, one a line on standard input; each is answered with JSON objects, a line each, and a closing
`{"event":"done"}`:

    profile NAME ROUNDS   runs so many rounds of a program under cProfile, and says what that found of each function
    quit                  ends
"""

import asyncio
import cProfile
import json
import os
import pickle
import sys

# The tree is not written to.
sys.dont_write_bytecode = True


# Each function has some work of its own, so that what either profiler takes for a call does not decide.


# ---- calls: functions that call each other ----


def page(rows):
    total = 0
    for number in range(rows):
        for step in range(200):
            total = (total * 31 + step) % 1_000_003
        total += row(number)
    return total


def row(number):
    total = number
    for step in range(150):
        total = (total * 31 + step) % 1_000_003
    return total + cell(number) + cell(number + 1)


def cell(number):
    total = number
    for step in range(300):
        total = (total * 31 + step) % 1_000_003
    return total


def calls():
    page(20)


# ---- recursion ----


def walk(depth):
    total = depth
    for step in range(200):
        total = (total * 31 + step) % 1_000_003
    return total if depth == 0 else total + walk(depth - 1) + visit(depth - 1)


def visit(depth):
    total = depth
    for step in range(250):
        total = (total * 31 + step) % 1_000_003
    return total if depth == 0 else total + walk(depth - 2 if depth > 1 else 0)


def recursion():
    walk(7)


# ---- generators ----


def produce(count):
    for number in range(count):
        total = number
        for step in range(300):
            total = (total * 31 + step) % 1_000_003
        yield total


def double(numbers):
    for number in numbers:
        for step in range(200):
            number = (number * 31 + step) % 1_000_003
        yield 2 * number


def generators():
    total = 0
    for number in double(produce(40)):
        for step in range(150):
            total = (total * 31 + step + number) % 1_000_003
    return total


# ---- coroutines ----


async def answer(number):
    total = number
    for step in range(300):
        total = (total * 31 + step) % 1_000_003
    await asyncio.sleep(0)
    for step in range(300):
        total = (total * 31 + step) % 1_000_003
    return total + await part(number)


async def part(number):
    total = number
    for step in range(400):
        total = (total * 31 + step) % 1_000_003
    await asyncio.sleep(0)
    return total


async def gathered():
    for step in range(500):
        pass
    return await asyncio.gather(*[answer(number) for number in range(15)])


def coroutines():
    asyncio.run(gathered())


# ---- exceptions ----


def refuse(number):
    total = number
    for step in range(300):
        total = (total * 31 + step) % 1_000_003
    if number % 2:
        raise KeyError(total)
    return total


def attempt(number):
    total = number
    for step in range(200):
        total = (total * 31 + step) % 1_000_003
    try:
        return refuse(number) + total
    except KeyError:
        for step in range(100):
            total = (total * 31 + step) % 1_000_003
        return total


def exceptions():
    for number in range(40):
        attempt(number)


# ---- C functions, which are their callers' own time ----


def sort(numbers):
    return sorted(numbers, key=str)


def encode(numbers):
    return pickle.dumps(dict(zip(numbers, numbers)))


def c_functions():
    numbers = []
    for number in range(400):
        numbers.append((number * 7919) % 1_009)
    for _ in range(4):
        encode(sort(numbers))


PROGRAMS = {
    program.__name__: program
    for program in (calls, recursion, generators, coroutines, exceptions, c_functions)
}


def say(**event):
    os.write(1, (json.dumps(event) + "\n").encode())


def own(entry):
    """C functions are their callers' own time: the tool does not see them."""
    in_c = [of.inlinetime for of in entry.calls or () if isinstance(of.code, str)]
    return entry.inlinetime + sum(in_c)


def profiled(program, rounds):
    profile = cProfile.Profile()
    for _ in range(rounds):
        profile.runcall(program)
    return [
        [entry.code.co_name, entry.code.co_firstlineno, entry.callcount, own(entry)]
        for entry in profile.getstats()
        if not isinstance(entry.code, str) and entry.code.co_filename == __file__
    ]


def main():
    for program in PROGRAMS.values():
        program()  # once, so that all is warm
    say(event="ready", program="corpus.py", pid=os.getpid())
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            break
        if words[0] == "profile":
            for name, number, count, seconds in profiled(PROGRAMS[words[1]], int(words[2])):
                say(event="function", name=name, line=number, calls=count, own_ns=seconds * 1e9)
        say(event="done", command=line.strip())
    say(event="done", command="quit")


if __name__ == "__main__":
    main()

"""Programs whose speed `cargo xtask bench python` compares with and without the tool. Runs on CPython 3.8 and newer.

    programs.py PROGRAM

A round of a program is a fixed amount of work. The commands, one a line on standard input; each is answered with JSON
objects, a line each, and a closing `{"event":"done"}`:

    round        run one round, and say what processor time it took
    quit         end
"""

import json
import os
import sys
import threading
import time

# The tree is not written to.
sys.dont_write_bytecode = True

from text import text  # noqa: E402


# ---- calls: nothing but calls of one function ----


def called(x):
    return x


def calls(n=200_000):
    for i in range(n):
        called(i)
    return n


# ---- scheduler: objects, dispatch and queues, as in an operating system's kernel ----


class Packet:
    def __init__(self, link, owner, kind):
        self.link = link
        self.owner = owner
        self.kind = kind
        self.datum = 0
        self.data = [0] * 4

    def append_to(self, queue):
        self.link = None
        if queue is None:
            return self
        last = queue
        while last.link is not None:
            last = last.link
        last.link = self
        return queue


class Task:
    def __init__(self, scheduler, number, queue):
        self.scheduler = scheduler
        self.number = number
        self.queue = queue
        self.waiting = queue is None
        self.held = False
        scheduler.add(self)

    def is_runnable(self):
        return not self.held and (not self.waiting or self.queue is not None)

    def take(self):
        packet = self.queue
        if packet is not None:
            self.queue = packet.link
            packet.link = None
        self.waiting = self.queue is None
        return packet

    def deliver(self, packet):
        self.queue = packet.append_to(self.queue)
        self.waiting = False

    def step(self, packet):
        raise NotImplementedError


class Producer(Task):
    def __init__(self, scheduler, number, consumers, budget):
        super().__init__(scheduler, number, None)
        self.consumers = consumers
        self.budget = budget
        self.state = 1

    def is_runnable(self):
        return self.budget > 0

    def next_consumer(self):
        self.state = (self.state * 1103515245 + 12345) & 0x7FFFFFFF
        return self.consumers[self.state % len(self.consumers)]

    def step(self, packet):
        self.budget -= 1
        self.scheduler.send(self.next_consumer(), Packet(None, self.number, 1))


class Worker(Task):
    def __init__(self, scheduler, number, device):
        super().__init__(scheduler, number, None)
        self.device = device
        self.turn = 0

    def step(self, packet):
        if packet is None:
            return
        for position in range(len(packet.data)):
            self.turn = (self.turn + 1) % 26
            packet.data[position] = self.turn
        self.scheduler.send(self.device, packet)


class Device(Task):
    def __init__(self, scheduler, number):
        super().__init__(scheduler, number, None)
        self.handled = 0

    def step(self, packet):
        if packet is not None:
            self.handled += packet.kind


class Scheduler:
    def __init__(self):
        self.tasks = []
        self.by_number = {}

    def add(self, task):
        self.tasks.append(task)
        self.by_number[task.number] = task

    def find(self, number):
        return self.by_number[number]

    def send(self, number, packet):
        self.find(number).deliver(packet)

    def run(self):
        running = True
        while running:
            running = False
            for task in self.tasks:
                if task.is_runnable():
                    running = True
                    task.step(task.take())


def scheduler(budget=4_000):
    kernel = Scheduler()
    devices = [Device(kernel, number) for number in (10, 11)]
    for number, device in zip((20, 21, 22), (10, 11, 10)):
        Worker(kernel, number, device)
    Producer(kernel, 30, (20, 21, 22), budget)
    kernel.run()
    return sum(device.handled for device in devices)


# ---- constraints: a network of one-way constraints, planned and propagated ----


class Variable:
    def __init__(self, value):
        self.value = value
        self.constraints = []
        self.determined_by = None
        self.mark = 0


class Constraint:
    def __init__(self, strength, output):
        self.strength = strength
        self.output = output
        self.satisfied = False

    def inputs(self):
        return ()

    def are_inputs_known(self, mark):
        return all(variable.mark == mark for variable in self.inputs())

    def is_stronger_than(self, other):
        return other is None or self.strength < other.strength

    def add(self):
        for variable in self.inputs():
            variable.constraints.append(self)
        if self.is_stronger_than(self.output.determined_by):
            if self.output.determined_by is not None:
                self.output.determined_by.satisfied = False
            self.output.determined_by = self
            self.satisfied = True

    def execute(self):
        raise NotImplementedError


class Stay(Constraint):
    def execute(self):
        pass


class Scale(Constraint):
    def __init__(self, strength, source, factor, offset, output):
        super().__init__(strength, output)
        self.source = source
        self.factor = factor
        self.offset = offset

    def inputs(self):
        return (self.source,)

    def execute(self):
        self.output.value = self.source.value * self.factor + self.offset


class Planner:
    def __init__(self):
        self.mark = 0

    def new_mark(self):
        self.mark += 1
        return self.mark

    def plan_from(self, source):
        mark = self.new_mark()
        source.mark = mark
        plan, todo = [], list(source.constraints)
        while todo:
            constraint = todo.pop()
            if constraint.satisfied and constraint.output.mark != mark and constraint.are_inputs_known(mark):
                plan.append(constraint)
                constraint.output.mark = mark
                todo.extend(constraint.output.constraints)
        return plan


def constraints(length=400, changes=12):
    variables = [Variable(0) for _ in range(length + 1)]
    for variable in variables:
        Stay(9, variable).add()
    for before, after in zip(variables, variables[1:]):
        Scale(1, before, 1, 1, after).add()
    planner = Planner()
    for change in range(changes):
        variables[0].value = change
        for constraint in planner.plan_from(variables[0]):
            constraint.execute()
    return variables[-1].value


# ---- the service ----

PROGRAMS = {"calls": calls, "scheduler": scheduler, "constraints": constraints, "text": text}


def say(**event):
    os.write(1, (json.dumps(event) + "\n").encode())


def main():
    program = PROGRAMS[sys.argv[1]]
    # A program that has ever had a second thread stays some 1 % slower. The helper starts one, and
    # services have many: here both programs have had one.
    thread = threading.Thread(target=bool)
    thread.start()
    thread.join()
    expected = program()
    say(event="ready", program="programs.py", pid=os.getpid())
    for line in sys.stdin:
        command = line.strip()
        if command == "quit":
            break
        # Of the process, not of the thread: what the helper's thread does meanwhile is the tool's doing, too.
        before = time.process_time_ns()
        result = program()
        taken = time.process_time_ns() - before
        if result != expected:
            say(event="error", command=command, message="the result changed")
        say(event="round", taken_ns=taken)
        say(event="done", command=command)
    say(event="done", command="quit")


if __name__ == "__main__":
    main()

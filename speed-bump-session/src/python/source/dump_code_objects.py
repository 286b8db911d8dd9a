"""Prints the code objects of the standard library, as this interpreter compiles it.

One line of JSON a file: its path, and [co_name, co_firstlineno, co_qualname] for each code object. Before
3.11 the qualified name is what the code around loads for MAKE_FUNCTION, or what a class body stores as its
`__qualname__`. The one argument is STEP: every STEP-th file is compiled.
"""
import dis
import json
import os
import sys
import sysconfig
import tokenize
import types
import warnings


def pairs(code):
    instructions = list(dis.get_instructions(code))
    return zip(instructions, instructions[1:])


def name_of_class(code):
    """What a class body stores as its __qualname__."""
    for load, store in pairs(code):
        if load.opname == "LOAD_CONST" and store.opname == "STORE_NAME" and store.argval == "__qualname__":
            return load.argval
    return None


def names_of_functions(code):
    """The names that MAKE_FUNCTION gives to the code objects within this one."""
    return {
        id(load.argval): name.argval
        for load, name in pairs(code)
        if isinstance(load.argval, types.CodeType) and isinstance(name.argval, str)
    }


def walk(code, qualname, found):
    found.append([code.co_name, code.co_firstlineno, qualname])
    is_old = not hasattr(code, "co_qualname")
    names = names_of_functions(code) if is_old else {}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = (name_of_class(constant) or names.get(id(constant))) if is_old else constant.co_qualname
            walk(constant, inner, found)


def main():
    warnings.simplefilter("ignore")
    step = int(sys.argv[1])
    library = sysconfig.get_paths()["stdlib"]
    paths = []
    for folder, folders, files in os.walk(library):
        folders[:] = sorted(set(folders) - {"site-packages", "dist-packages", "__pycache__"})
        own = [os.path.join(folder, name) for name in sorted(files) if name.endswith(".py")]
        # Debian's sitecustomize.py is a link into the root that the package lies in.
        paths += [path for path in own if os.path.isfile(path)]
    for path in paths[::step]:
        try:
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, UnicodeError):
            continue  # Some of the library's own tests are no valid programs.
        found = []
        walk(code, "<module>", found)
        print(json.dumps([path, found]))


main()

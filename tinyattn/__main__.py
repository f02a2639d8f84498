"""The command line: `python -m tinyattn COMMAND …`. Each command is imported when it is called."""

import sys
from importlib import import_module
from typing import NoReturn

from .text import run_program

COMMANDS = {  # name: (module, its function: remaining arguments -> exit code, what it does)
    "check": ("tinyattn.check.cli", "check", "check your own attention: FILE[:FUNCTION]"),
    "practice": ("tinyattn.check.cli", "practice", "write the exercises into a file of yours"),
    "break": ("tinyattn.check.game", "command", "predict what a bug does, then see it"),
    "fetch": ("tinyattn.pretrained", "command", "download a pretrained model: minilm, smollm2"),
}


def run() -> NoReturn:
    """What the program `tinyattn` does: one command, and its exit code."""
    run_program(lambda: main(sys.argv[1:]))


def main(argv: list[str]) -> int:
    """Run one command."""
    if argv and argv[0] in COMMANDS:
        module, function, _ = COMMANDS[argv[0]]
        return int(getattr(import_module(module), function)(argv[1:]))
    asked = not argv or argv[0] in ("-h", "--help")
    out = sys.stdout if asked else sys.stderr
    if not asked:
        print(f"There is no command {argv[0]!r}.", file=out)
    print("python -m tinyattn COMMAND …   (COMMAND --help says more)", file=out)
    for name, (_, _, what) in COMMANDS.items():
        print(f"  {name:<10}{what}", file=out)
    return 0 if asked else 2


if __name__ == "__main__":
    run()

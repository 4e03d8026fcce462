"""Replaces this process with the program: python -m lockstep ..."""

import os
import sys

from lockstep import environment, program, torch_problem


def main():
    if problem := torch_problem():
        print(f"lockstep: {problem}", file=sys.stderr)
        sys.exit(3)
    os.execve(program(), [program(), *sys.argv[1:]], environment())


if __name__ == "__main__":
    main()

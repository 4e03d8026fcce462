"""Replaces this process with the program: python -m lockstep ..."""

import os
import sys

from lockstep import environment, program


def main():
    os.execve(program(), [program(), *sys.argv[1:]], environment())


if __name__ == "__main__":
    main()

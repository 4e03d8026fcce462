"""A worker that says who it is: it stands for the reader's own program."""
import os
import sys

print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", *sys.argv[1:])

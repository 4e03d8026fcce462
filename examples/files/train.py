"""Worker that prints its rank; stands for the reader's own training script."""
import os
import sys

print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", *sys.argv[1:])

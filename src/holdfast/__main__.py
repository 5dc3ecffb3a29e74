"""`python -m holdfast` is the `holdfast` command."""

from holdfast.cli import run_main

run_main()

#!/usr/bin/python3
"""Checks that bash completion offers every option in --help, and that the command accepts every word offered for an
option.

usage: completion_test.py BIN_DIR SOURCE_DIR
"""
import re
import subprocess
import sys

BIN_DIR, SOURCE_DIR = sys.argv[1:]
COMMANDS = ('save-external', 'verify-external', 'inspect-external', 'cut-external')


def completed(command, *words):
    """Return the completions offered for the last word."""
    script = ('source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
              '_onnx_external "$1"; printf "%s\\n" "${COMPREPLY[@]}"')
    run = subprocess.run(
        ['bash', '--norc', '-c', script, f'{SOURCE_DIR}/packaging/completions.bash',
         f'{BIN_DIR}/{command}', *words], capture_output=True, text=True, check=True)
    assert not run.stderr, run.stderr
    return run.stdout.split()


def main():
    for command in COMMANDS:
        help_text = subprocess.run([f'{BIN_DIR}/{command}', '--help'], capture_output=True,
                                   text=True, check=True).stdout
        options = set(re.findall(r'^  (?:-\w, )?(--[a-z0-9-]+)', help_text, re.MULTILINE))
        assert options and options <= set(completed(command, '--')), command
        assert completed(command, '--js') == ['--json'], command

    words = re.findall(r'^    (--[a-z-]+)\) words=', open(
        f'{SOURCE_DIR}/packaging/completions.bash', encoding='utf-8').read(), re.MULTILINE)
    for option in words:
        if option in ('--exporter', '--strategy', '--asserts', '--graphs', '--attention', '--for'):
            continue  # python/tests checks onnx-external
        command = 'inspect-external' if option == '--sort' else 'save-external'
        choices = completed(command, option, '')
        assert choices, option
        for choice in choices:
            # A wrong choice is a usage error that names the option. Missing files are another usage error.
            run = subprocess.run([f'{BIN_DIR}/{command}', option, choice], capture_output=True,
                                 text=True, check=False)
            assert option not in run.stderr, run.stderr
        wrong = subprocess.run([f'{BIN_DIR}/{command}', option, 'none-such'], capture_output=True,
                               text=True, check=False)
        assert option in wrong.stderr, wrong.stderr


main()

#!/usr/bin/python3
"""Tests that ./demo and ./check show their steps and failures while they install and build.

usage: first_minutes_test.py SOURCE_DIR WORK_DIR
"""
import os
import pathlib
import pty
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(sys.argv[1]).resolve()
WORK = pathlib.Path(sys.argv[2]).resolve()

# Replacements for dpkg-query, which reports one package as missing, and for apt-get and sudo.
STUBS = {
    'dpkg-query': 'case "$*" in *ninja-build) exit 1 ;; *) echo "install ok installed" ;; esac',
    'sudo': 'exec "$@"',
    'apt-get': '''echo "pmstatus:ninja-build:40.5:Unpacking ninja-build (amd64)"
case "$*" in *"$BREAK") echo "E: no room on the disk"; exit 100 ;; esac''',
}


def run(command, folder, terminal=False, **environment):
    """Return the exit code and the output on stdout and stderr, which are a terminal or a pipe."""
    environment = {**os.environ, **environment}
    if not terminal:
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs,
                          stderr=theirs) as process:
        os.close(theirs)
        printed = b''
        try:
            while piece := os.read(ours, 4096):
                printed += piece
        except OSError:  # all processes have closed the terminal
            pass
    os.close(ours)
    return process.returncode, printed.decode()


def make_project(name, body):
    folder = WORK / name
    folder.mkdir()
    (folder / 'CMakeLists.txt').write_text(
        'cmake_minimum_required(VERSION 3.25)\nproject(tiny LANGUAGES CXX)\n'
        'option(ONNX_EXTERNAL_UNITY "as in the real one" OFF)\nadd_executable(tiny tiny.cc)\n')
    (folder / 'tiny.cc').write_text(body)
    return folder


def check_builds():
    build = ['sh', str(SOURCE / 'cmake/build.sh'), 'build']
    code, printed = run(build, make_project('piped', 'int main() {}\n'))
    lines = printed.splitlines()
    assert code == 0 and lines[:2] == ['configuring build', 'compiling (a few minutes)'], printed
    assert [line.split()[0] for line in lines[2:]] == ['[1/2]', '[2/2]'], printed
    code, printed = run(build, make_project('shown', 'int main() {}\n'), terminal=True,
                        TERM='xterm')
    assert code == 0 and '\r' in printed and '[2/2]' in printed, printed
    code, printed = run(build, make_project('broken', 'int main() { return missing; }\n'))
    assert code != 0 and 'error:' in printed and 'missing' in printed, printed
    code, printed = run(build + ['-DCMAKE_CXX_COMPILER=/no/such/compiler'],
                        make_project('unconfigured', ''))
    assert code != 0 and '/no/such/compiler' in printed, printed


def check_installs():
    stubs = WORK / 'bin'
    stubs.mkdir()
    for name, text in STUBS.items():
        (stubs / name).write_text(f'#!/bin/sh\n{text}\n')
        (stubs / name).chmod(0o755)
    path = f'{stubs}:{os.environ["PATH"]}'
    install = ['sh', str(SOURCE / 'cmake/install-deps.sh'), 'build']
    code, printed = run(install, WORK, PATH=path, BREAK='nothing')
    assert code == 0 and printed == 'installing: ninja-build\n', printed
    code, printed = run(install, WORK, terminal=True, PATH=path, BREAK='nothing')
    assert code == 0 and '\r\x1b[K 40 % Unpacking ninja-build' in printed, printed
    code, printed = run(install, WORK, PATH=path, BREAK='ninja-build')
    assert code == 1 and 'E: no room on the disk' in printed, printed
    code, printed = run(['/bin/sh', str(SOURCE / 'cmake/install-deps.sh'), 'build'], WORK,
                        PATH=str(WORK / 'no-such-folder'))
    assert code == 1 and 'has no apt-get' in printed and '\n  libprotobuf-dev\n' in printed, printed
    assert 'not found' not in printed, printed


shutil.rmtree(WORK, ignore_errors=True)
WORK.mkdir(parents=True)
check_builds()
check_installs()

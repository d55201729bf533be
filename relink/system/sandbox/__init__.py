"""Running a program that reads untrusted files so that it can do nothing else: the loader in its dry run, and patchelf.

Whatever such a file makes them do, they cannot write a file but the one that they must write, reach a network or another process,
execute anything, or gain a privilege; their memory and time have limits. The kernel enforces it in full in one of three ways
(the first of :data:`relink.system.sandbox.start.KINDS`), whichever works here, each together with a filter of system calls
(:mod:`relink.system.sandbox.start`).
Where none works, the rest has gaps. docs/sandbox.md has what each kind refuses.

:mod:`relink.system.sandbox.start` finds the kind and starts a program in it. Every program that reads files of a wheel starts
there.
"""

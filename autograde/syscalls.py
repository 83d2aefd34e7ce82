"""System calls that a learner's code has no use for, and the filter that refuses them.

Two kinds: those that hold memory outside of any process, where `watchdog` does not see it, and
those that ask the kernel for what has often been a way out. A call that is refused fails as if the
kernel did not know it. The filter is a classic BPF program, as `bwrap --seccomp` reads it.
"""

import platform
import struct

NUMBERS = {                  # x86_64, aarch64
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "unshare": (272, 97),
    "setns": (308, 268),
    "sched_setaffinity": (203, 122),     # a core that grading keeps for itself stays its own
}
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}      # column, AUDIT_ARCH
ALLOW, NO_SUCH_CALL, KILL = 0x7FFF0000, 0x00050000 | 38, 0x80000000     # 38 is ENOSYS
LOAD, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
OTHER_ABI = 0x40000000                   # from here on x86_64 numbers its calls once more (x32)


def known(machine=None):
    """Whether the numbers of this kind of machine are known here."""
    return (machine or platform.machine()) in MACHINES


def refusing(machine=None):
    """The filter, in bytes. Raises KeyError for a machine that is not `known`."""
    column, architecture = MACHINES[machine or platform.machine()]
    numbers = [pair[column] for pair in NUMBERS.values()]
    lines = [
        (LOAD, 0, 0, 4),                                         # the architecture
        (JUMP_IF_EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),                                    # 32-bit calls, numbered otherwise
        (LOAD, 0, 0, 0),                                         # the number of the call
        (JUMP_IF_AT_LEAST, len(numbers) + 1, 0, OTHER_ABI),
        *((JUMP_IF_EQUAL, len(numbers) - i, 0, number) for i, number in enumerate(numbers)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, NO_SUCH_CALL),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)

"""Answer questions about bundles with AMD's comgr, which needs no GPU. A program, run under the C library of the prefix.

    LIB/ld-linux-x86-64.so.2 --library-path LIB PYTHON ask_comgr.py LIB/libamd_comgr.so.3 < questions > answers

A question is a line of JSON: `{"bundle": base64, "isas": [[ISA name…]…]}`, for each list of names the answer has the list of
[size, offset] of one amd_comgr_lookup_code_object; or `{"ccob": base64, "ids": [entry id…]}`:
for each id the answer has the bytes (base64) of amd_comgr_do_action UNBUNDLE. The numbers are those of amd_comgr.h 3.0.
"""

import base64
import ctypes
import json
import sys

SUCCESS, BYTES, EXECUTABLE, OBJ_BUNDLE, UNBUNDLE = 0, 9, 8, 20, 15


class Handle(ctypes.Structure):
    _fields_ = [("handle", ctypes.c_uint64)]


class Info(ctypes.Structure):
    _fields_ = [("isa", ctypes.c_char_p), ("size", ctypes.c_size_t), ("offset", ctypes.c_uint64)]


def data_of(comgr: ctypes.CDLL, kind: int, content: bytes) -> Handle:
    data = Handle()
    comgr.amd_comgr_create_data(kind, ctypes.byref(data))
    comgr.amd_comgr_set_data(data, ctypes.c_size_t(len(content)), content)
    comgr.amd_comgr_set_data_name(data, b"bundle")
    return data


def look_up(comgr: ctypes.CDLL, bundle: bytes, isas: list[list[str]]) -> list[object]:
    data = data_of(comgr, BYTES, bundle)
    answers: list[object] = []
    for names in isas:
        rows = (Info * len(names))(*[Info(name.encode(), 0, 0) for name in names])
        comgr.amd_comgr_lookup_code_object(data, rows, ctypes.c_size_t(len(names)))
        answers.append([[row.size, row.offset] for row in rows])
    comgr.amd_comgr_release_data(data)
    return answers


def unbundle(comgr: ctypes.CDLL, content: bytes, ids: list[str]) -> list[object]:
    data = data_of(comgr, OBJ_BUNDLE, content)
    given, made, action = Handle(), Handle(), Handle()
    comgr.amd_comgr_create_data_set(ctypes.byref(given))
    comgr.amd_comgr_data_set_add(given, data)
    comgr.amd_comgr_create_data_set(ctypes.byref(made))
    comgr.amd_comgr_create_action_info(ctypes.byref(action))
    names = (ctypes.c_char_p * len(ids))(*[one.encode() for one in ids])
    comgr.amd_comgr_action_info_set_bundle_entry_ids(action, names, ctypes.c_size_t(len(ids)))
    answers: list[object] = []
    if comgr.amd_comgr_do_action(UNBUNDLE, action, given, made) == SUCCESS:
        for number in range(len(ids)):
            one, size = Handle(), ctypes.c_size_t()
            comgr.amd_comgr_action_data_get_data(made, EXECUTABLE, ctypes.c_size_t(number), ctypes.byref(one))
            comgr.amd_comgr_get_data(one, ctypes.byref(size), None)
            content = bytes(size.value)
            comgr.amd_comgr_get_data(one, ctypes.byref(size), content)
            answers.append(base64.b64encode(content).decode())
            comgr.amd_comgr_release_data(one)
    comgr.amd_comgr_destroy_action_info(action)
    comgr.amd_comgr_destroy_data_set(made)
    comgr.amd_comgr_destroy_data_set(given)
    comgr.amd_comgr_release_data(data)
    return answers


def main() -> None:
    comgr = ctypes.CDLL(sys.argv[1])
    for line in sys.stdin:
        question = json.loads(line)
        if "bundle" in question:
            answers = look_up(comgr, base64.b64decode(question["bundle"]), question["isas"])
        else:
            answers = unbundle(comgr, base64.b64decode(question["ccob"]), question["ids"])
        sys.stdout.write(json.dumps(answers) + "\n")


main()

#!/usr/bin/env python3
"""Writes the seeds of session_fuzz: one file per plausible session, and one per session that once broke something. The
file `all` lists them for -seed_inputs.

An input is a list of records: u8 flags, u16 op, fields, and the bulk frame where the flags say so. A field is u8 kind and
what belongs to it; numbers are little endian. The worker's own names for all of this are in session_input.cpp.
"""
import pathlib
import re
import struct
import sys

HERE = pathlib.Path(__file__).parent
PROTOCOL = HERE.parent.parent / "gpu_client" / "protocol"

REPLY, BULK, ENDS, ANY, NOBODY = 1, 2, 4, 8, 16


def read_ops():
    ops = {name: int(number, 16) for number, name in
           re.findall(r"^(0x[0-9a-f]{4})\s+\S+\s+(\w+)", (PROTOCOL / "cuda.calls").read_text(), re.M)}
    text = (PROTOCOL / "ops.hpp").read_text()
    return ops | {name: int(number, 16) for name, number in re.findall(r"op_(\w+) = (0x[0-9a-f]+)", text)}


OPS = read_ops()


def number(value):  # u64
    return bytes([0, value]) if value < 256 else bytes([6]) + struct.pack("<Q", value)


def short(value):  # u32
    return bytes([1, value]) if value < 256 else bytes([5]) + struct.pack("<I", value)


def address(offset):  # in the session's range, a multiple of 64
    return bytes([2]) + struct.pack("<H", offset // 64)


def block(index):  # the address of 2 MiB of the range
    return bytes([3, index])


def power(exponent, less=0):
    return bytes([4, exponent | less << 6])


def data(raw):
    return bytes([7, len(raw)]) + raw


def text(words):
    return bytes([8, len(words)]) + words.encode()


def function(library, index):
    return bytes([9, library, index])


def negative(value):
    return bytes([10, value])


def zeros(sixteens):
    return bytes([11, sixteens])


def code(index):
    return bytes([index])


def bulk(raw):
    return bytes([6, len(raw)]) + raw


def large(bytes_):
    return bytes([7]) + struct.pack("<H", bytes_ // 64)


def record(name, *fields, flags=0, frame=b""):
    flags |= BULK if frame else 0
    return bytes([flags]) + struct.pack("<H", OPS[name]) + b"".join(fields) + bytes([12]) + frame


def ask(name, *fields, flags=0):
    return record(name, *fields, flags=flags | REPLY)


MIB2 = power(21)
STREAM, EVENT, CONTEXT, LIBRARY, TICKET = 16, 1, 1, 1, 1

context = record("cuDevicePrimaryCtxRetain", short(0), number(CONTEXT)) + record("set_context", number(CONTEXT))
memory = ask("memory_grant", short(0), power(23), flags=ENDS) + record("memory_map", short(0), block(0), MIB2)
stream = record("cuStreamCreateWithPriority", number(STREAM), short(1), short(0))
event = record("cuEventCreate", number(EVENT), short(0))
start = context + memory + stream + event


def launch(kernel, parameters, *, on=STREAM, attributes=(), shared=0):
    return record("cuLaunchKernel", kernel, number(on), short(1), short(1), short(1), short(32), short(1), short(1),
                  short(shared), short(0), short(len(attributes)), short(sum(len_of(p) for p in parameters)),
                  *attributes, *parameters)


def len_of(field):
    return {1: 4, 5: 4}.get(field[0], 8)


def load(image, bytes_, library=LIBRARY):
    return (record("image_piece", number(library), number(0), number(bytes_), frame=code(image)) +
            ask("cuLibraryLoadData", number(library), number(bytes_), short(0), short(0), flags=ENDS))


def image_bytes():
    source = (HERE / "session_input.cpp").read_text()
    return [len(image) for image in re.findall(r'R"\((.*?)\)"', source, re.S)]


SIZES = image_bytes()


def host_function(ticket=TICKET, on=STREAM):
    return record("cuLaunchHostFunc", number(on), number(ticket))


def upload(offset, raw, flags=1, on=STREAM):
    return record("cuMemcpyHtoDAsync_v2", address(offset), number(on), short(flags), number(len(raw)), data(raw))


def download(offset, size, on=STREAM, flags=0):
    return ask("cuMemcpyDtoHAsync_v2", address(offset), number(on), short(flags), size)


def copy_2d(direction, flags=0, raw=b"", on=STREAM, name=record):
    to, source = (address(64), number(0)), (address(4096), number(0))
    if direction != 1:
        to = (address(64), number(64))
    if direction != 0:
        source = (address(4096), number(64))
    return name("cuMemcpy2DAsync_v2", *to, *source, number(8), number(4), number(on), short(direction), short(flags),
                data(raw))


def array(name, flags=0, size=(8, 4, 0), last=(), format=0x20, channels=1):
    return ask(name, number(1), short(0), *map(number, size), short(format), short(channels), short(flags),
               number(65536), *last)


def place(array=0, at=0):  # in an array, or in memory
    return (number(array), number(0), number(0), number(0), address(at), number(32))


def array_rows(direction, to, source, raw=b"", flags=0, name=record):
    return name("cuMemcpy3DAsync_v2", *to, *source, number(32), number(4), number(STREAM), short(direction), short(flags),
                data(raw))


def texture(kind, array=0, mipmapped=0, at=0, flags=2):
    return ask("cuTexObjectCreate", short(kind), number(array), number(mipmapped), address(at), short(0x20), short(1),
               number(8), number(4), number(32), short(0), short(1), short(3), short(1), short(flags), short(0), short(1),
               zeros(1), zeros(1), data(b"\0" * 11), data(b"\0" * 34), short(0))


def tiles(array=0, mipmapped=0, tail=0):
    extent = (number(65536), number(0), number(0)) if tail else (number(128), number(128), number(1))
    return (number(array), number(mipmapped), short(tail), short(0), short(0), number(0), number(0), number(0), *extent,
            short(0), number(STREAM))


SEEDS = {
    "arrays": start + array("cuArray3DCreate_v2", flags=2) + array_rows(0, place(1), place(), b"t" * 128, 1) +
    array_rows(1, place(), place(1), name=ask) + array_rows(2, place(at=4096), place(1)) +
    ask("cuSurfObjectCreate", number(1)) + texture(0, array=1) + texture(2) + texture(3) +
    record("cuTexObjectDestroy", number(64)) + record("cuArrayDestroy", number(1)) + ask("cuCtxSynchronize"),
    "sparse_arrays": start + array("cuArray3DCreate_v2", flags=0x40, size=(256, 128, 0)) +
    ask("cuArrayGetSparseProperties", number(1)) + ask("create_tile_pool", number(1), short(0), MIB2) +
    ask("cuMemMapArrayAsync", *tiles(array=1), number(1), number(65536)) + array_rows(0, place(1), place(), b"t" * 128, 1) +
    ask("unmap_tiles", *tiles(array=1)) + record("cuMemRelease", number(1)) +
    array("cuMipmappedArrayCreate", flags=0x40, size=(256, 256, 0), last=(short(5),)) +
    ask("cuMipmappedArrayGetSparseProperties", number(1)) + ask("create_tile_pool", number(2), short(0), MIB2) +
    ask("cuMemMapArrayAsync", *tiles(mipmapped=1, tail=1), number(2), number(0)) +
    record("cuMipmappedArrayDestroy", number(1)) + record("cuArrayDestroy", number(1)) +
    array("cuArray3DCreate_v2", flags=0x80, size=(64, 64, 0)) + ask("cuArrayGetMemoryRequirements", number(1), short(0)) +
    record("cuArrayDestroy", number(1)) + ask("cuCtxSynchronize"),
    "planes": start + array("cuArray3DCreate_v2", format=0xb0, channels=3, flags=0x102, size=(64, 64, 0)) +
    ask("cuArrayGetPlane", number(2), number(1), short(1)) + array_rows(0, place(2), place(), b"v" * 128, 1) +
    texture(0, array=2) + record("cuArrayDestroy", number(1)) + ask("cuCtxSynchronize"),
    "mipmaps": start + array("cuMipmappedArrayCreate", size=(16, 16, 0), last=(short(5),)) +
    record("cuMipmappedArrayGetLevel", number(2), number(1), short(1)) + array_rows(0, place(2), place(), b"m" * 128, 1) +
    texture(1, mipmapped=1) + record("cuMipmappedArrayDestroy", number(1)) + ask("cuCtxSynchronize"),
    "copies": start + upload(0, b"0123456789abcdef") + upload(64, b"x" * 64, flags=3) +
    record("cuMemcpyHtoDAsync_v2", address(128), number(STREAM), short(0), number(6400), frame=large(6400)) +
    record("cuMemcpyDtoDAsync_v2", address(8192), address(0), number(64), number(STREAM)) +
    download(0, number(16)) + download(8192, power(17)) + download(8192, power(17), flags=2) +
    copy_2d(0, 1, b"r" * 32) + copy_2d(1, name=ask) + copy_2d(2) + ask("cuStreamSynchronize", number(STREAM)),
    "fills": start + record("cuMemsetD8Async", address(0), data(b"\x07"), number(64), number(STREAM)) +
    record("cuMemsetD32_v2", address(64), short(7), number(64)) +
    record("cuMemsetD2D8_v2", address(64), number(64), data(b"\x07"), number(8), number(4)) + ask("cuCtxSynchronize"),
    "waits": start + host_function() + record("cuEventRecordWithFlags", number(EVENT), number(STREAM), short(0)) +
    record("watch_event", number(EVENT), number(3)) + record("watch_stream", number(STREAM), number(4)) +
    ask("query_event", number(EVENT), number(3)) + ask("query_stream", number(STREAM), number(4)) +
    record("cuStreamWaitEvent", number(0), number(EVENT), short(0)) + ask("cuEventQuery", number(EVENT)) +
    ask("cuStreamQuery", number(STREAM)) + ask("cuEventSynchronize", number(EVENT)) + ask("cuCtxSynchronize"),
    "held_back": start + host_function() + upload(0, b"a" * 16) + upload(0, b"b" * 16, flags=3) +
    record("cuStreamDestroy_v2", number(STREAM)) + record("cuEventDestroy_v2", number(EVENT)) +
    record("memory_unmap", short(0), block(0), MIB2) + ask("cuCtxSynchronize"),
    "code": start + load(0, SIZES[0]) + ask("cuLibraryGetGlobal", number(LIBRARY), text("table")) +
    launch(function(LIBRARY, 0), (address(0), short(32), short(0))) + launch(function(LIBRARY, 1), ()) +
    ask("cuFuncSetAttribute", function(LIBRARY, 0), short(8), short(4096)) + download(0, number(128)) +
    record("cuLibraryUnload", number(LIBRARY)) + ask("cuCtxSynchronize"),
    "prints": start + load(1, SIZES[1]) + launch(function(LIBRARY, 0), ()) + ask("cuStreamSynchronize", number(STREAM)),
    "faults": start + load(2, SIZES[2]) + launch(function(LIBRARY, 0), ()) + ask("cuStreamSynchronize", number(STREAM)) +
    download(0, number(16)) + ask("cuDevicePrimaryCtxReset_v2", short(0), number(CONTEXT)),
    "links": start + record("cuLinkCreate_v2", number(1), short(0)) +
    b"".join(record("image_piece", number(i), number(0), number(SIZES[i]), frame=code(i)) +
             ask("cuLinkAddData_v2", number(1), number(i), number(SIZES[i]), short(1), text("part"), short(0))
             for i in (3, 4)) +
    ask("cuLinkComplete", number(1), number(0)) + record("cuLinkDestroy", number(1)),
    "contexts": start + record("cuCtxCreate_v4", short(0), number(2), short(0)) + record("set_context", number(2)) +
    record("cuStreamCreateWithPriority", number(17), short(0), short(0)) + host_function(on=17) +
    ask("cuCtxDestroy_v2", number(2)) + record("set_context", number(CONTEXT)) + ask("cuStreamQuery", number(17)),
    "peers": start + record("cuDevicePrimaryCtxRetain", short(1), number(2)) +
    ask("cuCtxEnablePeerAccess", number(2), short(0)) + ask("memory_access", short(0), short(1), short(3)) +
    record("cuMemcpyPeerAsync", address(0), number(1), address(64), number(2), number(64), number(STREAM)) +
    ask("cuCtxDisablePeerAccess", number(2)) + ask("memory_access", short(0), short(1), short(0)),
    "allocations": start + ask("cuMemCreate", number(1), short(0), MIB2) +
    record("cuMemMap", block(4), MIB2, number(0), number(1)) + record("cuMemSetAccess", block(4), MIB2, short(0), short(3)) +
    record("cuMemRelease", number(1)) + record("cuMemUnmap", block(4), MIB2) + ask("memory_info") +
    ask("cuMemGetInfo_v2"),
    "multicast": start + ask("cuMulticastCreate", number(1), short(2), MIB2, number(0)) +
    ask("cuMulticastAddDevice", number(1), short(0)) + ask("cuMulticastAddDevice", number(1), short(1)) +
    ask("cuMemCreate", number(2), short(0), MIB2) + ask("cuMemExportToShareableHandle", number(1)) +
    ask("cuMulticastBindMem", number(1), number(0), number(2), number(0), MIB2) +
    ask("cuMemMap", block(4), MIB2, number(0), number(1)) + ask("cuMemSetAccess", block(4), MIB2, short(0), short(3)) +
    record("cuMemRelease", number(2)) + ask("cuMulticastUnbind", number(1), short(0), number(0), MIB2) +
    record("cuMemRelease", number(1)) + record("cuMemUnmap", block(4), MIB2) + ask("memory_info"),
    # Both calls wait for a second device, which comes when the object has been released, and never for the other object.
    "multicast_waits": start + ask("cuMulticastCreate", number(1), short(2), MIB2, number(0)) +
    ask("cuMulticastCreate", number(3), short(2), MIB2, number(0)) + ask("cuMulticastAddDevice", number(1), short(0)) +
    ask("cuMemCreate", number(2), short(0), MIB2) + ask("cuMemMap", block(4), MIB2, number(0), number(3), flags=NOBODY) +
    ask("cuMulticastBindMem", number(1), number(0), number(2), number(0), MIB2, flags=NOBODY) +
    ask("borrow_multicast", number(4), zeros(1)) + record("cuMemRelease", number(2)) +
    ask("cuMulticastAddDevice", number(1), short(1)) + record("cuMemRelease", number(1)) + ask("memory_info"),
    "green_contexts": start + ask("cuDeviceGetDevResource", short(0), short(1)) +
    ask("cuDevSmResourceSplitByCount", number(1), short(0), short(2), short(0), short(8)) +
    ask("cuDevSmResourceSplitByCount", number(200), short(0), short(2), short(0), short(8)) +
    ask("cuDevResourceGenerateDesc", number(1), short(2), number(2), number(3)) +
    ask("cuGreenCtxCreate", number(1), number(1), short(0), short(1)) +
    record("cuGreenCtxStreamCreate", number(17), number(1), short(0)) + host_function(on=17) +
    ask("cuGreenCtxGetDevResource", number(1), short(1)) + ask("cuCtxGetDevResource", number(CONTEXT), short(1)) +
    record("cuGreenCtxDestroy", number(1)) + ask("cuStreamQuery", number(17)) + ask("cuCtxSynchronize") +
    ask("cuDevicePrimaryCtxReset_v2", short(0), number(CONTEXT)),
    "device_graphs": start + record("cuStreamBeginCapture_v2", number(STREAM)) +
    record("cuMemsetD8Async", address(0), data(b"\x07"), number(64), number(STREAM)) +
    ask("cuStreamEndCapture", number(STREAM), number(1), data(b"\0")) +
    ask("cuGraphInstantiateWithFlags", number(1), number(1), number(4)) + ask("graph_for_kernels", number(1)) +
    record("cuGraphUpload", number(1), number(STREAM)) + ask("cuGraphLaunch", number(1), number(STREAM)) +
    record("cuGraphExecDestroy", number(1)) + ask("graph_for_kernels", number(1)) + ask("cuCtxSynchronize"),
    "ranges": context + ask("move_range", short(0), power(45), power(31)) + ask("memory_info"),
    "limits": start + ask("cuCtxSetLimit", short(0), number(4096)) + ask("cuCtxGetLimit", short(0)) +
    ask("cuStreamGetAttribute", number(STREAM), short(1)) +
    ask("cuStreamSetAttribute", number(STREAM), short(1), zeros(4)) + ask("cuEventElapsedTime_v2", number(1), number(1)),
    # Found, both: answered, though nobody had asked for an answer.
    "grant_unasked": context + record("memory_grant", short(0), power(23)) + ask("memory_info"),
    "queries_unasked": start + host_function() + record("cuEventRecordWithFlags", number(EVENT), number(STREAM), short(0)) +
    record("query_event", number(EVENT), number(3)) + record("query_stream", number(STREAM), number(4)) +
    ask("cuCtxSynchronize"),
    "goodbye": start + host_function() + record("goodbye"),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (folder / name).write_bytes(content)
    (folder / "all").write_text(",".join(str(folder / name) for name in SEEDS))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The server as it runs on a node with GPUs: a driver by path instead of --emulate, and NVML. Both are stand-ins (see
driver_stand_in.cpp and nvml_stand_in.cpp), so that every step but the hardware's own is real.

    real_gpu_test.py --server bin/tnr-gpu-server --client lib --driver PATH --nvml PATH --old-nvml PATH --smi PATH
"""
import argparse
import csv
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import with_server  # noqa: E402

ALLOCATED = 16 << 20
MIB = 1 << 20
TEST_LIMIT_S = 90  # a test that waits for what will not come; they take two seconds
GPU_IS_LOST = 15

# A CUDA program: takes memory, writes to it and reads it back, says so, lives until its stdin closes.
PROGRAM = f"""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, memory, word = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()
def call(name, *values):
    code = getattr(cuda, name)(*values)
    if code != 0:
        print("failed", name, code, flush=True)
        sys.exit(1)
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t({ALLOCATED}))
if "dirty" in sys.argv:
    call("cuMemsetD32_v2", memory, ctypes.c_uint(0x5ec2e7), ctypes.c_size_t({ALLOCATED // 4}))
call("cuMemcpyDtoH_v2", ctypes.byref(word), memory, ctypes.c_size_t(4))
print("ready", hex(word.value), flush=True)
sys.stdin.read()
"""

# Programs that keep a stream busy and call the driver meanwhile.
MEANWHILE = """
import ctypes, threading
cuda = ctypes.CDLL("libcuda.so.1")
context, stream, copying, module = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
device, pinned = ctypes.c_uint64(), ctypes.c_void_p()
def call(name, *values):
    code = getattr(cuda, name)(*values)
    assert code == 0, (name, code)
entered, leave = threading.Event(), threading.Event()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def function(_):
    entered.set()
    leave.wait()
def load():
    call("cuModuleLoadData", ctypes.byref(module), b".version 7.0\\n.target sm_75\\n.address_size 64\\n.visible .entry k() { ret; }\\0")
def copy():
    call("cuMemcpyDtoHAsync_v2", pinned, device, size, copying)
def check_copy(value=7):
    assert ctypes.string_at(pinned, size.value) == bytes([value]) * size.value
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuStreamCreate", ctypes.byref(stream), 1)
call("cuStreamCreate", ctypes.byref(copying), 1)
size = ctypes.c_size_t(32 << 20)  # more than may be on its way at once
call("cuMemAlloc_v2", ctypes.byref(device), size)
call("cuMemAllocHost_v2", ctypes.byref(pinned), size)
call("cuMemsetD8_v2", device, ctypes.c_ubyte(7), size)
call("cuCtxSynchronize")
"""

# What JAX does in its first computation.
LOADS_BESIDE_FUNCTION = MEANWHILE + """
for _ in range(3):
    entered.clear(), leave.clear()
    call("cuLaunchHostFunc", stream, function, None)
    entered.wait()
    threading.Timer(0.2, leave.set).start()  # by when the worker is inside its driver
    load()
    call("cuStreamSynchronize", stream)
    call("cuCtxSynchronize")
"""

# The function needs what the GPU had last, so the worker has to go on meanwhile.
LOADS_BESIDE_FUNCTION_THAT_READS = MEANWHILE + """
seen, mapped, page = [], ctypes.c_void_p(), ctypes.c_size_t(4096)
call("cuMemHostAlloc", ctypes.byref(mapped), page, 2)  # CU_MEMHOSTALLOC_DEVICEMAP
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def reads(_):
    entered.set()
    leave.wait()
    seen.append(ctypes.string_at(mapped, 3))
for value in b"abc":
    entered.clear(), leave.clear()
    call("cuMemsetD8Async", ctypes.c_uint64(mapped.value), ctypes.c_ubyte(value), page, copying)
    call("cuStreamSynchronize", copying)
    call("cuLaunchHostFunc", stream, reads, None)
    entered.wait()
    threading.Timer(0.2, leave.set).start()  # by when the worker is inside its driver
    load()
    call("cuCtxSynchronize")
assert seen == [b"aaa", b"bbb", b"ccc"], seen
"""

COPIES_BESIDE_FUNCTION = MEANWHILE + """
call("cuLaunchHostFunc", stream, function, None)
entered.wait()
copy()
call("cuStreamSynchronize", copying)
check_copy()
leave.set()
call("cuCtxSynchronize")
"""

COPIES = MEANWHILE + """
copy()
call("cuStreamSynchronize", copying)
check_copy()
"""

OVERWRITES = MEANWHILE + """
for value in range(7, 12):
    copy()
    call("cuMemsetD8Async", device, ctypes.c_ubyte(value + 1), size, copying)
    call("cuStreamSynchronize", copying)
    check_copy(value)
"""

LOADS_BESIDE_COPY = MEANWHILE + """
copy()
load()
call("cuCtxSynchronize")
check_copy()
"""

GPU, SWITCH = 0, 2  # nvmlIntNvLinkDeviceType_t
NO_PEER = 5  # NVML_P2P_STATUS_NOT_SUPPORTED

# What NVML tells of each GPU: P2P to read from the others, and of three links the code with which their state is told and
# what is at the other end.
ENERGY_MJ = 5_000_000_000  # more than 32 bits hold
SENSORS = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
gpu, energy, limit = ctypes.c_void_p(), ctypes.c_ulonglong(), ctypes.c_uint()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu))
print(nvml.nvmlDeviceGetTotalEnergyConsumption(gpu, ctypes.byref(energy)), energy.value)
for kind in range(6):
    print(nvml.nvmlDeviceGetTemperatureThreshold(gpu, kind, ctypes.byref(limit)), limit.value)
"""
LINKS = """
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
count = ctypes.c_uint()
nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
gpus = [ctypes.c_void_p() for _ in range(count.value)]
for i, gpu in enumerate(gpus):
    nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(gpu))
def answer(name, *arguments):
    value = ctypes.c_int(-1)
    code = getattr(nvml, name)(*arguments, ctypes.byref(value))
    return code, value.value if code == 0 else None
for gpu in gpus:
    print("peer", [answer("nvmlDeviceGetP2PStatus", gpu, peer, 0)[1] for peer in gpus if peer is not gpu],
          "state", [answer("nvmlDeviceGetNvLinkState", gpu, link)[0] for link in range(3)],
          "type", [answer("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link)[1] for link in range(3)])
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("server", "client", "driver", "nvml", "old-nvml", "smi"):
        parser.add_argument("--" + name, required=True)
    return parser.parse_known_args()


def uuids():
    """Of the stand-in driver's GPUs, as nvidia-smi writes them; asked in a process of its own."""
    code = ("import ctypes, sys, uuid\ncuda = ctypes.CDLL(sys.argv[1])\ncuda.cuInit(0)\nraw = (ctypes.c_ubyte * 16)()\n"
            "for i in range(2):\n    cuda.cuDeviceGetUuid_v2(raw, i)\n    print('GPU-' + str(uuid.UUID(bytes=bytes(raw))))")
    done = subprocess.run([sys.executable, "-c", code, ARGUMENTS.driver], capture_output=True, text=True, check=True)
    return done.stdout.split()


class Node:
    """A server on the stand-ins, and what its machine sees."""

    def __init__(self, folder, shall="", nvml=None, inside=(), **environment):
        self.folder = folder
        self.facts = os.path.join(folder, "nvml")
        self.tell_nvml([])
        command = [*inside, ARGUMENTS.server, "serve", "--plain", "--listen", "tcp://127.0.0.1:0", "--linger-ms", "0",
                   "--state", os.path.join(folder, "server"), "--driver", ARGUMENTS.driver, "--nvml", nvml or ARGUMENTS.nvml]
        environment = dict(with_server.environment_for_sanitizers(), TNR_NVML_STAND_IN=self.facts,
                           TNR_WORKER_STAND_IN=shall, **environment)
        self.command, self.environment, self.server = command, environment, None

    def start(self):
        with open(self.log_path(), "w") as log:
            self.server = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                           stderr=log, env=self.environment, start_new_session=True)
        self.address = with_server.address_of(self.server)
        return self

    def stop(self):
        if self.server:
            with_server.stop(self.server)
            self.server.stdout.close()

    def log_path(self):
        return os.path.join(self.folder, "server.log")

    def log(self):
        with open(self.log_path(), errors="replace") as file:
            return file.read()

    def wait_for_log(self, pattern, times=1):
        """The log is written by the server and its workers; `tail` waits for it to grow."""
        with subprocess.Popen(["tail", "-f", "-n", "+1", self.log_path()], stdout=subprocess.PIPE, text=True) as tail:
            try:
                for line in tail.stdout:
                    found = re.search(pattern, line)
                    times -= found is not None
                    if times == 0:
                        return found
            finally:
                tail.kill()

    def tell_nvml(self, lines):
        with open(self.facts + ".new", "w") as file:
            file.write("\n".join(lines) + "\n")
        os.rename(self.facts + ".new", self.facts)

    def client(self):
        return with_server.client_environment(
            argparse.Namespace(client=ARGUMENTS.client, gpu="h100"), self.address, self.folder)

    def run(self, *arguments):
        return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stdin=subprocess.PIPE, text=True,
                                stdout=subprocess.PIPE, env=self.client())

    def smi(self, *arguments):
        return subprocess.run([ARGUMENTS.smi, *arguments], capture_output=True, text=True, env=self.client())

    def query(self, fields):
        done = self.smi("--query-gpu=" + fields, "--format=csv,noheader,nounits")
        assert done.returncode == 0, done.stderr
        return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(done.stdout))]


def hot(uuid, minor):
    """The NVML facts of a busy GPU."""
    values = ["HandleByUUID 1", f"MinorNumber {minor}", "Temperature 61", "PowerUsage 350500", "EnforcedPowerLimit 700000",
              "PerformanceState 0", "PersistenceMode 1", "ComputeMode 0", "CurrPcieLinkGeneration 5", "CurrPcieLinkWidth 16",
              "MaxPcieLinkGeneration 5", "MaxPcieLinkWidth 16", "ClockInfo 1755 1760 2619 1500", "MaxClockInfo 1980 1981 2620 1600",
              "UtilizationRates 87 43", "EccMode 1 1", "TotalEccErrors 7 9 2 5", "MigMode 0 0", "EncoderUtilization 5 1000",
              f"MemoryInfo_v2 {64 * MIB} {MIB} {43 * MIB} {20 * MIB}", f"MemoryInfo {64 * MIB} {43 * MIB} {21 * MIB}",
              "ComputeRunningProcesses_v2 1", "ComputeRunningProcesses_v3 1", "PowerManagementDefaultLimit 650000",
              "PowerManagementLimitConstraints 200000 700000", "PcieReplayCounter 3", "CurrentClocksEventReasons 4",
              f"TotalEnergyConsumption {ENERGY_MJ}", "FieldValues 72", "TemperatureThreshold 95 92 105 87", "RemappedRows 1 2 0 1"]
    return [f"{uuid} nvmlDeviceGet{value}" for value in values]


class RealGpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tnr-test-", ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.uuids = uuids()
        self.addCleanup(signal.alarm, 0)
        signal.alarm(TEST_LIMIT_S)

    def node(self, facts=(), **options):
        node = Node(self.folder, **options)
        node.tell_nvml(list(facts))
        self.addCleanup(node.stop)
        return node.start()

    def ready(self, program):
        line = program.stdout.readline()
        self.assertTrue(line.startswith("ready "), line)
        return line.split()[1]

    def end(self, program):
        program.communicate("")
        self.assertEqual(program.returncode, 0)

    def test_programs_run_and_all_memory_is_wiped_after_each(self):
        node = self.node()
        node.wait_for_log(r"h100 #0: wiped 6\d MiB, free")
        node.wait_for_log(r"h100 #1: wiped 6\d MiB, free")
        for claim in (1, 2):
            program = node.run("dirty")
            self.assertEqual(self.ready(program), "0x5ec2e7")
            self.assertIn(f"claim {claim}: ", node.log())
            self.end(program)
            node.wait_for_log(r"wiped 6\d MiB, free", 2 + claim)

    def test_two_programs_of_a_machine_share_one_gpu(self):
        node = self.node()
        first, second = node.run(), node.run()
        self.ready(first), self.ready(second)
        self.assertEqual(len(re.findall(r"claim 1: .* is served by worker", node.log())), 2)
        self.end(first), self.end(second)

    def test_processes_of_the_server_see_what_they_shall(self):
        facts = hot(self.uuids[0], 5) + hot(self.uuids[1], 2)
        node = self.node(facts, CUDA_DEVICE_ORDER="FASTEST_FIRST", CUDA_MPS_PIPE_DIRECTORY="/tmp/nvidia-mps",
                         CUDA_CACHE_PATH="/root/.nv")
        self.end_after_ready(node.run())
        seen = set(re.findall(r"stand-in: (.*)", node.log()))
        self.assertEqual(seen, {f"order PCI_BUS_ID, mps /dev/null, cache -, minors {minors}" for minors in ("", "5", "2")})

    def end_after_ready(self, program):
        self.ready(program)
        self.end(program)

    def test_nvidia_smi_shows_what_nvml_tells(self):
        node = self.node(hot(self.uuids[0], 0) + hot(self.uuids[1], 1))
        program = node.run()
        self.ready(program)
        worker = node.wait_for_log(r"is served by worker (\d+)")[1]
        uuid = node.query("uuid")[0][0]
        node.tell_nvml(hot(self.uuids[0], 0) + hot(self.uuids[1], 1) +
                       [f"{uuid} process {worker} {17 * MIB}", f"{uuid} process 1 {3 * MIB}"])
        self.assertEqual(
            node.query("temperature.gpu,power.draw,power.limit,pstate,persistence_mode,clocks.sm,clocks.mem,clocks.max.sm,"
                       "utilization.gpu,utilization.memory,ecc.mode.current,ecc.errors.uncorrected.volatile.total,"
                       "mig.mode.current,pcie.link.gen.current,pcie.link.width.max,memory.used,driver_version,fan.speed"),
            [["61", "350.50", "700.00", "P0", "Enabled", "1760", "2619", "1981", "87", "43", "Enabled", "2", "Disabled",
              "5", "16", "20", "580.65.06", "[N/A]"]])
        self.assertEqual(
            node.query("power.default_limit,power.min_limit,power.max_limit,pcie.replay_counter,"
                       "clocks_event_reasons.active,utilization.encoder"),
            [["650.00", "200.00", "700.00", "3", "0x0000000000000004", "5"]])
        self.assertEqual(
            node.query("temperature.memory,ecc.errors.corrected.volatile.total,ecc.errors.corrected.aggregate.total,"
                       "ecc.errors.uncorrected.aggregate.total,remapped_rows.correctable,remapped_rows.uncorrectable,"
                       "remapped_rows.pending,remapped_rows.failure"),
            [["72", "7", "9", "5", "1", "2", "No", "Yes"]])
        # The reading with the process is at most a second away; each question waits for one that is fresh enough.
        rows = ""
        while not rows.endswith(", 17\n"):
            rows = node.smi("--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader,nounits").stdout
            self.assertEqual(rows.split(",")[0], str(program.pid))  # never the worker's, nor another process of the node
        self.assertEqual(rows.splitlines(), [f"{program.pid}, 17"])
        self.assertIn(f"{program.pid}", node.smi().stdout)
        self.end(program)

    def test_energy_and_limits_of_temperature_are_told(self):
        node = self.node(hot(self.uuids[0], 0) + hot(self.uuids[1], 1))
        done = subprocess.run([sys.executable, "-c", SENSORS], env=node.client(), capture_output=True, text=True)
        not_supported = "3 87"  # the last one's number is left as it was
        self.assertEqual(done.stdout.splitlines(), [f"0 {ENERGY_MJ}", "0 95", "0 92", "0 105", "0 87", not_supported,
                                                    not_supported], done.stderr)

    def test_programs_see_peers_and_links_among_their_own_gpus(self):
        """GPU 0 has two links to a switch, GPU 1 one to GPU 0; a claim of one GPU hears nothing of the other."""
        node = self.node(hot(self.uuids[0], 0) + hot(self.uuids[1], 1) + [
            f"{self.uuids[0]} nvmlDeviceGetP2PStatus 0", f"{self.uuids[1]} nvmlDeviceGetP2PStatus 1",
            f"{self.uuids[0]} nvmlDeviceGetNvLinkState 2 {SWITCH}", f"{self.uuids[1]} nvmlDeviceGetNvLinkState 1 {GPU} 1"])
        both = self.ask_for_links(node, "h100:2")
        self.assertEqual(both, {f"peer [0] state [0, 0, 3] type [{SWITCH}, {SWITCH}, None]",
                                f"peer [{NO_PEER}] state [0, 3, 3] type [{GPU}, None, None]"})
        # Alone, #0 keeps its links; the one of #1 leads to a stranger, so it has what a stand-in has that nobody told of.
        alone, = self.ask_for_links(node, "h100")
        self.assertIn(alone, {f"peer [] state [0, {state}, 3] type [{SWITCH}, {kind}, None]"
                              for state, kind in ((0, SWITCH), (3, None))})

    def ask_for_links(self, node, gpus):
        done = subprocess.run([sys.executable, "-c", LINKS], env=dict(node.client(), TNR_GPU=gpus), capture_output=True,
                              text=True, timeout=TEST_LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return set(done.stdout.splitlines())

    def test_an_old_nvml_lacks_some_functions(self):
        node = self.node(hot(self.uuids[0], 0) + hot(self.uuids[1], 1), nvml=ARGUMENTS.old_nvml)
        program = node.run()
        self.ready(program)
        self.assertEqual(node.query("temperature.gpu,memory.used,mig.mode.current"), [["61", "21", "[N/A]"]])
        self.end(program)

    def test_a_gpu_that_is_lost_is_shown_as_lost(self):
        facts = hot(self.uuids[0], 0) + hot(self.uuids[1], 1)
        node = self.node(facts)
        program = node.run()
        self.ready(program)
        self.assertEqual(node.query("temperature.gpu"), [["61"]])
        node.tell_nvml([re.sub(r"(HandleByUUID) .*", rf"\1 !{GPU_IS_LOST}", line) for line in facts])
        while "is lost: this node has to be restarted" not in node.log():
            node.query("temperature.gpu")
        self.assertEqual(node.query("name,temperature.gpu,memory.used")[0][1:], ["[GPU is lost]", "[GPU is lost]"])
        self.assertIn("ERR!", node.smi().stdout)
        node.tell_nvml(facts)  # and comes back, as after a reset
        while node.query("temperature.gpu") != [["61"]]:
            pass
        self.end(program)

    def test_without_nvml_the_pools_own_facts_remain(self):
        node = self.node(nvml="/nowhere/libnvidia-ml.so.1")
        program = node.run()
        self.ready(program)
        self.assertEqual(node.query("temperature.gpu,memory.total,driver_version"), [["[N/A]", "64", "580.0.0"]])
        self.assertIn("does not start", node.log())
        self.end(program)

    def test_a_gpu_that_one_process_may_use_says_how_to_change_that(self):
        node = self.node(shall="exclusive")
        self.assertIn("nvidia-smi -c 0", node.log())
        node.wait_for_log(r"out of order: .*CUDA_ERROR_DEVICE_UNAVAILABLE \(is its compute mode exclusive\?")

    def test_memory_that_cannot_be_had_keeps_the_gpu_out_of_use(self):
        node = self.node(shall="scarce")
        node.wait_for_log(r"out of order: .*MiB of 640 MiB could not be overwritten")

    def test_memory_that_keeps_nothing_is_noticed_by_the_wipe(self):
        node = self.node(shall="forgetful")
        node.wait_for_log(r"out of order: .*memory does not hold what was written to it")

    def test_a_gpu_that_has_vanished_is_out_of_order(self):
        node = self.node(shall="vanished")
        node.wait_for_log(r"out of order: .*the driver does not show this GPU any more")

    def run_to_end(self, program, shall):
        done = subprocess.run([sys.executable, "-c", program], timeout=TEST_LIMIT_S, env=self.node(shall=shall).client())
        self.assertEqual(done.returncode, 0)

    def test_a_host_function_ends_while_the_driver_waits_for_it(self):
        self.run_to_end(LOADS_BESIDE_FUNCTION, "patient")

    def test_it_gets_what_the_gpu_had_while_the_driver_waits_for_it(self):
        self.run_to_end(LOADS_BESIDE_FUNCTION_THAT_READS, "patient")

    def test_a_long_copy_needs_no_turn_among_the_host_functions(self):
        self.run_to_end(COPIES_BESIDE_FUNCTION, "patient")

    def test_a_long_copy_does_not_stand_behind_the_stream_that_waits_for_it(self):
        self.run_to_end(COPIES, "narrow")

    def test_what_follows_a_long_copy_does_not_change_what_it_copies(self):
        self.run_to_end(OVERWRITES, "")

    def test_neither_does_it_where_streams_cannot_wait_for_words(self):
        self.run_to_end(OVERWRITES, "wordless")

    def test_a_long_copy_goes_on_while_the_driver_waits_for_it(self):
        self.run_to_end(LOADS_BESIDE_COPY, "patient thorough")

    @unittest.skipUnless(os.geteuid() == 0, "needs to be root, to become somebody else in a container")
    def test_a_container_that_covers_parts_of_proc(self):
        """The kernel lets nobody but root mount a /proc there, so workers have no process ids of their own."""
        os.chmod(self.folder, 0o777)
        somebody = ("setpriv", "--reuid", "4242", "--regid", "4242", "--clear-groups")
        if subprocess.run([*somebody, "test", "-x", ARGUMENTS.server]).returncode != 0:
            self.skipTest("nobody but root can reach the server's program: its folder is root's alone")
        covered = f"mount -t tmpfs tmpfs /proc/bus && exec {' '.join(somebody)} \"$0\" \"$@\""
        container = ("unshare", "--mount", "sh", "-c", covered)
        if subprocess.run([*container, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no mounts here")
        node = self.node(inside=container)
        program = node.run()
        self.ready(program)
        self.end(program)
        node.wait_for_log("sandbox lacks: .*process ids of its own")

    def test_a_divided_gpu_is_not_served(self):
        node = Node(self.folder, shall="divided")
        self.addCleanup(node.stop)
        node.start()
        self.assertIsNone(node.address)
        self.assertIn("is divided (MIG), which this server does not serve", node.log())


def too_late(*_):
    raise TimeoutError(f"the test did not end within {TEST_LIMIT_S} s")


ARGUMENTS, REST = parse_arguments()
signal.signal(signal.SIGALRM, too_late)
if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *REST])

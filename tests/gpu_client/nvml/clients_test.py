#!/usr/bin/env python3
"""NVML as its users see it: NVIDIA's Python binding, gpustat, nvitop, nvtop and our nvidia-smi, beside a real server.

Run through tests/support/with_server.py (two emulated h100): clients_test.py NVIDIA_SMI LIBCUDA, with a Python that has
nvidia-ml-py, gpustat and nvitop.
"""
import csv
import fcntl
import io
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from xml.etree import ElementTree

import pynvml

NVIDIA_SMI, LIBCUDA = sys.argv[1:3]
ALLOCATED = 64 << 20

# A CUDA program: takes memory, says so, lives until its stdin closes.
PROGRAM = f"""
import ctypes, sys
cuda = ctypes.CDLL({LIBCUDA!r})
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t({ALLOCATED})) == 0
assert cuda.cuCtxSynchronize() == 0
print("ready", flush=True)
sys.stdin.read()
"""


def smi(*arguments):
    return subprocess.run([NVIDIA_SMI, *arguments], capture_output=True, text=True)


class Nvml(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert cls.program.stdout.readline() == "ready\n", "the CUDA program did not start"
        pynvml.nvmlInit()

    @classmethod
    def tearDownClass(cls):
        pynvml.nvmlShutdown()
        cls.program.communicate("")

    def test_the_binding_sees_the_gpus_of_the_claim(self):
        self.assertEqual(pynvml.nvmlDeviceGetCount(), 2)
        first = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.assertIn("H100 (emulated)", pynvml.nvmlDeviceGetName(first))
        self.assertEqual(pynvml.nvmlDeviceGetCudaComputeCapability(first), (12, 0))
        self.assertEqual(pynvml.nvmlSystemGetCudaDriverVersion(), 13000)
        uuid = pynvml.nvmlDeviceGetUUID(first)
        self.assertEqual(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)), 0)
        bus = pynvml.nvmlDeviceGetPciInfo(first).busId
        self.assertEqual(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(bus)), 0)

    def test_memory_and_processes_are_the_client_machines_own(self):
        first = pynvml.nvmlDeviceGetHandleByIndex(0)
        memory = pynvml.nvmlDeviceGetMemoryInfo(first)
        self.assertEqual(memory.total, 2048 << 20)
        self.assertGreaterEqual(memory.used, ALLOCATED)
        self.assertEqual(memory.free, memory.total - memory.used)
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(first)
        self.assertEqual([p.pid for p in processes], [self.program.pid])
        self.assertGreaterEqual(processes[0].usedGpuMemory, ALLOCATED)
        self.assertEqual(pynvml.nvmlDeviceGetGraphicsRunningProcesses(first), [])

    def test_an_emulated_gpu_makes_nothing_up(self):
        first = pynvml.nvmlDeviceGetHandleByIndex(0)
        for question in (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetFanSpeed, pynvml.nvmlDeviceGetSerial):
            with self.assertRaises(pynvml.NVMLError_NotSupported):
                question(first)

    def test_wrong_questions_get_nvmls_own_errors(self):
        with self.assertRaises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetHandleByIndex(2)
        with self.assertRaises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")

    def test_gpustat_shows_both_gpus(self):
        import gpustat
        query = gpustat.new_query()
        self.assertEqual(len(query), 2)
        self.assertIn("H100", query[0].name)
        self.assertEqual(query[0].memory_total, 2048)
        self.assertEqual([p["pid"] for p in query[0].processes], [self.program.pid])

    def test_nvitop_shows_both_gpus(self):
        done = subprocess.run([sys.executable, "-m", "nvitop", "--once", "--ascii"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("H100 (emulated)"), 2)
        self.assertIn(str(self.program.pid), done.stdout)

    @unittest.skipUnless(shutil.which("nvtop"), "nvtop is not installed")
    def test_nvtop_shows_both_gpus(self):
        """It draws on a terminal for as long as it lives."""
        terminal, its_end = pty.openpty()
        fcntl.ioctl(its_end, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
        nvtop = subprocess.Popen(["nvtop"], stdin=its_end, stdout=its_end, stderr=its_end, start_new_session=True,
                                 env=dict(os.environ, TERM="xterm"))
        os.close(its_end)
        shown, give_up = "", time.monotonic() + 30
        while not all(f"Device {gpu}" in shown for gpu in (0, 1)) and time.monotonic() < give_up:
            if select.select([terminal], [], [], 1)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")
        nvtop.kill()
        nvtop.wait()
        os.close(terminal)
        self.assertIn("Device 1", shown)
        self.assertIn("H100 (emulated)", shown)

    def test_nvidia_smi_prints_a_table_with_gpus_and_processes(self):
        done = smi()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("NVIDIA H100 (emulated)"), 2)
        self.assertIn(str(self.program.pid), done.stdout)
        frame = [line for line in done.stdout.splitlines()[1:] if line]
        self.assertEqual({len(line) for line in frame}, {91}, "the table is ragged")

    def test_nvidia_smi_lists_and_answers_queries(self):
        lines = smi("-L").stdout.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"^GPU 0: NVIDIA H100 \(emulated\) \(UUID: GPU-[0-9a-f-]{36}\)$")
        rows = list(csv.reader(io.StringIO(smi("--query-gpu=index,name,memory.total,power.draw", "--format=csv").stdout),
                               skipinitialspace=True))
        self.assertEqual(rows[0], ["index", "name", "memory.total [MiB]", "power.draw [W]"])
        self.assertEqual(rows[1], ["0", "NVIDIA H100 (emulated)", "2048 MiB", "[N/A]"])
        bare = smi("--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "1").stdout
        self.assertEqual(bare, "2048\n")
        apps = smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader").stdout
        self.assertTrue(apps.startswith(f"{self.program.pid}, "), apps)

    def test_nvidia_smi_answers_what_scripts_ask(self):
        """GPUtil's line of questions, word for word, and a few that others add."""
        wanted = ("index,uuid,utilization.gpu,memory.total,memory.used,memory.free,driver_version,name,gpu_serial,"
                  "display_active,display_mode,temperature.gpu")
        rows = list(csv.reader(io.StringIO(smi(f"--query-gpu={wanted}", "--format=csv,noheader,nounits").stdout),
                               skipinitialspace=True))
        self.assertEqual(len(rows), 2)
        self.assertEqual(rows[1][0], "1")
        self.assertRegex(rows[0][6], r"^\d+(\.\d+)+$")
        self.assertIn(int(rows[0][2]), range(101))
        self.assertEqual(rows[0][7:], ["NVIDIA H100 (emulated)", "[N/A]", "Disabled", "Disabled", "[N/A]"])
        more = smi("--query-gpu=pci.domain,pci.bus,pci.device,clocks_throttle_reasons.active,power.max_limit,vbios_version",
                   "--format=csv,noheader", "-i", "0").stdout
        self.assertEqual(more.strip(), "0x0000, 0x01, 0x00, 0x0000000000000000, [N/A], [N/A]")

    def test_nvidia_smi_reports_all_it_knows_for_people_and_as_xml(self):
        report = ElementTree.fromstring(smi("-q", "-x").stdout)
        gpus = report.findall("gpu")
        self.assertEqual((report.tag, report.findtext("attached_gpus"), len(gpus)), ("nvidia_smi_log", "2", 2))
        for name, value in {"product_name": "NVIDIA H100 (emulated)", "fb_memory_usage/total": "2048 MiB", "fan_speed": "N/A",
                            "pci/pci_gpu_link_info/pcie_gen/max_link_gen": "N/A", "performance_state": "P0"}.items():
            self.assertEqual(gpus[0].findtext(name), value, name)
        self.assertRegex(gpus[0].findtext("utilization/gpu_util"), r"^\d+ %$")
        self.assertEqual(gpus[0].findtext("processes/process_info/pid"), str(self.program.pid))
        text = smi("-q", "-i", "0").stdout
        self.assertIn("\n    FB Memory Usage\n        Total                             : 2048 MiB\n", text)
        self.assertIn(f"\n    Processes\n        Process ID                        : {self.program.pid}\n", text)
        parts = smi("-q", "-d", "memory,PIDS", "-i", "0").stdout
        self.assertIn("FB Memory Usage", parts)
        self.assertNotIn("Product Name", parts)
        wrong = smi("-q", "-d", "SMELL")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("UTILIZATION", wrong.stderr)

    def test_nvidia_smi_knows_every_field_that_it_lists(self):
        listed = smi("--help-query-gpu").stdout.split("Fields for --query-compute-apps:")[0].split()[3:]
        self.assertGreater(len(listed), 180)  # NVIDIA's has about as many
        more = ["clocks.gr", "retired_pages.sbe", "clocks_throttle_reasons.hw_slowdown", "enforced.power.limit"]
        self.assertEqual(len(listed), len(set(listed)))
        for units in ("csv", "csv,nounits"):
            done = smi(f"--query-gpu={','.join(listed + more)}", f"--format={units}")
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = list(csv.reader(io.StringIO(done.stdout), skipinitialspace=True))
            self.assertEqual([len(row) for row in rows], [len(listed + more)] * 3)
            told = dict(zip([name.split(" ")[0] for name in rows[0]], rows[1]))
        self.assertEqual((told["clocks.current.graphics"], told["retired_pages.single_bit_ecc.count"]), ("[N/A]", "0"))
        self.assertEqual(told["clocks_event_reasons.hw_slowdown"], "Not Active")
        self.assertEqual(told["ecc.errors.corrected.volatile.dram"], "[N/A]")

    def test_nvidia_smi_takes_several_gpus_in_any_of_their_names(self):
        self.assertEqual(len(smi("-L", "-i", "0,1").stdout.splitlines()), 2)
        self.assertTrue(smi("-L", "--id=0000:02:00.0").stdout.startswith("GPU 1:"))
        self.assertEqual(smi("-L", "-i", "7").returncode, 9)

    def test_nvidia_smi_topo_shows_links_and_what_works_over_them(self):
        lines = smi("topo", "-m").stdout.splitlines()
        self.assertEqual(lines[0].split("\t")[1:], ["GPU0", "GPU1", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
        self.assertEqual(lines[1].split("\t")[:3], ["GPU0", " X ", "NV1"])
        self.assertEqual(lines[2].split("\t")[:3], ["GPU1", "NV1", " X "])
        self.assertEqual(lines[1].split("\t")[-1], "N/A")
        with open("/sys/devices/system/cpu/online") as online:
            self.assertEqual(lines[1].split("\t")[3], online.read().strip())
        self.assertEqual(smi("topo", "-p2p", "r").stdout.splitlines()[1].split(), ["GPU0", "X", "OK"])
        self.assertEqual([smi("topo", *wrong).returncode for wrong in ((), ("-p2p", "z"), ("-m", "-p2p", "r"))], [2, 2, 2])

    def test_nvidia_smi_dmon_prints_a_line_for_each_gpu(self):
        lines = smi("dmon", "-c", "1").stdout.splitlines()
        self.assertEqual(lines[0].split()[1:], "gpu pwr gtemp mtemp sm mem enc dec jpg ofa mclk pclk".split())
        self.assertEqual(lines[1].split()[1:4], ["Idx", "W", "C"])
        self.assertEqual([line.split()[:2] for line in lines[2:]], [["0", "-"], ["1", "-"]])
        self.assertIn(int(lines[2].split()[4]), range(101))
        self.assertEqual({len(line) for line in lines}, {len(lines[0])}, "the columns are ragged")
        for when in ("D", "T", "DT"):
            lines = smi("dmon", "-c", "2", "-d", "0.1", "-s", "mu", "-o", when, "-i", "1").stdout.splitlines()
            self.assertEqual((len(lines), {len(line) for line in lines}), (4, {len(lines[0])}))
            fields = dict(zip(lines[0].lstrip("#").split(), lines[3].split()))
            self.assertEqual((fields["gpu"], fields["bar1"]), ("1", "-"))
        self.assertEqual(smi("dmon", "-c", "1", "-s", "x").returncode, 2)

    def test_nvidia_smi_pmon_prints_a_line_for_each_process(self):
        lines = smi("pmon", "-c", "1", "-s", "um", "-i", "0").stdout.splitlines()
        fields = dict(zip(lines[0].lstrip("#").split(), lines[2].split()))
        self.assertEqual((fields["gpu"], fields["pid"], fields["type"], fields["sm"]), ("0", str(self.program.pid), "C", "-"))
        self.assertGreaterEqual(int(fields["fb"]), ALLOCATED >> 20)
        self.assertIn("python", fields["command"])

    def test_nvidia_smi_refuses_to_change_the_pools_gpus(self):
        """With NVIDIA's words and status for users without permission; what is so already is no change."""
        for wanted, word in ((["-pm", "0"], "Unable to set persistence mode for GPU 00000000:01:00.0: Insufficient"),
                             (["-pl", "200"], "Failed to set power management limit for GPU 00000000:01:00.0: Insufficient"),
                             (["-lgc", "300,400"], "does not have permission to change clocks for GPU 00000000:01:00.0."),
                             (["-rgc"], "does not have permission to change clocks"), (["-c", "3"], "Insufficient"),
                             (["-r"], "Insufficient")):
            done = smi(*wanted)
            self.assertEqual(done.returncode, 4, wanted)
            self.assertIn(word, done.stdout)
        done = smi("-pm", "1", "-i", "1")
        self.assertEqual((done.returncode, done.stdout),
                         (0, "Persistence mode is already Enabled for GPU 00000000:02:00.0.\nAll done.\n"))

    def test_nvidia_smi_repeats_itself_and_writes_files(self):
        for often in (["-lms", "100"], ["--loop=0.1"]):
            with subprocess.Popen([NVIDIA_SMI, "-L", *often], stdout=subprocess.PIPE, text=True) as loop:
                self.assertEqual([loop.stdout.readline()[:5] for _ in range(6)], ["GPU 0", "GPU 1"] * 3)
                loop.kill()
        with tempfile.NamedTemporaryFile("r") as file:
            self.assertEqual(smi("-L", "-f", file.name).stdout, "")
            self.assertEqual(len(file.read().splitlines()), 2)

    def test_nvidia_smi_names_a_field_it_does_not_know(self):
        done = smi("--query-gpu=name,smell", "--format=csv")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("smell", done.stderr)

    def test_without_a_pool_it_says_which_and_what_to_do(self):
        environment = dict(os.environ, TNR_POOL="tcp://127.0.0.1:1")
        done = subprocess.run([NVIDIA_SMI], capture_output=True, text=True, env=environment)
        self.assertEqual(done.returncode, 9)
        self.assertIn("tcp://127.0.0.1:1", done.stderr)
        self.assertIn("hint:", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/env python3
"""Questions that have a plain answer get it, and those that only hardware could answer do not.

Run through tests/support/with_server.py (two emulated h100), with a Python that has nvidia-ml-py.
"""
import ctypes
import os
import unittest

import pynvml as nvml


def numbers(words):
    return {bit for bit in range(64 * len(words)) if words[bit // 64] >> bit % 64 & 1}


def listed(path):
    """{0, 1, 2, 8} of "0-2,8"."""
    found = set()
    with open(path) as file:
        for part in file.read().strip().split(","):
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1))
    return found


class PlainAnswers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        nvml.nvmlInit()
        cls.first, cls.second = (nvml.nvmlDeviceGetHandleByIndex(i) for i in (0, 1))

    @classmethod
    def tearDownClass(cls):
        nvml.nvmlShutdown()

    def refused(self, error, function, *arguments):
        with self.assertRaises(error):
            function(*arguments)

    def test_versions_are_numbers_with_dots(self):
        driver = nvml.nvmlSystemGetDriverVersion()
        self.assertGreaterEqual(tuple(map(int, driver.split("."))), (580,))  # what CUDA 13.0 came with
        cuda = nvml.nvmlSystemGetCudaDriverVersion()
        self.assertEqual(nvml.nvmlSystemGetNVMLVersion(), f"{cuda // 1000}.{driver}")
        self.assertEqual(nvml.nvmlSystemGetDriverBranch().branch, f"r{driver.split('.')[0]}_00")
        self.assertIn("(emulated)", nvml.nvmlDeviceGetName(self.first))

    def test_a_short_buffer_is_refused(self):
        library = ctypes.CDLL("libnvidia-ml.so.1")
        buffer = ctypes.create_string_buffer(b"unchanged", 32)
        self.assertEqual(library.nvmlSystemGetDriverVersion(buffer, 3), nvml.NVML_ERROR_INSUFFICIENT_SIZE)
        branch = nvml.c_nvmlSystemDriverBranchInfo_v1_t()
        self.assertEqual(library.nvmlSystemGetDriverBranch(ctypes.byref(branch), 80),
                         nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)

    def test_every_processor_and_all_memory_are_equally_near(self):
        cpus = listed("/sys/devices/system/cpu/online")
        words = max(cpus) // 64 + 1
        self.assertEqual(numbers(nvml.nvmlDeviceGetCpuAffinity(self.first, words)), cpus)
        self.assertEqual(numbers(nvml.nvmlDeviceGetCpuAffinityWithinScope(self.first, words, 1)), cpus)
        nodes = "/sys/devices/system/node/online"
        self.assertEqual(numbers(nvml.nvmlDeviceGetMemoryAffinity(self.first, 16, 0)),
                         listed(nodes) if os.path.exists(nodes) else {0})
        before = os.sched_getaffinity(0)
        nvml.nvmlDeviceSetCpuAffinity(self.first)
        nvml.nvmlDeviceClearCpuAffinity(self.first)
        self.assertEqual(os.sched_getaffinity(0), before)
        self.refused(nvml.NVMLError_InvalidArgument, nvml.nvmlDeviceGetCpuAffinity, self.first, 0)

    def test_emulated_gpus_reach_each_other(self):
        for index in range(5):  # nvml.NVML_P2P_CAPS_INDEX_…, of which the binding has made tuples
            self.assertEqual(nvml.nvmlDeviceGetP2PStatus(self.first, self.second, index), nvml.NVML_P2P_STATUS_OK)
            self.assertEqual(nvml.nvmlDeviceGetP2PStatus(self.first, self.first, index), nvml.NVML_P2P_STATUS_NOT_SUPPORTED)
        self.assertEqual(nvml.nvmlDeviceGetNvLinkState(self.first, 0), nvml.NVML_FEATURE_ENABLED)
        self.assertEqual(nvml.nvmlDeviceGetNvLinkCapability(self.first, 0, nvml.NVML_NVLINK_CAP_P2P_SUPPORTED), 1)
        self.assertEqual(nvml.nvmlDeviceGetNvLinkCapability(self.first, 0, nvml.NVML_NVLINK_CAP_SYSMEM_ACCESS), 0)
        self.assertEqual(nvml.nvmlDeviceGetNvLinkRemoteDeviceType(self.first, 0), nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH)
        self.assertEqual(nvml.nvmlDeviceGetNvLinkRemotePciInfo(self.first, 0).domain, 0xffffffff)
        self.assertEqual(self.state_field(0), (nvml.NVML_SUCCESS, nvml.NVML_FEATURE_ENABLED))
        self.assertEqual(self.state_field(1), (nvml.NVML_ERROR_NOT_SUPPORTED, 0))
        old = (ctypes.c_char * 64)(*(b"." * 64))  # what NCCL asks for: its structure ends after 36 or 52 bytes
        self.assertEqual(ctypes.CDLL("libnvidia-ml.so.1").nvmlDeviceGetNvLinkRemotePciInfo(self.first, 0, old), nvml.NVML_SUCCESS)
        self.assertEqual((old.raw[:16], old.raw[36:]), (b"FFFFFFF:FFFF:FF\0", b"." * 28))
        self.refused(nvml.NVMLError_NotSupported, nvml.nvmlDeviceGetNvLinkState, self.first, 1)
        self.refused(nvml.NVMLError_InvalidArgument, nvml.nvmlDeviceGetNvLinkState, self.first, 99)

    def state_field(self, link):
        field = nvml.nvmlDeviceGetFieldValues(self.first, [(nvml.NVML_FI_DEV_NVLINK_GET_STATE, link)])[0]
        return field.nvmlReturn, field.value.uiVal

    def test_gpus_are_far_from_each_other_and_from_here(self):
        self.refused(nvml.NVMLError_InvalidArgument, nvml.nvmlDeviceGetP2PStatus, self.first, self.second, 99)
        self.assertEqual(nvml.nvmlDeviceGetTopologyCommonAncestor(self.first, self.second), nvml.NVML_TOPOLOGY_SYSTEM)
        self.assertEqual(nvml.nvmlDeviceGetTopologyCommonAncestor(self.first, self.first), nvml.NVML_TOPOLOGY_INTERNAL)
        index_of = lambda handles: [nvml.nvmlDeviceGetIndex(handle) for handle in handles]
        nearest = nvml.nvmlDeviceGetTopologyNearestGpus
        self.assertEqual(index_of(nearest(self.first, nvml.NVML_TOPOLOGY_SYSTEM)), [1])
        self.assertEqual(nearest(self.first, nvml.NVML_TOPOLOGY_HOSTBRIDGE), [])
        self.assertEqual(index_of(nvml.nvmlSystemGetTopologyGpuSet(0)), [0, 1])
        self.assertEqual(nvml.nvmlSystemGetHicVersion(), [])

    def test_what_kind_of_gpu_it_is(self):
        self.assertEqual(nvml.nvmlDeviceGetBrand(self.first), nvml.NVML_BRAND_NVIDIA)
        boards = {nvml.nvmlDeviceGetBoardId(handle) for handle in (self.first, self.second)}
        self.assertEqual(len(boards), 2)
        self.assertEqual(nvml.nvmlDeviceGetMultiGpuBoard(self.first), 0)
        self.assertEqual(nvml.nvmlDeviceGetMinorNumber(self.second), 1)
        self.assertEqual(nvml.nvmlDeviceGetVirtualizationMode(self.first), nvml.NVML_GPU_VIRTUALIZATION_MODE_NONE)
        self.assertEqual(list(nvml.nvmlDeviceGetGspFirmwareMode(self.first)), [0, 0])
        self.assertEqual(nvml.nvmlDeviceGetNumGpuCores(self.first), 132 * 128)  # an H100 has 132 multiprocessors
        self.assertEqual(nvml.nvmlDeviceGetMemoryBusWidth(self.first), 5120)
        self.assertEqual(nvml.nvmlDeviceGetPciInfo(self.first).pciDeviceId & 0xffff, 0x10de)

    def test_how_it_is_set_up(self):
        self.assertEqual(nvml.nvmlDeviceGetPersistenceMode(self.first), 1)
        self.assertEqual(nvml.nvmlDeviceGetComputeMode(self.first), nvml.NVML_COMPUTEMODE_DEFAULT)
        self.assertEqual(nvml.nvmlDeviceGetPerformanceState(self.first), nvml.NVML_PSTATE_0)
        self.assertEqual(nvml.nvmlDeviceGetSupportedPerformanceStates(self.first), [nvml.NVML_PSTATE_0])
        self.assertEqual(nvml.nvmlDeviceGetEccMode(self.first), [0, 0])
        self.assertEqual(nvml.nvmlDeviceGetAccountingMode(self.first), 0)
        most = nvml.nvmlDeviceGetMaxClockInfo(self.first, nvml.NVML_CLOCK_SM)
        self.assertEqual(most, 1980)
        memory = nvml.nvmlDeviceGetSupportedMemoryClocks(self.first)
        self.assertEqual(memory, [nvml.nvmlDeviceGetMaxClockInfo(self.first, nvml.NVML_CLOCK_MEM)])
        self.assertEqual(nvml.nvmlDeviceGetSupportedGraphicsClocks(self.first, memory[0]), [most])
        self.refused(nvml.NVMLError_NotFound, nvml.nvmlDeviceGetSupportedGraphicsClocks, self.first, 1)

    def test_an_emulated_gpu_has_nothing_to_repair(self):
        self.assertEqual(nvml.nvmlDeviceGetPcieReplayCounter(self.first), 0)
        self.assertEqual(nvml.nvmlDeviceGetRetiredPages(self.first, 0), [])
        self.assertEqual(nvml.nvmlDeviceGetRetiredPagesPendingStatus(self.first), 0)
        self.assertEqual(tuple(nvml.nvmlDeviceGetRemappedRows(self.first)), (0, 0, 0, 0))
        self.assertEqual(list(nvml.nvmlDeviceGetRepairStatus(self.first)), [0, 0])

    def test_each_field_answers_for_itself(self):
        fields = nvml.nvmlDeviceGetFieldValues(
            self.first, [nvml.NVML_FI_DEV_ECC_CURRENT, nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 9999])
        self.assertEqual([field.nvmlReturn for field in fields],
                         [nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_SUPPORTED])
        self.assertEqual(fields[0].value.uiVal, 0)
        self.assertEqual(fields[2].value.uiVal, 1)  # to a switch
        self.assertGreater(fields[0].timestamp, 0)

    def test_processes_are_listed_in_the_newest_form(self):
        processes = nvml.c_nvmlProcessDetailList_v1_t()
        processes.version, processes.mode = nvml.nvmlProcessDetailList_v1, 0
        library = ctypes.CDLL("libnvidia-ml.so.1")
        self.assertEqual(library.nvmlDeviceGetRunningProcessDetailList(self.first, ctypes.byref(processes)), nvml.NVML_SUCCESS)
        self.assertEqual(processes.numProcArrayEntries, 0)
        processes.version = 1
        self.assertEqual(library.nvmlDeviceGetRunningProcessDetailList(self.first, ctypes.byref(processes)),
                         nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)

    def test_what_only_hardware_has_is_not_made_up(self):
        for question in (nvml.nvmlDeviceGetPowerUsage, nvml.nvmlDeviceGetPowerManagementLimit, nvml.nvmlDeviceGetSerial,
                         nvml.nvmlDeviceGetVbiosVersion, nvml.nvmlDeviceGetTotalEnergyConsumption,
                         nvml.nvmlDeviceGetCurrPcieLinkWidth):
            with self.subTest(question.__name__):
                self.refused(nvml.NVMLError_NotSupported, question, self.first)
        self.refused(nvml.NVMLError_NotSupported, nvml.nvmlDeviceGetTemperature, self.first, 0)
        self.refused(nvml.NVMLError_NotSupported, nvml.nvmlDeviceGetClockInfo, self.first, nvml.NVML_CLOCK_SM)


if __name__ == "__main__":
    unittest.main()

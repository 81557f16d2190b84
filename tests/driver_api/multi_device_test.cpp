// More than one device, where there are: otherwise these have nothing to say and pass with a note.
#include "gpu.hpp"

using namespace driver_api;

namespace {
bool has_two_devices() {
    int count = 0;
    CU_OK(cu.cuInit(0));
    CU_OK(cu.cuDeviceGetCount(&count));
    if (count < 2) WARN("only one device: nothing tested");
    return count >= 2;
}
}  // namespace

TEST_CASE("devices have contexts, memory and code of their own", "[devices]") {
    if (!has_two_devices()) return;
    Gpu second(1);
    Module second_module;
    Memory there(std::vector<int>{0});
    CUdevice device = -1;
    CU_OK(cu.cuCtxGetDevice(&device));
    CHECK(device == 1);
    {
        Gpu first(0);
        Module module;
        Memory here(std::vector<int>{0});
        CHECK(first.context != second.context);
        CU_OK(launch(module.function("store"), nullptr, here.address, 10));
        CHECK(here.first<int>() == 10);
        int ordinal = -1;
        CU_OK(cu.cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there.address));
        CHECK(ordinal == 1);
    }
    CU_OK(cu.cuCtxSetCurrent(second.context));
    CU_OK(launch(second_module.function("store"), nullptr, there.address, 11));
    CHECK(there.first<int>() == 11);
}

TEST_CASE("memory is copied from one device to another", "[devices]") {
    if (!has_two_devices()) return;
    Gpu second(1);
    Memory there(std::vector<int>(1000, 0));
    {
        Gpu first(0);
        Memory here(std::vector<int>(1000, 77));
        CU_OK(cu.cuMemcpyPeer(there.address, second.context, here.address, first.context, 4000));
        CU_OK(cu.cuCtxSynchronize());
        int access = 99;
        CU_OK(cu.cuDeviceCanAccessPeer(&access, 0, 1));
        CHECK((access == 0 || access == 1));
    }
    CU_OK(cu.cuCtxSetCurrent(second.context));
    CHECK(there.read<int>(1000) == std::vector<int>(1000, 77));
}

TEST_CASE("no time passes between the events of two devices", "[devices]") {
    if (!has_two_devices()) return;
    Gpu first(0);
    Event start;
    CU_OK(cu.cuEventRecord(start, nullptr));
    CU_OK(cu.cuEventSynchronize(start));
    float milliseconds = -1;
    {
        Gpu second(1);
        Event end;
        CU_OK(cu.cuEventRecord(end, nullptr));
        CU_OK(cu.cuEventSynchronize(end));
        CU_CHECK(cu.cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
    }
    CU_OK(cu.cuCtxSetCurrent(first.context));
    CU_OK(cu.cuEventElapsedTime(&milliseconds, start, start));
    CHECK(milliseconds == 0);
}

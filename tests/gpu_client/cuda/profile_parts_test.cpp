// The parts of a profile that need no server: the buffer's limits, the file that is whole at any time; and a traced line.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gpu_client/cuda/profile_buffer.hpp"
#include "gpu_client/cuda/profile_file.hpp"
#include "gpu_client/cuda/profile_text.hpp"
#include "gpu_client/cuda/trace.hpp"
#include "tests/support/catch.hpp"

using namespace tnr;
using namespace tnr::cuda;
using Kind = ProfileEvent::Kind;

namespace {

struct Folder {
    std::string path = (std::filesystem::temp_directory_path() / "tnr-profile-XXXXXX").string();
    Folder() { REQUIRE(::mkdtemp(path.data())); }
    ~Folder() { std::filesystem::remove_all(path); }
};

nlohmann::json events_of(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return nlohmann::json::parse(text.str())["traceEvents"];  // strict
}

std::string traced(std::initializer_list<Argument> arguments, CUresult result = CUDA_SUCCESS, size_t size = 1000) {
    std::string line(size, '#');
    describe_call(line.data(), line.size(), "cuCall", arguments, result);
    return line.c_str();
}

}  // namespace

TEST_CASE("a full profile buffer drops events and says so, but never the end of a slice", "[profile]") {
    ProfileBuffer buffer;
    size_t slices = 0;
    while (buffer.add({Kind::begin, 1, 0, "slice"})) ++slices;
    CHECK(slices == ProfileBuffer::events_max / 2);
    CHECK(!buffer.add({Kind::appended, 1, 0}));
    for (size_t i = 0; i < slices; ++i) REQUIRE(buffer.add({Kind::end, 1, 0}));
    auto all = buffer.take();
    CHECK(all.events.size() == ProfileBuffer::events_max);
    CHECK(all.dropped == 2);
    CHECK(buffer.add({Kind::begin, 1, 0, "slice"}));
    CHECK(buffer.take().dropped == 0);
}

TEST_CASE("a worker that says more than it may is cut", "[profile]") {
    ProfileBuffer buffer;
    std::vector<wire::ProfiledRecord> records(wire::profiled_piece_max);
    for (int i = 0; i < 100; ++i) buffer.add_worker(records);
    auto all = buffer.take();
    CHECK(all.worker.size() == 2 * wire::profiled_records_max);
    CHECK(all.worker.size() + all.dropped == 100 * wire::profiled_piece_max);
}

TEST_CASE("a profile is strict JSON after each addition", "[profile]") {
    Folder folder;
    auto file = ProfileFile::create(folder.path + "/out.json");
    REQUIRE(file);
    auto before = events_of(file->path()).size();
    for (size_t i = 1; i < 4; ++i) {
        REQUIRE(file->add("{\"ph\":\"i\",\"name\":" + json_text("a \"\\\n\xff name") + "},\n"));
        CHECK(events_of(file->path()).size() == before + i);
    }
}

TEST_CASE("a file that is there is left alone", "[profile]") {
    Folder folder;
    std::string path = folder.path + "/out.json", mine = folder.path + "/out." + std::to_string(::getpid()) + ".json";
    REQUIRE(ProfileFile::create(path));
    auto second = ProfileFile::create(path);
    REQUIRE(second);
    CHECK(second->path() == mine);
    auto third = ProfileFile::create(path);
    REQUIRE(!third);
    CHECK(third.error().what.find(mine) != std::string::npos);
}

TEST_CASE("a full disk keeps what is in the file", "[profile]") {
    rlimit before{}, small{4096, RLIM_INFINITY};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    small.rlim_max = before.rlim_max;
    auto handler = ::signal(SIGXFSZ, SIG_IGN);  // EFBIG instead
    Folder folder;
    auto file = ProfileFile::create(folder.path + "/out.json");
    REQUIRE(file);
    REQUIRE(file->add("{\"ph\":\"i\"},\n"));
    auto kept = events_of(file->path()).size();
    ::setrlimit(RLIMIT_FSIZE, &small);
    bool added = file->add("{\"ph\":\"i\",\"name\":\"" + std::string(10'000, 'x') + "\"},\n");
    ::setrlimit(RLIMIT_FSIZE, &before);
    ::signal(SIGXFSZ, handler);
    CHECK(!added);
    CHECK(events_of(file->path()).size() == kept);
}

TEST_CASE("slices that are open when the program ends are closed", "[profile]") {
    ProfileText text;
    ProfileBuffer buffer;
    buffer.add({Kind::begin, 7, 1000, "outer"});
    buffer.add({Kind::begin, 7, 2000, "wait", "a reply"});
    text.add(buffer.take(), {});
    text.close();
    auto written = text.take();
    auto events = nlohmann::json::parse("[" + written.substr(0, written.size() - 2) + "]");
    CHECK(std::count_if(events.begin(), events.end(), [](auto& event) { return event["ph"] == "B"; }) == 2);
    CHECK(std::count_if(events.begin(), events.end(), [](auto& event) { return event["ph"] == "E"; }) == 2);
}

TEST_CASE("kernels of a stream do not overlap when the clocks are compared anew", "[profile]") {
    ProfileText text;
    text.take();
    ProfileBuffer buffer;
    wire::ProfiledRecord kernel{wire::ProfiledKind::kernel, 0, 1, 1, 10'000, 5'000, 16, 9};
    buffer.add_kernel(9, "saxpy");
    buffer.add_worker({&kernel, 1});
    text.add(buffer.take(), {});
    kernel.begin_ns = 16'000, kernel.number = 2;
    buffer.add_worker({&kernel, 1});
    WorkerClock clock;
    clock.compare(0, 0, 3'000);
    text.add(buffer.take(), clock);  // would begin at 13 us
    auto written = text.take();
    CHECK(written.find(R"("ts":10.000,"dur":5.000,"name":"saxpy")") != std::string::npos);
    CHECK(written.find(R"("ts":15.000,"dur":3.000,"name":"saxpy")") != std::string::npos);
}

TEST_CASE("the quickest round trip tells the worker's clock, until it is too old", "[profile]") {
    WorkerClock clock;
    clock.compare(1'000'000, 1'000'100, 5'000'050);
    CHECK(clock.offset_ns() == 4'000'000);
    clock.compare(1'001'000, 1'101'000, 5'060'000);  // slow: it may be wrong by 50 us
    CHECK(clock.offset_ns() == 4'000'000);
    clock.compare(2'000'001'000, 2'000'101'000, 2'004'061'000);  // but by now the clocks may have drifted by 100
    CHECK(clock.offset_ns() == 4'010'000);
    clock.compare(2'000'200'000, 2'000'200'010, 2'004'200'007);
    CHECK(clock.offset_ns() == 4'000'002);
}

TEST_CASE("a traced call shows values as a reader wants them", "[trace]") {
    CHECK(traced({}) == "cuCall() = CUDA_SUCCESS");
    CHECK(traced({Argument::of("i", -3), Argument::of("n", size_t{1} << 40), Argument::of("e", CU_LIMIT_STACK_SIZE)}) ==
          "cuCall(i=-3, n=1099511627776, e=0) = CUDA_SUCCESS");
    CHECK(traced({Argument::of("c", static_cast<unsigned char>(200)), Argument::of("f", 0.5F)}) ==
          "cuCall(c=200, f=0.5) = CUDA_SUCCESS");
    CHECK(traced({Argument::of("h", reinterpret_cast<CUstream>(0x10)), Argument::address("d", CUdeviceptr{0xabc}),
                  Argument::of("z", static_cast<void*>(nullptr))}) == "cuCall(h=0x10, d=0xabc, z=null) = CUDA_SUCCESS");
    CHECK(traced({Argument::of("s", CUipcMemHandle{})}) == "cuCall(s={...}) = CUDA_SUCCESS");
    CHECK(traced({Argument::of("t", "a\"b\n\t")}) == "cuCall(t=\"a\\\"b\\n?\") = CUDA_SUCCESS");
    CHECK(traced({Argument::of("t", static_cast<const char*>(nullptr))}) == "cuCall(t=null) = CUDA_SUCCESS");
}

TEST_CASE("an out-parameter shows what was written, once the call has succeeded", "[trace]") {
    int number = -7;
    CUdeviceptr address = 0x1000;
    const char* text = "name";
    char buffer[] = "H100";
    CHECK(traced({Argument::out("n", &number), Argument::out_address("d", &address), Argument::out("t", &text),
                  Argument::out_text("b", buffer)}) ==
          "cuCall(*n=-7, *d=0x1000, *t=\"name\", *b=\"H100\") = CUDA_SUCCESS");
    CHECK(traced({Argument::out("n", static_cast<int*>(nullptr))}) == "cuCall(n=null) = CUDA_SUCCESS");
    // May lie anywhere: the call may have failed because of it.
    CHECK(traced({Argument::out("n", reinterpret_cast<int*>(0x8))}, CUDA_ERROR_INVALID_VALUE) ==
          "cuCall(n=0x8) = CUDA_ERROR_INVALID_VALUE");
}

TEST_CASE("a traced line that is too long is cut", "[trace]") {
    auto line = traced({Argument::of("first", 1), Argument::of("second", 2)}, static_cast<CUresult>(9), 20);
    CHECK(line == "cuCall(first=1, sec");
    CHECK(traced({}, static_cast<CUresult>(9)) == "cuCall() = 9");
}

// What one more of something costs: threads, modules, streams, devices.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/bench/rows.hpp"

namespace tnr::bench {
namespace {

struct Point {
    double x, y;
};

// By least squares; y grows by so much for one more x.
double slope(const std::vector<Point>& points) {
    double n = static_cast<double>(points.size()), x = 0, y = 0, xx = 0, xy = 0;
    for (auto& point : points) x += point.x, y += point.y, xx += point.x * point.x, xy += point.x * point.y;
    return (n * xy - x * y) / (n * xx - x * x);
}

void tell(const std::string& what, const std::string& thing, const std::vector<Point>& points) {
    for (auto& point : points) figure(what + ", " + std::to_string(static_cast<int>(point.x)), point.y * 1e6, "us");
    figure(what + ", one more " + thing, slope(points) * 1e6, "us", "flat");
}

// `count` threads make `each` calls at once: seconds per call of all of them together.
double with_threads(int count, int each, const std::function<void()>& begin, const std::function<void()>& call) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> all;
    for (int i = 0; i < count; ++i)
        all.emplace_back([&] {
            begin();
            ++ready;
            go.wait(false);
            for (int done = 0; done < each; ++done) call();
        });
    while (ready < count) std::this_thread::yield();
    return seconds([&] {
               go = true;
               go.notify_all();
               for (auto& one : all) one.join();
           }) /
           (static_cast<double>(count) * each);
}

}  // namespace

void threads(const Options& options) {
    auto program = warm_program();
    std::vector<Point> launch, wait;
    auto begin = [&] { CU(cuCtxSetCurrent, program.context); };
    for (int count : {1, 2, 4, 8, 16}) {
        launch.push_back(
            {double(count), with_threads(count, options.times(40'000, 50) / count, begin, [&] { program.launch(1); })});
        program.synchronize();
        wait.push_back({double(count), with_threads(count, options.times(160, 16) / count, begin, [&] {
                            program.launch(1);
                            program.synchronize();
                        })});
    }
    tell("launch of all threads", "thread", launch);
    tell("launch + synchronize of all threads", "thread", wait);
}

void modules(const Options& options) {
    auto program = warm_program();
    std::vector<CUfunction> functions;
    std::vector<Point> load, launch;
    int launches = options.times(20'000, 50);
    for (int count : {1, 16, 64, 256}) {
        if (options.quick && count > 16) break;
        auto more = count - static_cast<int>(functions.size());
        auto took = seconds([&] {
            for (int i = 0; i < more; ++i) {
                Program another;
                another.load();
                functions.push_back(another.nothing);
            }
        });
        load.push_back({double(count), took / more});
        program.synchronize();
        auto all = seconds([&] {
            for (int i = 0; i < launches; ++i)
                Program::launch_of(functions[static_cast<size_t>(i) % functions.size()], nullptr);
        });
        launch.push_back({double(count), all / launches});
        program.synchronize();
    }
    tell("load of a module", "module", load);
    tell("launch of modules in turn", "module", launch);
}

void streams(const Options& options) {
    auto program = warm_program();
    std::vector<CUstream> made;
    std::vector<Point> launch, wait;
    int launches = options.times(20'000, 50), waits = options.times(50, 2);
    for (int count : {1, 16, 64, 256}) {
        while (static_cast<int>(made.size()) < count) {
            CUstream stream = nullptr;
            CU(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
            made.push_back(stream);
        }
        program.synchronize();
        size_t next = 0;
        auto one = [&] { program.launch(1, made[next++ % made.size()]); };
        launch.push_back({double(count), seconds([&] {
                                             for (int i = 0; i < launches; ++i) one();
                                         }) / launches});
        program.synchronize();
        wait.push_back({double(count), median_s(waits, [&] {
                            one();
                            CU(cuStreamSynchronize, made[(next - 1) % made.size()]);
                        })});
    }
    tell("launch into streams in turn", "stream", launch);
    tell("launch + synchronize of streams in turn", "stream", wait);
}

// All devices that there are.
void devices(const Options& options) {
    int found = 0;
    CU(cuInit, 0);
    CU(cuDeviceGetCount, &found);
    std::vector<Program> programs(static_cast<size_t>(found));
    std::vector<Point> launch, wait;
    int launches = options.times(20'000, 50), waits = options.times(50, 2);
    for (int count = 1; count <= found; ++count) {
        auto& newest = programs[static_cast<size_t>(count) - 1];
        newest.start(count - 1);
        newest.load();
        size_t next = 0;
        auto one = [&] {
            auto& program = programs[next++ % static_cast<size_t>(count)];
            CU(cuCtxSetCurrent, program.context);
            program.launch(1);
        };
        for (int i = 0; i < launches; ++i) one();
        launch.push_back({double(count), seconds([&] {
                                             for (int i = 0; i < launches; ++i) one();
                                         }) / launches});
        newest.synchronize();
        wait.push_back({double(count), median_s(waits, [&] {
                            one();
                            CU(cuCtxSynchronize, );
                        })});
    }
    figure("devices", found, "");
    if (found < 2) return;
    tell("launch on devices in turn", "device", launch);
    tell("launch + synchronize on devices in turn", "device", wait);
}

}  // namespace tnr::bench

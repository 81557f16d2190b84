// Random graphs of copies from and to overlapping parts of the program's memory, and of functions that change it, against
// doing one step after the other here.
#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <set>

#include "graph_host_copies.hpp"

using namespace driver_api;

namespace {

const unsigned count = 32;  // words, here and there

enum class Kind { bring, fetch, call };

// Rows of words; the device has them one behind the other.
struct Step {
    Kind kind = Kind::call;
    unsigned host = 0, device = 0, words = 1, rows = 1, pitch = 1;

    unsigned span() const { return (rows - 1) * pitch + words; }
};

// What a chain of steps works on.
struct World {
    Words host = Words(count), there = Words(count);

    void change(unsigned first) {
        for (unsigned i = first; i < count; i += 3) host[i] = host[i] * 3 + first;
    }
    void take(const Step& step) {
        if (step.kind == Kind::call) return change(step.host);
        for (unsigned row = 0; row < step.rows; ++row) {
            auto here = host.begin() + step.host + row * step.pitch;
            auto away = there.begin() + step.device + row * step.words;
            if (step.kind == Kind::bring)
                std::copy(here, here + step.words, away);
            else
                std::copy(away, away + step.words, here);
        }
    }
};

class Chain {
public:
    Chain(std::mt19937& random, bool with_rows, bool with_functions) : random_(random) {
        steps_.resize(2 + below(7));
        for (auto& step : steps_) {
            if (with_functions && below(4) == 0) {
                step.host = below(3);
                continue;
            }
            step.kind = below(2) == 0 ? Kind::bring : Kind::fetch;
            step.words = 1 + below(8);
            if (with_rows && below(2) == 0)
                step.words = 1 + below(3), step.rows = 2 + below(3), step.pitch = step.words + 1 + below(4);
            step.host = below(count - step.span()), step.device = below(count - step.words * step.rows);
        }
    }
    // A GPU elsewhere may refuse chains in which different rows lie between the same two words.
    bool may_be_refused() const {
        std::set<std::array<unsigned, 4>> rows;
        std::set<std::array<unsigned, 2>> spans;
        for (auto& step : steps_)
            if (step.kind != Kind::call) {
                rows.insert({step.host, step.words, step.rows, step.rows > 1 ? step.pitch : 0});
                spans.insert({step.host, step.span()});
            }
        return rows.size() != spans.size();
    }
    // Every `inside` steps are a graph inside the graph.
    void add_to(CUgraph graph, size_t inside = 0) {
        CUgraphNode last = nullptr;
        auto after = [&] { return last ? std::vector{last} : std::vector<CUgraphNode>{}; };
        for (size_t i = 0; i < steps_.size();) {
            if (inside == 0) {
                last = add(graph, after(), steps_[i++]);
                continue;
            }
            Graph part;
            CUgraphNode previous = nullptr;
            for (size_t end = std::min(steps_.size(), i + inside); i < end; ++i)
                previous = add(part, previous ? std::vector{previous} : std::vector<CUgraphNode>{}, steps_[i]);
            auto before = after();
            CU_OK(cu.cuGraphAddChildGraphNode(&last, graph, before.data(), before.size(), part));
        }
    }
    Graph capture(CUstream stream) {
        begin_capture(stream);
        for (auto& step : steps_) {
            if (step.kind == Kind::call) {
                CU_OK(cu.cuLaunchHostFunc(stream, call_function, &function(step)));
                continue;
            }
            const auto wide = description(step);
            CUDA_MEMCPY2D copy{};
            copy.srcMemoryType = wide.srcMemoryType, copy.srcHost = wide.srcHost, copy.srcDevice = wide.srcDevice;
            copy.dstMemoryType = wide.dstMemoryType, copy.dstHost = wide.dstHost, copy.dstDevice = wide.dstDevice;
            copy.srcPitch = wide.srcPitch, copy.dstPitch = wide.dstPitch;
            copy.WidthInBytes = wide.WidthInBytes, copy.Height = wide.Height;
            CU_OK(cu.cuMemcpy2DAsync(&copy, stream));
        }
        return end_capture(stream);
    }
    void check(CUgraph graph, CUstream stream) {
        CUgraphExec exec = nullptr;
        auto result = cu.cuGraphInstantiate(&exec, graph, 0);
        if (result == CUDA_ERROR_NOT_SUPPORTED && may_be_refused()) return;
        REQUIRE(result == CUDA_SUCCESS);
        ++run;
        for (unsigned launch = 0; launch < 2; ++launch) {
            for (auto* words : {&world_.host, &world_.there})
                for (auto& one : *words) one = below(100'000);
            CU_OK(cu.cuMemcpyHtoD(memory_.address, world_.there.data(), count * word));
            World expected = world_;
            for (auto& step : steps_) expected.take(step);
            CU_OK(cu.cuGraphLaunch(exec, stream));
            CU_OK(cu.cuStreamSynchronize(stream));
            CHECK(world_.host == expected.host);
            CHECK(memory_.read<unsigned>(count) == expected.there);
        }
        CU_OK(cu.cuGraphExecDestroy(exec));
    }

    static inline unsigned run = 0;

private:
    unsigned below(unsigned limit) { return static_cast<unsigned>(random_() % limit); }
    CUDA_MEMCPY3D description(const Step& step) {
        const auto address = memory_.address + step.device * word;
        auto* host = world_.host.data() + step.host;
        const bool in = step.kind == Kind::bring;
        auto copy = in ? to_device(address, host, step.words * word) : to_host(host, address, step.words * word);
        copy.Height = step.rows;
        copy.srcPitch = (in && step.rows > 1 ? step.pitch : step.words) * word;
        copy.dstPitch = (!in && step.rows > 1 ? step.pitch : step.words) * word;
        return copy;
    }
    std::function<void()>& function(const Step& step) {
        functions_.push_back(
            std::make_unique<std::function<void()>>([this, first = step.host] { world_.change(first); }));
        return *functions_.back();
    }
    CUgraphNode add(CUgraph graph, const std::vector<CUgraphNode>& after, const Step& step) {
        return step.kind == Kind::call ? add_function(graph, after, function(step))
                                       : add_copy(graph, after, description(step));
    }

    std::mt19937& random_;
    std::vector<Step> steps_;
    std::vector<std::unique_ptr<std::function<void()>>> functions_;
    World world_;
    Memory memory_{count * word};
};

}  // namespace

TEST_CASE("random copies from and to overlapping parts of pageable memory do what they do one by one",
          "[graph][capture]") {
    Gpu gpu;
    Stream stream;
    const bool rows = GENERATE(false, true), functions = GENERATE(false, true);
    CAPTURE(rows, functions);
    std::mt19937 random(1);
    Chain::run = 0;
    for (unsigned attempt = 0; attempt < 60; ++attempt) {
        CAPTURE(attempt);
        Chain chain(random, rows, functions);
        Graph graph = attempt % 2 != 0 ? chain.capture(stream) : Graph();
        if (attempt % 2 == 0) chain.add_to(graph, attempt % 3);
        chain.check(graph, stream);
    }
    CHECK(Chain::run > 50);
}

TEST_CASE("copies of rows with gaps bring what another has changed in part", "[graph]") {
    Gpu gpu;
    Stream stream;
    Words host{1, 2, 3, 4, 5, 6, 7, 8};
    Memory part(Words{70, 80, 90, 100}), whole(4 * word);
    Graph graph;
    auto fetched = add_copy(graph, {}, to_host(host.data(), part.address, 3 * word));
    auto rows = to_device(whole.address, host.data(), 2 * word);
    rows.Height = 2, rows.srcPitch = 4 * word, rows.dstPitch = 2 * word;
    add_copy(graph, {fetched}, rows);
    GraphExec(graph).run(stream);
    CHECK(whole.read<unsigned>(4) == Words{70, 80, 5, 6});
    CHECK(host == Words{70, 80, 90, 4, 5, 6, 7, 8});
}

// What was there before would be wrong.
TEST_CASE("different rows between the same words, and a function, are copied as they are or refused", "[graph]") {
    Gpu gpu;
    Stream stream;
    Words host{1, 2, 3, 4};
    Memory part(Words{70, 80, 90, 100}), whole(4 * word);
    std::function<void()> twice = [&] {
        for (auto& one : host) one *= 2;
    };
    Graph graph;
    auto rows = to_host(host.data(), part.address, word);
    rows.Height = 2, rows.srcPitch = word, rows.dstPitch = 3 * word;
    auto fetched = add_copy(graph, {}, rows);
    auto brought = add_copy(graph, {fetched}, to_device(whole.address, host.data(), 4 * word));
    add_function(graph, {brought}, twice);
    CUgraphExec exec = nullptr;
    auto result = cu.cuGraphInstantiate(&exec, graph, 0);
    if (result == CUDA_ERROR_NOT_SUPPORTED) return;
    REQUIRE(result == CUDA_SUCCESS);
    CU_OK(cu.cuGraphLaunch(exec, stream));
    CU_OK(cu.cuStreamSynchronize(stream));
    CHECK(whole.read<unsigned>(4) == Words{70, 2, 3, 80});
    CHECK(host == Words{140, 4, 6, 160});
    CU_OK(cu.cuGraphExecDestroy(exec));
}

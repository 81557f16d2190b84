// Graphs with many copies from and to the program's memory, and instances whose copies change.
#include <algorithm>
#include <functional>
#include <numeric>

#include "graph_host_copies.hpp"

using namespace driver_api;

TEST_CASE("thousands of captured host copies, and a function between them", "[graph][capture]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING);
    const unsigned count = 1500;
    Memory memory(count * word);
    Words host(count), back(count);
    std::iota(host.begin(), host.end(), 0u);
    std::function<void()> twice = [&] {
        for (auto& one : host) one *= 2;
    };
    begin_capture(stream);
    CU_OK(cu.cuLaunchHostFunc(stream, call_function, &twice));
    for (unsigned i = 0; i < count; ++i) {
        CU_OK(cu.cuMemcpyHtoDAsync(memory.address + i * word, &host[i], word, stream));
        CU_OK(cu.cuMemcpyDtoHAsync(&back[i], memory.address + i * word, word, stream));
    }
    auto graph = end_capture(stream);
    GraphExec exec(graph);
    for (unsigned round = 1; round <= 2; ++round) {
        exec.run(stream);
        CHECK(back[count - 1] == (count - 1) << round);
        CHECK(back == host);
    }
}

TEST_CASE("a function sees hundreds of small captured copies before it", "[graph][capture]") {
    Gpu gpu;
    Stream stream(CU_STREAM_NON_BLOCKING);
    const unsigned count = 400;
    Words values(count), back(2 * count, 0u);
    std::iota(values.begin(), values.end(), 7u);
    Memory memory(values);
    unsigned sum = 0;
    std::function<void()> add_up = [&] { sum = std::accumulate(back.begin(), back.end(), 0u); };
    begin_capture(stream);
    for (unsigned i = 0; i < count; ++i)  // apart, so that none is with its neighbour
        CU_OK(cu.cuMemcpyDtoHAsync(&back[2 * i], memory.address + i * word, word, stream));
    CU_OK(cu.cuLaunchHostFunc(stream, call_function, &add_up));
    auto graph = end_capture(stream);
    GraphExec exec(graph);
    for (int round = 0; round < 2; ++round) {
        sum = 0;
        exec.run(stream);
        CHECK(sum == std::accumulate(values.begin(), values.end(), 0u));
    }
}

TEST_CASE("an instance's copies get other host memory, and its functions follow", "[graph]") {
    Gpu gpu;
    Stream stream;
    const Words values{3, 1, 4, 1};
    Memory memory(values), other(4 * word);
    Words first(4), second(4), third(4), *now = &first;
    std::function<void()> twice = [&] {
        for (auto& one : *now) one *= 2;
    };
    const Words doubled{6, 2, 8, 2};

    SECTION("a function between two copies of one memory") {
        Graph graph;
        auto fetched = add_copy(graph, {}, to_host(first.data(), memory.address, 4 * word));
        add_function(graph, {fetched}, twice);
        GraphExec exec(graph), unchanged(graph);
        auto copy = to_host(second.data(), memory.address, 4 * word);
        CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, fetched, &copy, gpu.context));
        now = &second;
        exec.run(stream);
        CHECK(second == doubled);
        CHECK(first == Words(4));
        now = &first;
        unchanged.run(stream);
        CHECK(first == doubled);
        copy = to_host(third.data(), memory.address, 4 * word);
        CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, fetched, &copy, gpu.context));
        now = &third;
        exec.run(stream);
        CHECK(third == doubled);
    }
    SECTION("a function before a copy from the host") {
        Graph graph;
        auto filled = add_function(graph, {}, twice);
        auto brought = add_copy(graph, {filled}, to_device(other.address, first.data(), 4 * word));
        GraphExec exec(graph), unchanged(graph);
        first = second = values;
        auto copy = to_device(other.address, second.data(), 4 * word);
        CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, brought, &copy, gpu.context));
        now = &second;
        exec.run(stream);
        CHECK(other.read<unsigned>(4) == doubled);
        CHECK(first == values);
        now = &first;
        first[0] = 50;
        unchanged.run(stream);
        CHECK(other.read<unsigned>(4) == Words{100, 2, 8, 2});
    }
    SECTION("of a captured graph, twice") {
        begin_capture(stream);
        CU_OK(cu.cuMemcpyDtoHAsync(first.data(), memory.address, 4 * word, stream));
        CU_OK(cu.cuLaunchHostFunc(stream, call_function, &twice));
        auto graph = end_capture(stream);
        GraphExec exec(graph);
        auto nodes = graph.nodes();
        auto fetched = *std::find_if(nodes.begin(), nodes.end(),
                                     [](auto node) { return type_of(node) == CU_GRAPH_NODE_TYPE_MEMCPY; });
        for (auto* to : {&second, &third}) {
            auto copy = to_host(to->data(), memory.address, 4 * word);
            CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, fetched, &copy, gpu.context));
            now = to;
            exec.run(stream);
            CHECK(*to == doubled);
        }
        CHECK(first == Words(4));
    }
    SECTION("of a clone") {
        Graph graph;
        auto fetched = add_copy(graph, {}, to_host(first.data(), memory.address, 4 * word));
        add_function(graph, {fetched}, twice);
        CUgraph cloned = nullptr;
        CU_OK(cu.cuGraphClone(&cloned, graph));
        Graph clone(cloned);
        CUgraphNode node = nullptr;
        CU_OK(cu.cuGraphNodeFindInClone(&node, fetched, clone));
        GraphExec exec(clone);
        auto copy = to_host(second.data(), memory.address, 4 * word);
        CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, node, &copy, gpu.context));
        now = &second;
        exec.run(stream);
        CHECK(second == doubled);
        CHECK(first == Words(4));
    }
}

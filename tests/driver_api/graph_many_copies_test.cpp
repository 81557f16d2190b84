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
    SECTION("of another size, and another function sees what the first one sees") {
        const Words more{3, 1, 4, 1, 5, 9};
        Memory longer(more);
        Words sizeable(6), seen;
        Graph graph;
        auto fetched = add_copy(graph, {}, to_host(first.data(), memory.address, 4 * word));
        auto also = add_copy(graph, {fetched}, to_host(third.data(), memory.address, 2 * word));
        auto node = add_function(graph, {also}, twice);
        add_copy(graph, {node}, to_device(other.address, first.data(), 4 * word));
        GraphExec exec(graph), unchanged(graph);
        auto copy = to_host(sizeable.data(), longer.address, 6 * word);
        CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, fetched, &copy, gpu.context));
        now = &sizeable;
        exec.run(stream);
        CHECK(sizeable == Words{6, 2, 8, 2, 10, 18});
        CHECK(third == Words{3, 1, 0, 0});
        std::function<void()> look = [&] { seen = {sizeable[0], sizeable[1], third[0], third[1]}; };
        CUDA_HOST_NODE_PARAMS given{call_function, &look};
        CU_OK(cu.cuGraphExecHostNodeSetParams(exec, node, &given));
        copy = to_host(sizeable.data(), longer.address + 4 * word, 2 * word);
        CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, fetched, &copy, gpu.context));
        std::fill(third.begin(), third.end(), 0u);  // not another Words: the graph knows its place
        exec.run(stream);
        CHECK(seen == Words{5, 9, 3, 1});
        CHECK(sizeable == Words{5, 9, 8, 2, 10, 18});
        now = &first;
        unchanged.run(stream);
        CHECK(first == doubled);
        CHECK(other.read<unsigned>(4) == doubled);
    }
    SECTION("a copy from the host of another size behind a function") {
        Graph graph;
        auto filled = add_function(graph, {}, twice);
        auto brought = add_copy(graph, {filled}, to_device(other.address, first.data(), 2 * word));
        GraphExec exec(graph);
        second = values;
        auto copy = to_device(other.address, second.data(), 4 * word);
        CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, brought, &copy, gpu.context));
        now = &second;
        exec.run(stream);
        CHECK(other.read<unsigned>(4) == doubled);
        copy = to_device(other.address + 3 * word, second.data() + 2, word);
        CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, brought, &copy, gpu.context));
        exec.run(stream);
        CHECK(other.read<unsigned>(4) == Words{6, 2, 8, 16});
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

TEST_CASE("a copy from pageable memory brings what a copy before it has changed of it", "[graph][capture]") {
    Gpu gpu;
    Stream stream;
    const unsigned count = 6;
    Words host(count), before(count);
    Memory part(Words{7, 8}), whole(count * word), early(count * word);
    auto check = [&](CUgraphExec exec) {
        for (unsigned round = 1; round <= 2; ++round) {
            std::iota(host.begin(), host.end(), 10 * round);
            before = host;
            CU_OK(cu.cuGraphLaunch(exec, stream));
            CU_OK(cu.cuStreamSynchronize(stream));
            const Words expected{10 * round, 7, 8, 10 * round + 3, 10 * round + 4, 10 * round + 5};
            CHECK(whole.read<unsigned>(count) == expected);
            CHECK(host == expected);
        }
    };
    auto add_all = [&](CUgraph graph) {
        auto fetched = add_copy(graph, {}, to_host(host.data() + 1, part.address, 2 * word));
        add_copy(graph, {fetched}, to_device(whole.address, host.data(), count * word));
        return fetched;
    };

    SECTION("of nodes, of a clone, and of what updates an instance") {
        Graph graph;
        add_all(graph);
        GraphExec exec(graph), again(graph);
        check(exec);
        check(again);
        CUgraph clone = nullptr;
        CU_OK(cu.cuGraphClone(&clone, graph));
        check(GraphExec(clone));
        CU_OK(cu.cuGraphDestroy(clone));
        Graph other;
        add_all(other);
        CUgraphExecUpdateResultInfo info{};
        CU_OK(cu.cuGraphExecUpdate(exec, other, &info));
        check(exec);
    }
    SECTION("of a captured stream, and behind a copy that brings a part before it is changed") {
        begin_capture(stream);
        CU_OK(cu.cuMemcpyHtoDAsync(early.address, host.data(), 2 * word, stream));
        CU_OK(cu.cuMemcpyDtoHAsync(host.data() + 1, part.address, 2 * word, stream));
        CU_OK(cu.cuMemcpyHtoDAsync(whole.address, host.data(), count * word, stream));
        check(GraphExec(end_capture(stream)));
        CHECK(early.read<unsigned>(2) == Words(before.begin(), before.begin() + 2));
    }
    SECTION("and brings a part of both when its node changes") {
        Graph graph;
        auto fetched = add_all(graph);
        check(GraphExec(graph));
        auto changed = to_host(host.data() + 4, part.address, 2 * word);
        CU_OK(cu.cuGraphMemcpyNodeSetParams(fetched, &changed));
        std::iota(host.begin(), host.end(), 1u);
        GraphExec(graph).run(stream);
        CHECK(whole.read<unsigned>(count) == Words{1, 2, 3, 4, 7, 8});
        CHECK(host == Words{1, 2, 3, 4, 7, 8});
    }
}

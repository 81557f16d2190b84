// Copies from and to the program's memory in graphs and instances that change: what is gone, disabled or replaced leaves the
// program's memory alone.
#include <algorithm>
#include <functional>

#include "graph_host_copies.hpp"

using namespace driver_api;

TEST_CASE("a function sees what a function before it has changed", "[graph]") {
    Gpu gpu;
    Stream stream;
    Memory memory(Words{1, 2, 3, 4});
    Words host(4);
    std::function<void()> twice = [&] {
        for (auto& one : host) one *= 2;
    };
    Graph graph;
    auto fetched = add_copy(graph, {}, to_host(host.data(), memory.address, 4 * word));
    auto first = add_function(graph, {fetched}, twice);
    add_function(graph, {first}, twice);
    GraphExec exec(graph);
    for (int i = 0; i < 2; ++i) {
        exec.run(stream);
        CHECK(host == Words{4, 8, 12, 16});
    }
}

TEST_CASE("a node that is disabled or destroyed copies nothing to the host", "[graph]") {
    Gpu gpu;
    Stream stream;
    Memory memory(Words{1, 2, 3, 4});
    Words host(4, 9), other(4, 9), seen;
    std::function<void()> look = [&] { seen = host; };
    Graph graph;
    auto fetched = add_copy(graph, {}, to_host(host.data(), memory.address, 4 * word));
    auto also = add_copy(graph, {fetched}, to_host(other.data(), memory.address, 4 * word));

    SECTION("destroyed") {
        CU_OK(cu.cuGraphDestroyNode(fetched));
        GraphExec(graph).run(stream);
        CHECK(host == Words(4, 9));
        CHECK(other == Words{1, 2, 3, 4});
    }
    SECTION("disabled, and enabled again") {
        GraphExec exec(graph);
        CU_OK(cu.cuGraphNodeSetEnabled(exec, fetched, 0));
        exec.run(stream);
        CHECK(host == Words(4, 9));
        CHECK(other == Words{1, 2, 3, 4});
        CU_OK(cu.cuGraphNodeSetEnabled(exec, fetched, 1));
        exec.run(stream);
        CHECK(host == Words{1, 2, 3, 4});
    }
    SECTION("disabled before a function") {
        add_function(graph, {also}, look);
        GraphExec exec(graph), unchanged(graph);
        CU_OK(cu.cuGraphNodeSetEnabled(exec, fetched, 0));
        exec.run(stream);
        CHECK(seen == Words(4, 9));
        CHECK(host == Words(4, 9));
        unchanged.run(stream);
        CHECK(seen == Words{1, 2, 3, 4});
        std::fill(host.begin(), host.end(), 8);  // not another Words: the graph knows its place
        CU_OK(cu.cuGraphNodeSetEnabled(exec, fetched, 1));
        exec.run(stream);
        CHECK(seen == Words{1, 2, 3, 4});
    }
    SECTION("a function that is destroyed is not called, nor waited for") {
        auto looked = add_function(graph, {also}, look);
        CU_OK(cu.cuGraphDestroyNode(looked));
        GraphExec(graph).run(stream);
        CHECK(seen.empty());
        CHECK(host == Words{1, 2, 3, 4});
    }
}

TEST_CASE("copies of graphs inside a graph change with it", "[graph]") {
    Gpu gpu;
    Stream stream;
    Memory memory(Words{1, 2, 3, 4});
    Words host(4, 9), other(4, 9);
    Graph inside, graph;
    add_copy(inside, {}, to_host(host.data(), memory.address, 4 * word));
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddChildGraphNode(&node, graph, nullptr, 0, inside));
    CUgraph child = nullptr;
    CU_OK(cu.cuGraphChildGraphNodeGetGraph(node, &child));
    CUgraphNode copy = nullptr;
    size_t one = 1;
    CU_OK(cu.cuGraphGetNodes(child, &copy, &one));

    SECTION("its node") {
        auto changed = to_host(other.data(), memory.address, 4 * word);
        CU_OK(cu.cuGraphMemcpyNodeSetParams(copy, &changed));
        GraphExec(graph).run(stream);
        CHECK(host == Words(4, 9));
        CHECK(other == Words{1, 2, 3, 4});
    }
    SECTION("a further node") {
        add_copy(child, {copy}, to_host(other.data(), memory.address, 4 * word));
        GraphExec(graph).run(stream);
        CHECK(host == Words{1, 2, 3, 4});
        CHECK(other == Words{1, 2, 3, 4});
    }
    SECTION("its node goes") {
        CU_OK(cu.cuGraphDestroyNode(copy));
        GraphExec(graph).run(stream);
        CHECK(host == Words(4, 9));
    }
    SECTION("an instance gets another, twice") {
        GraphExec exec(graph);
        exec.run(stream);
        CHECK(host == Words{1, 2, 3, 4});
        Words third(4, 9);
        for (auto* to : {&other, &third}) {
            Graph replacement;
            add_copy(replacement, {}, to_host(to->data(), memory.address, 4 * word));
            CU_OK(cu.cuGraphExecChildGraphNodeSetParams(exec, node, replacement));
            for (auto* words : {&host, &other, &third}) std::fill(words->begin(), words->end(), 9);
            exec.run(stream);
            CHECK(*to == Words{1, 2, 3, 4});
            CHECK(host == Words(4, 9));
            if (to == &third) CHECK(other == Words(4, 9));
        }
    }
}

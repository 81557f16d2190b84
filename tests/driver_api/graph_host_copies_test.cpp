// Graphs that copy from and to the program's memory, and functions between those copies: each sees what comes before it.
#include <algorithm>
#include <functional>
#include <numeric>

#include "graph_host_copies.hpp"

using namespace driver_api;

TEST_CASE("a copy from the host brings what a function before it has put there", "[graph][capture]") {
    Gpu gpu;
    Stream stream;  // one that waits for the null stream, in which memory is filled
    const size_t count = 5000;
    Memory memory(count * word);
    Words host(count), back(count);
    unsigned value = 0;
    std::function<void()> fill = [&] { std::fill(host.begin(), host.end(), ++value); };

    SECTION("of nodes") {
        Graph graph;
        auto filled = add_function(graph, {}, fill);
        auto brought = add_copy(graph, {filled}, to_device(memory.address, host.data(), count * word));
        add_copy(graph, {brought}, to_host(back.data(), memory.address, count * word));
        GraphExec exec(graph);
        for (unsigned round = 1; round <= 3; ++round) {
            exec.run(stream);
            CHECK(back == Words(count, round));
        }
    }
    SECTION("of a captured stream") {
        begin_capture(stream);
        CU_OK(cu.cuLaunchHostFunc(stream, call_function, &fill));
        CU_OK(cu.cuMemcpyHtoDAsync(memory.address, host.data(), count * word, stream));
        CU_OK(cu.cuMemcpyDtoHAsync(back.data(), memory.address, count * word, stream));
        auto graph = end_capture(stream);
        GraphExec exec(graph);
        for (unsigned round = 1; round <= 3; ++round) {
            exec.run(stream);
            CHECK(back == Words(count, round));
        }
    }
    SECTION("several launches behind each other, and a copy that the program waits for") {
        Graph graph;
        auto filled = add_function(graph, {}, fill);
        add_copy(graph, {filled}, to_device(memory.address, host.data(), count * word));
        GraphExec exec(graph);
        Memory other(count * word);
        for (int i = 0; i < 5; ++i) CU_OK(cu.cuGraphLaunch(exec, nullptr));
        CU_OK(cu.cuMemcpyHtoD(other.address, back.data(), count * word));
        CHECK(memory.read<unsigned>(count) == Words(count, 5));
    }
    SECTION("with an edge that came later") {
        Graph graph;
        auto brought = add_copy(graph, {}, to_device(memory.address, host.data(), count * word));
        auto filled = add_function(graph, {}, fill);
        CU_OK(cu.cuGraphAddDependencies(graph, &filled, &brought, nullptr, 1));
        GraphExec(graph).run(stream);
        CHECK(memory.read<unsigned>(count) == Words(count, 1));
    }
    SECTION("also with another function in its place") {
        Graph graph;
        auto filled = add_function(graph, {}, fill);
        add_copy(graph, {filled}, to_device(memory.address, host.data(), count * word));
        GraphExec exec(graph);
        std::function<void()> other = [&] { std::fill(host.begin(), host.end(), 77); };
        CUDA_HOST_NODE_PARAMS given{call_function, &other};
        CU_OK(cu.cuGraphExecHostNodeSetParams(exec, filled, &given));
        exec.run(stream);
        CHECK(memory.read<unsigned>(count) == Words(count, 77));
        CHECK(value == 0);
    }
}

TEST_CASE("functions between copies work on what is in the host's memory", "[graph]") {
    Gpu gpu;
    Stream stream;
    Memory memory(Words{1, 2, 3, 4});
    Words host(4);
    std::function<void()> twice = [&] {
        for (auto& one : host) one *= 2;
    };

    SECTION("one after the other") {
        Graph graph;
        auto fetched = add_copy(graph, {}, to_host(host.data(), memory.address, 4 * word));
        auto first = add_function(graph, {fetched}, twice);
        auto second = add_function(graph, {first}, twice);
        add_copy(graph, {second}, to_device(memory.address, host.data(), 4 * word));
        GraphExec exec(graph);
        for (int i = 0; i < 2; ++i) exec.run(stream);
        CHECK(memory.read<unsigned>(4) == Words{16, 32, 48, 64});
        CHECK(host == Words{16, 32, 48, 64});
    }
    SECTION("in a graph inside the graph") {
        Graph inside, graph;
        add_function(inside, {}, twice);
        CUgraphNode node = nullptr;
        auto fetched = add_copy(graph, {}, to_host(host.data(), memory.address, 4 * word));
        CU_OK(cu.cuGraphAddChildGraphNode(&node, graph, &fetched, 1, inside));
        add_copy(graph, {node}, to_device(memory.address, host.data(), 4 * word));
        GraphExec exec(graph);
        for (int i = 0; i < 2; ++i) exec.run(stream);
        CHECK(memory.read<unsigned>(4) == Words{4, 8, 12, 16});
    }
    SECTION("beside copies that they have nothing to do with") {
        Graph graph;
        std::function<void()> nothing = [] {};
        auto brought = add_copy(graph, {}, to_device(memory.address, host.data(), 4 * word));
        add_function(graph, {}, nothing);
        Module module;
        auto added = KernelNode(module.function("add"), memory.address, 1, 1).add(graph, {brought});
        add_copy(graph, {added}, to_host(host.data(), memory.address, 4 * word));
        GraphExec exec(graph);
        host = {10, 20, 30, 40};
        for (int i = 0; i < 3; ++i) exec.run(stream);
        CHECK(host == Words{13, 20, 30, 40});
        CHECK(host == memory.read<unsigned>(4));
    }
}

TEST_CASE("copies from and to overlapping parts of the host's memory", "[graph]") {
    Gpu gpu;
    Stream stream;
    Words host{1, 2, 3, 4, 5, 6};
    Memory memory(6 * word);
    Graph graph;

    SECTION("all is brought and a part fetched") {
        auto brought = add_copy(graph, {}, to_device(memory.address, host.data(), 6 * word));
        add_copy(graph, {brought}, to_host(host.data(), memory.address + 4 * word, 2 * word));
        GraphExec(graph).run(stream);
        CHECK(host == Words{5, 6, 3, 4, 5, 6});
        CHECK(memory.read<unsigned>(6) == Words{1, 2, 3, 4, 5, 6});
    }
    SECTION("two that are fetched come in their order") {
        CU_OK(cu.cuMemcpyHtoD(memory.address, Words{7, 8, 9, 10, 11, 12}.data(), 6 * word));
        auto late = add_copy(graph, {}, to_host(host.data() + 1, memory.address, 2 * word));
        auto early = add_copy(graph, {}, to_host(host.data(), memory.address + 3 * word, 3 * word));
        CU_OK(cu.cuGraphAddDependencies(graph, &early, &late, nullptr, 1));
        GraphExec(graph).run(stream);
        CHECK(host == Words{10, 7, 8, 4, 5, 6});
    }
    SECTION("a part of what was fetched is brought back when a function has seen it") {
        CU_OK(cu.cuMemcpyHtoD(memory.address, Words{7, 8, 9, 10, 11, 12}.data(), 6 * word));
        std::function<void()> add = [&] { host[1] += 100; };
        auto fetched = add_copy(graph, {}, to_host(host.data(), memory.address, 3 * word));
        auto added = add_function(graph, {fetched}, add);
        add_copy(graph, {added}, to_device(memory.address + 4 * word, host.data() + 1, 2 * word));
        GraphExec(graph).run(stream);
        CHECK(memory.read<unsigned>(6) == Words{7, 8, 9, 10, 108, 9});
    }
}

TEST_CASE("boxes are copied from and to the host in graphs", "[graph]") {
    Gpu gpu;
    Stream stream;
    // Two slices of three rows of four words, in the host's memory with a row between the slices.
    const size_t row = 4 * word, slice = 3 * row;
    Words host(2 * 4 * 4), back(2 * 3 * 4, 0);
    std::iota(host.begin(), host.end(), 1u);
    Memory memory(2 * slice);
    Graph graph;
    CUDA_MEMCPY3D in{};
    in.srcMemoryType = CU_MEMORYTYPE_HOST, in.srcHost = host.data(), in.srcPitch = row, in.srcHeight = 4;
    in.dstMemoryType = CU_MEMORYTYPE_DEVICE, in.dstDevice = memory.address, in.dstPitch = row, in.dstHeight = 3;
    in.WidthInBytes = row, in.Height = 3, in.Depth = 2;
    auto brought = add_copy(graph, {}, in);

    CUDA_ARRAY3D_DESCRIPTOR described{};
    described.Width = 4, described.Height = 3, described.Depth = 2;
    described.Format = CU_AD_FORMAT_UNSIGNED_INT32, described.NumChannels = 1;
    CUarray array = nullptr;
    CU_OK(cu.cuArray3DCreate(&array, &described));
    CUDA_MEMCPY3D across = in;
    across.srcMemoryType = CU_MEMORYTYPE_DEVICE, across.srcDevice = memory.address, across.srcHost = nullptr;
    across.srcHeight = 3;
    across.dstMemoryType = CU_MEMORYTYPE_ARRAY, across.dstArray = array, across.dstDevice = 0;
    auto crossed = add_copy(graph, {brought}, across);
    CUDA_MEMCPY3D out = across;
    out.srcMemoryType = CU_MEMORYTYPE_ARRAY, out.srcArray = array, out.srcDevice = 0;
    out.dstMemoryType = CU_MEMORYTYPE_HOST, out.dstHost = back.data(), out.dstArray = nullptr;
    add_copy(graph, {crossed}, out);
    GraphExec(graph).run(stream);
    Words expected(host.begin(), host.begin() + 12);
    expected.insert(expected.end(), host.begin() + 16, host.begin() + 28);
    CHECK(back == expected);
    CU_OK(cu.cuArrayDestroy(array));
}

TEST_CASE("a copy from pinned memory brings what a copy before it has changed of it", "[graph][capture]") {
    Gpu gpu;
    Stream stream;
    const size_t count = 6;
    unsigned* host = nullptr;
    CU_OK(cu.cuMemAllocHost(reinterpret_cast<void**>(&host), count * word));
    Memory part(Words{7, 8}), whole(count * word);
    Graph graph;
    auto run = [&](CUgraph what) {
        GraphExec exec(what);
        for (unsigned round = 1; round <= 2; ++round) {
            std::iota(host, host + count, 10 * round);
            exec.run(stream);
            const Words expected{10 * round, 7, 8, 10 * round + 3, 10 * round + 4, 10 * round + 5};
            CHECK(whole.read<unsigned>(count) == expected);
            CHECK(Words(host, host + count) == expected);
        }
    };

    SECTION("of nodes") {
        auto fetched = add_copy(graph, {}, to_host(host + 1, part.address, 2 * word));
        add_copy(graph, {fetched}, to_device(whole.address, host, count * word));
        run(graph);
    }
    SECTION("of a captured stream") {
        begin_capture(stream);
        CU_OK(cu.cuMemcpyDtoHAsync(host + 1, part.address, 2 * word, stream));
        CU_OK(cu.cuMemcpyHtoDAsync(whole.address, host, count * word, stream));
        auto captured = end_capture(stream);
        run(captured);
    }
    CU_OK(cu.cuMemFreeHost(host));
}

// A GPU elsewhere may refuse this; a copy of what was there before would be wrong.
TEST_CASE("a copy from memory that is pinned in part brings what is there, or is refused", "[graph]") {
    Gpu gpu;
    Stream stream;
    const size_t page = 4096, count = 3 * page / word;
    std::vector<std::byte> room(5 * page);
    const size_t skipped = page - reinterpret_cast<size_t>(room.data()) % page;
    auto* host = reinterpret_cast<unsigned*>(room.data() + skipped);
    CU_OK(cu.cuMemHostRegister(host + page / word, page, 0));
    Memory part(Words{7, 8}), whole(count * word);
    Graph graph;
    auto fetched = add_copy(graph, {}, to_host(host + page / word, part.address, 2 * word));
    auto copy = to_device(whole.address, host, count * word);
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    if (cu.cuGraphAddMemcpyNode(&node, graph, &fetched, 1, &copy, gpu.context) == CUDA_SUCCESS &&
        cu.cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS) {
        CU_OK(cu.cuGraphLaunch(exec, stream));
        CU_OK(cu.cuStreamSynchronize(stream));
        CHECK(whole.read<unsigned>(count)[page / word + 1] == 8);
        CU_OK(cu.cuGraphExecDestroy(exec));
    }
    CU_OK(cu.cuMemHostUnregister(host + page / word));
}

TEST_CASE("of two captured copies of the same host memory one gets another source", "[graph][capture]") {
    Gpu gpu;
    Stream stream;
    Words host{1, 2, 3}, other{7, 8, 9};
    Memory first(3 * word), second(3 * word);
    begin_capture(stream);
    CU_OK(cu.cuMemcpyHtoDAsync(first.address, host.data(), 3 * word, stream));
    CU_OK(cu.cuMemcpyHtoDAsync(second.address, host.data(), 3 * word, stream));
    auto graph = end_capture(stream);
    CUgraphNode node = nullptr;
    size_t count = 1;
    CU_OK(cu.cuGraphGetRootNodes(graph, &node, &count));  // the first copy
    const auto changed = to_device(first.address, other.data(), 3 * word);

    SECTION("in the graph") {
        CU_OK(cu.cuGraphMemcpyNodeSetParams(node, &changed));
        GraphExec(graph).run(stream);
    }
    SECTION("in an instance, twice") {
        GraphExec exec(graph);
        CUcontext context = nullptr;
        CU_OK(cu.cuCtxGetCurrent(&context));
        for (int i = 0; i < 2; ++i) CU_OK(cu.cuGraphExecMemcpyNodeSetParams(exec, node, &changed, context));
        exec.run(stream);
    }
    CHECK(first.read<unsigned>(3) == other);
    CHECK(second.read<unsigned>(3) == host);
}

TEST_CASE("what lies between the slices of a box stays the program's", "[graph]") {
    Gpu gpu;
    Stream stream;
    // Two slices of three rows of four words, in the host's memory with a row between the slices.
    const size_t row = 4 * word;
    Words given(2 * 3 * 4), host(7 * 4, 0);
    std::iota(given.begin(), given.end(), 1u);
    Memory memory(given);
    Graph graph;
    CUDA_MEMCPY3D out{};
    out.srcMemoryType = CU_MEMORYTYPE_DEVICE, out.srcDevice = memory.address, out.srcPitch = row, out.srcHeight = 3;
    out.dstMemoryType = CU_MEMORYTYPE_HOST, out.dstHost = host.data(), out.dstPitch = row, out.dstHeight = 4;
    out.WidthInBytes = row, out.Height = 3, out.Depth = 2;
    auto fetched = add_copy(graph, {}, out);
    auto between = host.begin() + 12;
    auto expect = [&](const Words& slices, unsigned gap) {
        CHECK(Words(host.begin(), between) == Words(slices.begin(), slices.begin() + 12));
        CHECK(Words(between, between + 4) == Words(4, gap));
        CHECK(Words(between + 4, host.end()) == Words(slices.begin() + 12, slices.end()));
    };

    SECTION("as it is when a launch comes") {
        GraphExec exec(graph);
        for (unsigned gap : {77u, 88u}) {
            std::fill(between, between + 4, gap);
            exec.run(stream);
            expect(given, gap);
        }
    }
    SECTION("also where a function sees the slices, and a copy brings them back") {
        std::fill(between, between + 4, 77);
        std::function<void()> twice = [&] {
            for (auto& one : host) one *= 2;
        };
        auto doubled = add_function(graph, {fetched}, twice);
        CUDA_MEMCPY3D in = out;
        in.srcMemoryType = CU_MEMORYTYPE_HOST, in.srcHost = host.data(), in.srcDevice = 0, in.srcHeight = 4;
        in.dstMemoryType = CU_MEMORYTYPE_DEVICE, in.dstDevice = memory.address, in.dstHost = nullptr, in.dstHeight = 3;
        add_copy(graph, {doubled}, in);
        GraphExec(graph).run(stream);
        for (auto& one : given) one *= 2;
        expect(given, 154);
        CHECK(memory.read<unsigned>(given.size()) == given);
    }
}

TEST_CASE("a graph copies within the host's memory", "[graph]") {
    Gpu gpu;
    Stream stream;
    Words from{1, 2, 3}, to(3);
    CUDA_MEMCPY3D copy = line(3 * word);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = from.data();
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = to.data();
    Graph graph;
    auto node = add_copy(graph, {}, copy);
    CHECK(type_of(node) == CU_GRAPH_NODE_TYPE_MEMCPY);
    GraphExec exec(graph);
    for (unsigned round = 0; round < 2; ++round) {
        from[0] = round;
        exec.run(stream);
        CHECK(to == from);
    }
}

// More than a client may have on its way to a GPU elsewhere without an answer (64 MiB), in either direction.
TEST_CASE("a graph that moves more than fits on the way to a GPU", "[graph]") {
    Gpu gpu;
    Stream stream;
    const size_t count = (size_t{72} << 20) / word;
    Words in(count, 4), out(count);
    Memory memory(count * word);
    std::function<void()> change = [&] {
        for (size_t i = 1; i < count; i += 1000) in[i] += 3 * unsigned(i);
    };
    Graph graph;
    auto brought = add_copy(graph, {}, to_device(memory.address, in.data(), count * word));
    auto changed = add_function(graph, {brought}, change);
    auto again = add_copy(graph, {changed}, to_device(memory.address, in.data(), count * word));
    add_copy(graph, {again}, to_host(out.data(), memory.address, count * word));
    GraphExec exec(graph);
    for (int round = 0; round < 2; ++round) exec.run(stream);
    CHECK(out == in);
    CHECK(out[1] == 10);
    CHECK(out[1001] == 4 + 6 * 1001);
}

TEST_CASE("a graph of more kernels than fit on the way to a GPU", "[graph][capture]") {
    Gpu gpu;
    Module module;
    Stream stream;  // one that waits for the null stream, in which memory is filled
    Memory counter(std::vector<int>{0});
    auto add = module.function("add");
    begin_capture(stream);
    const int launches = 20'000;
    for (int i = 0; i < launches; ++i) CU_OK(launch(add, stream, counter.address, 1, 1));
    auto graph = end_capture(stream);
    GraphExec(graph).run(stream);
    CHECK(counter.first<int>() == launches);
}

TEST_CASE("an instance of a graph inside another copies what that graph does", "[graph]") {
    Gpu gpu;
    Stream stream;
    Words out(1, 0), not_inside(1, 5), in{3};
    auto gone = std::make_unique<Words>(1, 4);
    Memory memory(Words{0, 0});
    Graph outer, inner;
    auto brought = add_copy(inner, {}, to_device(memory.address, in.data(), word));
    add_copy(inner, {brought}, to_host(out.data(), memory.address, word));
    CUgraphNode node = nullptr;
    CU_OK(cu.cuGraphAddChildGraphNode(&node, outer, nullptr, 0, inner));
    add_copy(outer, {node}, to_device(memory.address + word, gone->data(), word));
    add_copy(outer, {node}, to_host(not_inside.data(), memory.address, word));
    CUgraph inside = nullptr;
    CU_OK(cu.cuGraphChildGraphNodeGetGraph(node, &inside));
    GraphExec exec(inside);
    gone.reset();
    for (unsigned value : {7u, 8u}) {
        in[0] = value;
        exec.run(stream);
        CHECK(out == Words{value});
        CHECK(memory.read<unsigned>(2) == Words{value, 0});
    }
    CHECK(not_inside == Words{5});
}

// What a launch brings to the host goes through memory of the graph's context, which may be gone before the graph is.
TEST_CASE("a graph that outlives its context frees no memory of the next one", "[graph][full]") {
    CU_OK(cu.cuInit(0));
    const size_t bytes = 5 << 20;  // has pages of its own
    std::vector<char> host(bytes);
    CUcontext context = nullptr;
    CU_OK(cu.context_create(&context, 0, 0));
    CUdeviceptr memory = 0, blocks[4]{};
    CU_OK(cu.cuMemAlloc(&memory, bytes));
    {
        Graph graph;
        add_copy(graph, {}, to_host(host.data(), memory, bytes));
        CU_OK(cu.cuCtxDestroy(context));
        CU_OK(cu.context_create(&context, 0, 0));
        for (auto& next : blocks) CU_OK(cu.cuMemAlloc(&next, bytes));
    }
    for (auto next : blocks) {
        CUdeviceptr base = 0;
        CU_CHECK(cu.cuMemGetAddressRange(&base, nullptr, next), CUDA_SUCCESS);
        CHECK(base == next);
        CU_CHECK(cu.cuMemFree(next), CUDA_SUCCESS);
    }
    CU_OK(cu.cuCtxDestroy(context));
}

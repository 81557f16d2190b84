// cuGraphDebugDotPrint: a graph as a picture that Graphviz draws. What it looks like is nobody's contract.
#include <cinttypes>
#include <cstdio>
#include <string>

#include "gpu_server/emulated_gpu/driver/graph.hpp"
#include "gpu_server/emulated_gpu/driver/module.hpp"

using namespace tnr::emulated;

namespace {

std::string hexadecimal(uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "0x%" PRIx64, number);
    return text;
}

const char* word_for(CUgraphNodeType type) {
    switch (type) {
        case CU_GRAPH_NODE_TYPE_KERNEL:
            return "KERNEL";
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return "MEMCPY";
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return "MEMSET";
        case CU_GRAPH_NODE_TYPE_HOST:
            return "HOST";
        case CU_GRAPH_NODE_TYPE_GRAPH:
            return "GRAPH";
        case CU_GRAPH_NODE_TYPE_EMPTY:
            return "EMPTY";
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return "WAIT_EVENT";
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return "EVENT_RECORD";
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
            return "MEM_ALLOC";
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            return "MEM_FREE";
        case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
            return "BATCH_MEM_OP";
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            return "CONDITIONAL";
        default:
            return "NODE";
    }
}

const char* side_word(CUmemorytype type) {
    return type == CU_MEMORYTYPE_HOST     ? "host"
           : type == CU_MEMORYTYPE_DEVICE ? "device"
           : type == CU_MEMORYTYPE_ARRAY  ? "array"
                                          : "unified";
}

// What is always shown of a node's work.
std::string brief(const NodeWork& work) {
    if (auto* kernel = std::get_if<KernelWork>(&work)) return "\\n" + kernel->launch.function->kernel().name;
    if (auto* copy = std::get_if<CopyWork>(&work))
        return std::string("\\n") + side_word(copy->given.srcMemoryType) + " to " +
               side_word(copy->given.dstMemoryType);
    return {};
}

// What its parameters are, as far as the flags ask for them.
std::string parameters(const NodeWork& work, unsigned flags) {
    auto asked = [&](unsigned flag) { return (flags & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)) != 0; };
    auto sizes = [](const tnr::ptx::Dim3& d) {
        return std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z);
    };
    if (auto* kernel = std::get_if<KernelWork>(&work); kernel && asked(CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS))
        return "\\n<<<(" + sizes(kernel->launch.grid) + "),(" + sizes(kernel->launch.block) + ")," +
               std::to_string(kernel->launch.dynamic_shared_bytes) + ">>>";
    if (auto* copy = std::get_if<CopyWork>(&work); copy && asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS))
        return "\\n" + hexadecimal(copy->copy.source) + " to " + hexadecimal(copy->copy.destination) + ", " +
               std::to_string(copy->copy.width) + " x " + std::to_string(copy->copy.height) + " x " +
               std::to_string(copy->copy.depth);
    if (auto* fill = std::get_if<FillWork>(&work); fill && asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS))
        return "\\n" + hexadecimal(fill->fill.destination) + ", value " + std::to_string(fill->fill.value) + ", " +
               std::to_string(fill->fill.width) + " x " + std::to_string(fill->fill.height);
    if (auto* alloc = std::get_if<AllocWork>(&work); alloc && asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS))
        return "\\n" + hexadecimal(alloc->given.dptr) + ", " + std::to_string(alloc->given.bytesize) + " bytes";
    if (auto* free = std::get_if<FreeWork>(&work); free && asked(CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS))
        return "\\n" + hexadecimal(free->allocation->address);
    return {};
}

void write_graph(const Graph& graph, unsigned flags, std::string& out) {
    for (const auto& node : graph.nodes) {
        std::string name = "node_" + hexadecimal(node->handle());
        out += "  \"" + name + "\" [label=\"" + word_for(type_of(*node->work)) + brief(*node->work) +
               parameters(*node->work, flags);
        if (flags & (CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE))
            out += "\\n" + hexadecimal(node->handle());
        out += "\"];\n";
        for (const Edge& edge : node->dependents)
            out += "  \"" + name + "\" -> \"node_" + hexadecimal(edge.node->handle()) + "\";\n";
        for (const auto& inner : graphs_in(*node->work)) {
            out += "  subgraph \"cluster_" + hexadecimal(inner->handle()) + "\" {\n";
            write_graph(*inner, flags, out);
            out += "  }\n";
        }
    }
}

}  // namespace

CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned flags) {
    std::string text = "digraph \"graph\" {\n";
    CUresult result = on_graph(handle, [&](Graph& graph) -> CUresult {
        if (!path) return CUDA_ERROR_INVALID_VALUE;
        write_graph(graph, flags, text);
        return CUDA_SUCCESS;
    });
    if (result) return result;
    text += "}\n";
    FILE* file = fopen(path, "w");
    if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
    bool written = fwrite(text.data(), 1, text.size(), file) == text.size();
    return fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

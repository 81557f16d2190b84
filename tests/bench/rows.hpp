// The rows of the benchmark. Each runs in a process of its own.
#pragma once

#include <span>

#include "tests/bench/program.hpp"

namespace tnr::bench {

struct Row {
    const char* name;
    const char* what;
    void (*run)(const Options&);
};
std::span<const Row> rows();

// By file.
void launch_and_synchronize(const Options& options);  // rows_calls.cpp
void record_and_query(const Options& options);
void memory_info(const Options& options);
void allocate_and_free(const Options& options);
void small_copy(const Options& options);
void step(const Options& options);  // rows_launches.cpp
void step_pageable(const Options& options);
void launches(const Options& options);
void struct_launches(const Options& options);
void memory_growth(const Options& options);
void graph_launches(const Options& options);
void graph_nodes(const Options& options);
void launches_with_settings(const Options& options);
void copies(const Options& options);  // rows_bulk.cpp
void claim(const Options& options);
void code(const Options& options);
void threads(const Options& options);  // rows_slopes.cpp
void modules(const Options& options);
void streams(const Options& options);
void devices(const Options& options);

}  // namespace tnr::bench

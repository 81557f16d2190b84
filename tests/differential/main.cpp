// Runs cases on the libcuda that TNR_TEST_DRIVER names ("libcuda.so.1" when it is not set). differential.py starts it,
// again behind each case that ended it. It ends by itself behind a case that left an error which stays (a fault on the GPU):
// every later call of the process would tell that one.
//
//     differential_cases --list       name, setting and "unsafe" or "safe" of each case
//     differential_cases < NAMES      runs these; "begin NAME", then "end OUTCOME", for each, on stdout
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "tests/differential/cases.hpp"

namespace differential {

static const char* word_of(Setting setting) {
    switch (setting) {
        case Setting::alone:
            return "alone";
        case Setting::uninitialised:
            return "uninitialised";
        default:
            return "context";
    }
}

// What comes of a case, and whether the process is fit for another.
struct Ran {
    std::string outcome;
    bool fit = true;
};

static Ran run(const Case& one) {
    Outcome outcome;
    try {
        if (one.setting != Setting::uninitialised) primary();
        one.run(outcome);
    } catch (const Unprepared& error) {
        outcome.add(error.why);
    }
    if (one.setting != Setting::context) return {outcome.text};
    // Errors that it leaves in the context are part of its outcome. Told once, most are gone.
    try {
        primary();
    } catch (const Unprepared& error) {
        outcome.add(error.why);
        return {outcome.text, false};
    }
    auto left = DO(cuCtxSynchronize, );
    if (left == CUDA_SUCCESS) return {outcome.text};
    outcome.add("leaves " + std::to_string(left));
    return {outcome.text, DO(cuCtxSynchronize, ) == CUDA_SUCCESS};
}

static int run_named() {
    std::map<std::string, Case> by_name;
    for (auto& one : all_cases()) by_name.emplace(one.name, one);
    for (std::string name; std::getline(std::cin, name);) {
        auto found = by_name.find(name);
        if (found == by_name.end()) {
            std::fprintf(stderr, "differential_cases: there is no case '%s'\n", name.c_str());
            return 2;
        }
        std::printf("begin %s\n", name.c_str());
        std::fflush(stdout);
        auto ran = run(found->second);
        std::printf("end %s\n", ran.outcome.c_str());
        std::fflush(stdout);
        if (!ran.fit) return 0;
    }
    return 0;
}

}  // namespace differential

int main(int count, char** words) {
    using namespace differential;
    if (count > 1 && std::string(words[1]) == "--list") {
        for (auto& one : all_cases())
            std::printf("%s\t%s\t%s\n", one.name.c_str(), word_of(one.setting), one.unsafe ? "unsafe" : "safe");
        return 0;
    }
    const char* path = std::getenv("TNR_TEST_DRIVER");
    library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        std::fprintf(stderr, "differential_cases: %s\n", dlerror());
        return 125;
    }
    int status = run_named();
    std::fflush(stdout);
    return status;
}

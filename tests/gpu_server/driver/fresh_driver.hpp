// The environment is read once, at cuInit: so each question to a configured driver runs in a process of its
// own, which answers with one line of text.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include "tests/support/catch.hpp"

class LoadedDriver {
public:
    LoadedDriver() : library_(dlopen(TNR_EMULATED_DRIVER, RTLD_NOW)) {}
    template <class F>
    F* get(const char* name) const {
        return reinterpret_cast<F*>(dlsym(library_, name));
    }

private:
    void* library_;  // stays loaded: the process is about to end
};
#define DRIVER_CALL(driver, name) driver.get<decltype(name)>(TNR_NAME(name))
#define TNR_NAME(name) TNR_NAME_(name)
#define TNR_NAME_(name) #name

using Environment = std::map<std::string, std::string>;

inline std::string in_fresh_process(const Environment& environment,
                                    const std::function<std::string(const LoadedDriver&)>& body) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        for (const char* name : {"TNR_EMULATED_GPUS", "TNR_EMULATED_MEMORY_MIB", "TNR_EMULATED_MEMORY_FOLDER",
                                 "TNR_EMULATED_SEED", "CUDA_VISIBLE_DEVICES", "TNR_LOG"})
            unsetenv(name);
        for (auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
        std::string answer = body(LoadedDriver());
        ssize_t written = write(ends[1], answer.data(), answer.size());
        _exit(written == static_cast<ssize_t>(answer.size()) ? 0 : 1);
    }
    close(ends[1]);
    std::string answer;
    char buffer[4096];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof(buffer))) > 0;)
        answer.append(buffer, static_cast<size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(status == 0);
    return answer;
}

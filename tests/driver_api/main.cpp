// Runs the suite on the libcuda that TNR_TEST_DRIVER names ("libcuda.so.1" when it is not set).
#include <cstdio>
#include <cstdlib>
#include "tests/support/catch.hpp"

#include "driver.hpp"

int main(int count, char** arguments) {
    // Lazy loading may wait for the whole context at a first launch: a test that holds a stream would never end.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    const char* path = std::getenv("TNR_TEST_DRIVER");
    std::string problem = driver_api::load_driver(path ? path : "libcuda.so.1");
    if (!problem.empty()) {
        std::fprintf(stderr, "driver_api_tests: cannot load the driver under test: %s\n", problem.c_str());
        return 1;
    }
    return tnr::test::run_tests(count, arguments);
}

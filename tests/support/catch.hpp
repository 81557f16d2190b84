// Catch2, whichever of its versions the distribution has: 2 is one header, 3 many with a library behind them.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

namespace tnr::test {

// What every main() of tests ends with.
int run_tests(int count, char** arguments);

}  // namespace tnr::test

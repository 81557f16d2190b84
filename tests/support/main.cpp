// The main() of every test program that needs nothing before its tests.
#include "tests/support/catch.hpp"

int main(int count, char** arguments) {
    return tnr::test::run_tests(count, arguments);
}

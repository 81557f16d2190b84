// Tables of the operator's commands.
#include "gpu_server/supervisor/print.hpp"

#include <sstream>

#include "tests/support/catch.hpp"

TEST_CASE("what others say is shown in a table, and does nothing to the terminal", "[print]") {
    std::ostringstream out;
    tnr::server::print_table(out, {{"USER", "PROGRAM"}, {"alice", "a\x1b[2J\r\nb"}, {"", "größe"}});
    CHECK(out.str() == "USER   PROGRAM\nalice  a?[2J??b\n-      größe\n");
}

// The line that shows how far a sync is.
#include "cli/commands/sync_progress.hpp"

#include "tests/support/catch.hpp"

using namespace tnr;
using namespace std::chrono_literals;

TEST_CASE("sync tells how much is done, how fast, and how long it will take", "[cli][sync]") {
    cli::SyncProgress text;
    cli::SyncProgress::Clock::time_point begun{1h};
    sync::Tally tally;
    CHECK(text(tally, begun) == "0 B of 0 B, 0 files");
    tally.bytes_total = uint64_t{1} << 30;
    CHECK(text(tally, begun + 5s) == "0 B of 1.0 GiB, 0 files");  // a long look at what is there is no slow copying
    tally.bytes = 12 << 20;
    tally.files = 1;
    CHECK(text(tally, begun + 5500ms) == "12.0 MiB of 1.0 GiB, 1 file");
    CHECK(text(tally, begun + 6s) == "12.0 MiB of 1.0 GiB, 1 file, 12.0 MiB/s, 1 min 24 s left");
    // What was there already counts as done.
    tally.bytes_found = 500 << 20;
    tally.files = 3;
    CHECK(text(tally, begun + 9s) == "512.0 MiB of 1.0 GiB, 3 files, 128.0 MiB/s, 4.0 s left");
    tally.bytes = (uint64_t{1} << 30) - tally.bytes_found;
    CHECK(text(tally, begun + 13s) == "1.0 GiB of 1.0 GiB, 3 files, 128.0 MiB/s");
    // A file that has grown since it was listed.
    tally.bytes += 1 << 30;
    CHECK(text(tally, begun + 21s) == "2.0 GiB of 2.0 GiB, 3 files, 128.0 MiB/s");
}

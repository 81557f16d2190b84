// The audit log: what is in it can be read again, and nobody can fill it.
#include "gpu_server/pool/audit.hpp"

#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"

using namespace tnr::server;
using Kind = AuditEntry::Kind;

namespace {

struct TempFolder {
    TempFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "tnr-audit-XXXXXX").string();
        path = mkdtemp(name.data());
    }
    ~TempFolder() { std::filesystem::remove_all(path); }
    std::vector<AuditEntry> all(int64_t since_ms = 0) const {
        std::vector<AuditEntry> entries;
        REQUIRE(read_audit(path, since_ms, [&](auto& entry) { entries.push_back(entry); }));
        return entries;
    }
    std::filesystem::path path;
};

constexpr AuditLog::Clock::time_point start{std::chrono::hours(1)};

}  // namespace

TEST_CASE("what was noted can be read, whatever it says, and nobody else may read it", "[pool]") {
    TempFolder folder;
    CHECK(folder.all().empty());
    AuditLog audit(folder.path);
    audit.note("alice", {Kind::changed, "root", "added user alice", "this host"}, start);
    audit.note("10.0.0.1", {Kind::refused, "key \"\\\n\x1b[31m\xff", std::string(5000, 'x'), "10.0.0.1"}, start);
    std::ofstream(folder.path / "audit.log", std::ios::app) << "no line of ours\n{}\n[1]\n";
    auto entries = folder.all();
    REQUIRE(entries.size() == 2);
    CHECK(entries[0].kind == Kind::changed);
    CHECK(entries[0].what == "added user alice");
    CHECK(entries[1].kind == Kind::refused);
    CHECK(entries[1].who.find('\x1b') == std::string::npos);
    CHECK(entries[1].what.size() < 300);
    CHECK(folder.all(entries[1].at_ms + 1).empty());
    struct stat status {};
    REQUIRE(stat((folder.path / "audit.log").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("a peer has some lines a minute, what is beyond them is counted, and others lose nothing", "[pool]") {
    TempFolder folder;
    {
        AuditLog audit(folder.path);
        for (int i = 0; i < 5000; ++i) audit.note("mallory", {Kind::refused, "mallory", "no", "10.0.0.1"}, start);
        audit.note("alice", {Kind::changed, "alice", "enrolled machine x", "10.0.0.2"}, start);
        CHECK(folder.all().size() == audit_lines_per_peer_max + 1);
        audit.tidy(start + std::chrono::seconds(61));
        auto last = folder.all().back();
        CHECK(last.who == "mallory");
        CHECK(last.times == 5000 - audit_lines_per_peer_max);
        audit.note("mallory", {Kind::refused, "mallory", "again", "10.0.0.1"}, start + std::chrono::seconds(62));
        CHECK(folder.all().back().what == "again");
    }
    CHECK(folder.all().size() == audit_lines_per_peer_max + 3);
}

TEST_CASE("very many peers have only so many lines among them", "[pool]") {
    TempFolder folder;
    uint64_t told = 0;
    {
        AuditLog audit(folder.path);
        for (int i = 0; i < 20'000; ++i)
            audit.note("peer" + std::to_string(i), {Kind::refused, "a stranger", "no", "x"}, start);
    }
    auto entries = folder.all();
    CHECK(entries.size() <= audit_lines_max + 2);
    for (auto& entry : entries) told += entry.times;
    CHECK(told == 20'000);
}

TEST_CASE("the files take turns, and several processes may write at once", "[pool]") {
    TempFolder folder;
    std::ofstream(folder.path / "audit.log") << std::string(audit_file_bytes_max - 1, ' ') << "\n";
    for (int i = 1; i < audit_files_max; ++i)
        std::ofstream(folder.path / ("audit.log." + std::to_string(i))) << "old " << i << "\n";
    std::vector<std::thread> writers;
    for (int i = 0; i < 4; ++i)
        writers.emplace_back([&, i] {
            AuditLog audit(folder.path);
            for (int k = 0; k < 50; ++k)
                audit.note("one", {Kind::changed, std::to_string(i), std::to_string(k), "this host"}, start);
        });
    for (auto& writer : writers) writer.join();
    CHECK(folder.all().size() == 200);
    size_t files = 0;
    for (auto& file : std::filesystem::directory_iterator(folder.path)) files += file.path().filename() != "audit.lock";
    CHECK(files == audit_files_max);
    CHECK(std::filesystem::file_size(folder.path / "audit.log.1") >= audit_file_bytes_max);
}

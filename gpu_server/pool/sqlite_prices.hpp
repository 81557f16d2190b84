// Prices in a database of SQLite: a table of all there ever were. Callers hold the database's lock. See store.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu_server/pool/sqlite.hpp"
#include "gpu_server/pool/store.hpp"

namespace tnr::server {

inline constexpr const char* prices_schema = R"(
    CREATE TABLE IF NOT EXISTS prices (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        gpu TEXT NOT NULL,
        since_ms INTEGER NOT NULL,
        currency TEXT NOT NULL,
        micros_per_hour INTEGER);
    CREATE INDEX IF NOT EXISTS prices_by_gpu ON prices (gpu, since_ms);
)";

Result<> set_price_in(sqlite3* database, const std::string& gpu, const std::string& currency,
                      std::optional<int64_t> micros_per_hour, int64_t now_ms, bool clock_is_right);
Result<std::optional<GpuPrice>> price_in(sqlite3* database, const std::string& gpu, int64_t at_ms);
Result<std::vector<GpuPrice>> prices_in(sqlite3* database, int64_t behind_id, int most);

}  // namespace tnr::server

// See sqlite_prices.hpp.
#include "gpu_server/pool/sqlite_prices.hpp"

namespace tnr::server {

static Result<std::vector<GpuPrice>> read(sqlite3* database, Statement& row) {
    std::vector<GpuPrice> found;
    while (row.next()) {
        GpuPrice price{row.number(0), row.text(1), row.number(2), row.text(3), std::nullopt};
        if (!row.is_null(4)) price.micros_per_hour = row.number(4);
        found.push_back(std::move(price));
    }
    if (row.failed()) return database_error(database, "reading the prices");
    return found;
}

Result<> set_price_in(sqlite3* database, const std::string& gpu, const std::string& currency,
                      std::optional<int64_t> micros_per_hour, int64_t now_ms) {
    auto set = Statement(database,
                         "INSERT INTO prices (gpu, since_ms, currency, micros_per_hour) VALUES "
                         "(?1, max(?2, coalesce((SELECT max(since_ms) + 1 FROM prices WHERE gpu = ?1), 0)), ?3, "
                         "nullif(?4, -1))",
                         {gpu, now_ms, currency, micros_per_hour.value_or(-1)})
                   .run("setting a price");
    if (!set) return set;
    return make_durable(database, "making a price durable");
}

Result<std::optional<GpuPrice>> price_in(sqlite3* database, const std::string& gpu, int64_t at_ms) {
    Statement row(database,
                  "SELECT id, gpu, since_ms, currency, micros_per_hour FROM prices "
                  "WHERE gpu = ? AND since_ms <= ? ORDER BY since_ms DESC LIMIT 1",
                  {gpu, at_ms});
    auto found = read(database, row);
    if (!found) return found.error();
    if (found->empty() || !found->front().micros_per_hour) return std::optional<GpuPrice>();
    return std::optional(found->front());
}

Result<std::vector<GpuPrice>> prices_in(sqlite3* database, int64_t behind_id, int most) {
    Statement row(database,
                  "SELECT id, gpu, since_ms, currency, micros_per_hour FROM prices WHERE id > ? ORDER BY id LIMIT ?",
                  {behind_id, int64_t{most}});
    return read(database, row);
}

}  // namespace tnr::server

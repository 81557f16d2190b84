// See sqlite_prices.hpp.
#include "gpu_server/pool/sqlite_prices.hpp"

#include "gpu_server/pool/clock.hpp"

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

// Prices that begin later than a clock may be wrong.
static Result<> bring_forward(sqlite3* database, const std::string& gpu, int64_t now_ms, bool clock_is_right) {
    const int64_t latest = now_ms + price_clocks_differ_by.count();
    Statement ahead(database, "SELECT max(since_ms) FROM prices WHERE gpu = ?1 AND since_ms > ?2", {gpu, latest});
    if (!ahead.next()) return database_error(database, "reading the prices");
    if (ahead.is_null(0)) return Ok{};
    if (!clock_is_right)
        return Error{Error::Kind::usage,
                     "there is a price for " + gpu + " from " + date(ahead.number(0)) +
                         " UTC on, and this computer's clock says " + date(now_ms),
                     "if the clock is wrong, set it right first; if it is right, it was ahead when that price was set: "
                     "add --clock-is-right, and the new price holds from now on"};
    return Statement(database, "UPDATE prices SET since_ms = ?3 WHERE gpu = ?1 AND since_ms > ?2",
                     {gpu, latest, now_ms})
        .run("bringing a price forward");
}

Result<> set_price_in(sqlite3* database, const std::string& gpu, const std::string& currency,
                      std::optional<int64_t> micros_per_hour, int64_t now_ms, bool clock_is_right) {
    if (auto forward = bring_forward(database, gpu, now_ms, clock_is_right); !forward) return forward;
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

// See ledger_report.hpp.
#include "gpu_server/pool/ledger_report.hpp"

#include <algorithm>
#include <limits>

#include "gpu_server/pool/sqlite.hpp"

namespace tnr::server {
namespace {

constexpr double ms_per_s = 1000, ms_per_hour = 3.6e6, micros = 1e6;

struct PriceSince {
    int64_t since_ms;
    std::string currency;
    double per_hour;  // below 0: none
};
using Prices = std::map<std::string, std::vector<PriceSince>>;  // by type, in their order

struct Line {
    std::string user, gpu;
    double gpus;
    int64_t from_ms, to_ms, busy_ms, bytes_up, bytes_down;
};

// The part of [from, to) that lies in [begin, end).
double overlap_ms(int64_t from, int64_t to, int64_t begin, int64_t end) {
    return static_cast<double>(std::max<int64_t>(0, std::min(to, end) - std::max(from, begin)));
}

class Summing {
public:
    Summing(int64_t from_ms, int64_t to_ms, int parts, Prices prices) : prices_(std::move(prices)) {
        report_.from_ms = from_ms;
        report_.to_ms = to_ms;
        report_.parts.resize(static_cast<size_t>(parts));
    }
    void add(const Line& line) {
        const double inside_ms = overlap_ms(line.from_ms, line.to_ms, report_.from_ms, report_.to_ms);
        const double whole_ms = static_cast<double>(std::max<int64_t>(line.to_ms - line.from_ms, 1));
        const double busy_share = static_cast<double>(line.busy_ms) / whole_ms;  // of GPU-time, over all its GPUs
        add_parts(line, busy_share);
        auto& user = users_[line.user];
        user.claims += 1;
        user.gpu_s += inside_ms * line.gpus / ms_per_s;
        user.busy_s += inside_ms * busy_share / ms_per_s;
        user.bytes_up += static_cast<double>(line.bytes_up) * inside_ms / whole_ms;
        user.bytes_down += static_cast<double>(line.bytes_down) * inside_ms / whole_ms;
        add_cost(user, line, inside_ms);
    }
    LedgerReport take() {
        for (auto& [name, user] : users_) {
            user.user = name;
            report_.users.push_back(std::move(user));
        }
        std::stable_sort(report_.users.begin(), report_.users.end(),
                         [](auto& one, auto& other) { return one.gpu_s > other.gpu_s; });
        return std::move(report_);
    }

private:
    void add_parts(const Line& line, double busy_share) {
        const auto parts = static_cast<int64_t>(report_.parts.size());
        const double width = static_cast<double>(report_.to_ms - report_.from_ms) / static_cast<double>(parts);
        auto part_of = [&](int64_t at) {
            return std::clamp<int64_t>(static_cast<int64_t>(static_cast<double>(at - report_.from_ms) / width), 0,
                                       parts - 1);
        };
        for (int64_t part = part_of(line.from_ms); part <= part_of(line.to_ms); ++part) {
            auto begin = report_.from_ms + static_cast<int64_t>(width * static_cast<double>(part));
            auto end = report_.from_ms + static_cast<int64_t>(width * static_cast<double>(part + 1));
            const double inside_s = overlap_ms(line.from_ms, line.to_ms, begin, end) / ms_per_s;
            auto& sums = report_.parts[static_cast<size_t>(part)];
            sums.held_s += inside_s * line.gpus;
            sums.busy_s += inside_s * busy_share;
        }
        if (line.from_ms >= report_.from_ms) ++report_.parts[static_cast<size_t>(part_of(line.from_ms))].claims;
    }
    void add_cost(UserReport& user, const Line& line, double inside_ms) {
        const int64_t from = std::max(line.from_ms, report_.from_ms), to = std::min(line.to_ms, report_.to_ms);
        const auto& known = prices_[line.gpu];
        double priced_ms = 0;
        for (size_t i = 0; i < known.size(); ++i) {
            const int64_t until = i + 1 < known.size() ? known[i + 1].since_ms : INT64_MAX;
            const double ms = overlap_ms(from, to, known[i].since_ms, until);
            if (known[i].per_hour < 0 || ms == 0) continue;
            priced_ms += ms;
            user.cost[known[i].currency] += ms * line.gpus * known[i].per_hour / ms_per_hour;
        }
        user.unpriced_s += std::max(0.0, inside_ms - priced_ms) * line.gpus / ms_per_s;
    }

    Prices prices_;
    LedgerReport report_;
    std::map<std::string, UserReport> users_;
};

class SqliteLedgerReader : public LedgerReader {
public:
    SqliteLedgerReader(Database database, Store& store) : database_(std::move(database)), store_(store) {}

    Result<LedgerReport> report(int64_t from_ms, int64_t to_ms, int parts, int64_t claims_max) override {
        auto prices = this->prices();
        if (!prices) return prices.error();
        Summing sums(from_ms, to_ms, parts, std::move(*prices));
        Statement row(
            database_.get(),
            "SELECT account, machine, gpu, length(devices) - length(replace(devices, ',', '')) + 1, began_ms, "
            "until_ms, busy_ms, bytes_up, bytes_down FROM claims WHERE until_ms > ? AND began_ms < ? "
            "ORDER BY until_ms DESC LIMIT ?",
            {from_ms, to_ms, claims_max + 1});
        int64_t lines = 0;
        while (row.next()) {
            if (++lines > claims_max) break;
            const auto account = row.text(0);
            sums.add({account.empty() ? "machine " + row.text(1) : account, row.text(2),
                      static_cast<double>(row.number(3)), row.number(4), row.number(5), row.number(6), row.number(7),
                      row.number(8)});
        }
        if (row.failed()) return database_error(database_.get(), "reading the ledger");
        auto report = sums.take();
        report.whole = lines <= claims_max;
        return report;
    }

private:
    Result<Prices> prices() {
        Prices prices;
        auto all = store_.prices(0, std::numeric_limits<int>::max());
        if (!all) return all.error();
        // Those of a type were set one after the other.
        for (auto& price : *all)
            prices[price.gpu].push_back(
                {price.since_ms, price.currency, static_cast<double>(price.micros_per_hour.value_or(-1)) / micros});
        return prices;
    }
    Database database_;
    Store& store_;
};

}  // namespace

Result<std::unique_ptr<LedgerReader>> open_sqlite_ledger_reader(const std::string& path, Store& store) {
    sqlite3* opened = nullptr;
    int code =
        sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE, nullptr);  // a reader of a log writes its index
    Database database(opened);
    if (code != SQLITE_OK) return Error{Error::Kind::internal, "cannot open " + path + ": " + sqlite3_errstr(code)};
    sqlite3_busy_timeout(opened, busy_timeout_ms);
    return std::unique_ptr<LedgerReader>(std::make_unique<SqliteLedgerReader>(std::move(database), store));
}

}  // namespace tnr::server

// See history.hpp.
#include "cli/money/history.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <sstream>

#include "api_client/base/file_lock.hpp"
#include "api_client/base/files.hpp"
#include "api_client/base/handles.hpp"
#include "cli/records.hpp"
#include "cli/ui/time.hpp"

namespace tnr::cli {
namespace {

using HistoryJson = nlohmann::json;

// Younger than any clock that was not set yet: a machine seen in 1970 would have cost for decades.
constexpr const char* earliest = "2025-01-01T00:00:00Z";

// A line has some 400 bytes: half a million changes, which no account sees in ten years.
constexpr size_t history_bytes_max = size_t{256} << 20;

constexpr std::array history_states = {"starting", "running", "stopping", "stopped", "gone"};  // as in MachineState

HistoryJson amount_json(const std::optional<double>& amount) {
    return amount ? HistoryJson(*amount) : HistoryJson();
}

std::optional<double> amount_of(const HistoryJson& json, const char* name) {
    auto found = json.find(name);
    if (found == json.end() || found->is_null()) return std::nullopt;
    return found->get<double>();
}

HistoryJson line_of(const Sighting& seen) {
    const Price& price = seen.price;
    return {{"at", seen.at},
            {"provider", seen.provider},
            {"id", seen.id},
            {"name", seen.name},
            {"state", history_states[static_cast<size_t>(seen.state)]},
            {"currency", price.currency},
            {"machine", amount_json(price.machine)},
            {"disk", amount_json(price.disk)},
            {"address", amount_json(price.address)},
            {"billed_while_stopped", price.billed_while_stopped},
            {"gpu", seen.gpu},
            {"gpu_count", seen.gpu_count},
            {"region", seen.region},
            {"size", seen.size},
            {"tags", seen.tags}};
}

std::optional<Sighting> parse_line(const std::string& line) try {
    auto json = HistoryJson::parse(line);
    Sighting seen{json.at("at"), json.at("provider"), json.at("id"), json.at("name")};
    const std::string state = json.at("state");
    auto found = std::find(history_states.begin(), history_states.end(), state);
    if (found == history_states.end() || !ui::seconds_of(seen.at) || seen.at < earliest) return std::nullopt;
    seen.state = static_cast<MachineState>(found - history_states.begin());
    seen.price.currency = json.at("currency");
    seen.price.machine = amount_of(json, "machine");
    seen.price.disk = amount_of(json, "disk");
    seen.price.address = amount_of(json, "address");
    seen.price.billed_while_stopped = json.at("billed_while_stopped");
    seen.gpu = json.at("gpu");
    seen.gpu_count = json.at("gpu_count");
    seen.region = json.at("region");
    seen.size = json.at("size");
    seen.tags = json.at("tags").get<std::map<std::string, std::string>>();
    return seen;
} catch (const HistoryJson::exception&) {
    return std::nullopt;
}

History::All parse_history(const std::string& text) {
    History::All all;
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
        if (line.empty()) continue;
        auto seen = parse_line(line);
        if (seen)
            all.sightings.push_back(std::move(*seen));
        else
            ++all.damaged;
    }
    return all;
}

bool same_but_for_time(Sighting a, const Sighting& b) {
    a.at = b.at;
    return line_of(a) == line_of(b);
}

// Those that differ from the last one of the same machine.
std::string new_lines(const History::All& known, const std::vector<Sighting>& sightings) {
    auto last = last_of_each(known.sightings);
    std::string lines;
    for (const auto& seen : sightings) {
        auto before = last.find({seen.provider, seen.id});
        // What was seen by a clock that was ahead would hide, until then, what is now.
        const bool was_ahead = before != last.end() && before->second.at > seen.at;
        if (before != last.end() && !was_ahead && same_but_for_time(before->second, seen)) continue;
        lines += line_of(seen).dump(-1, ' ', false, HistoryJson::error_handler_t::replace) + "\n";
        last.insert_or_assign({seen.provider, seen.id}, seen);
    }
    return lines;
}

Result<> append(int fd, const std::string& path, const std::string& text) {
    for (size_t done = 0; done < text.size();) {
        auto wrote = ::write(fd, text.data() + done, text.size() - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return file_error("cannot write", path, errno);
        done += static_cast<size_t>(wrote);
    }
    return Ok{};
}

}  // namespace

Sighting sighting_of(const std::string& at, const std::string& provider, const Machine& machine, const Record& record) {
    Sighting seen{at, provider, machine.id, machine.name, machine.state, machine.price};
    bool has = !record.has_gpu.empty();
    seen.gpu = has ? record.has_gpu : record.gpu;
    seen.gpu_count = seen.gpu.empty() ? 0 : has ? record.has_count : record.count;
    seen.region = machine.region;
    seen.size = machine.offer;
    seen.tags = record.tags;
    return seen;
}

Result<History::All> History::all() const {
    auto text = read_file(path_, history_bytes_max);
    if (text) return parse_history(*text);
    if (text.error().kind == Error::Kind::not_found) return All{};
    return text.error();
}

Result<> History::note(const std::vector<Sighting>& sightings) {
    if (sightings.empty()) return Ok{};
    // Mostly nothing is new, and then a folder that cannot be written to is no trouble.
    if (auto known = all(); known && new_lines(*known, sightings).empty()) return Ok{};
    if (sightings.front().at < earliest)
        return Error{Error::Kind::internal, "this computer's clock is wrong: it says " + sightings.front().at};
    if (auto made = make_folders(path_.substr(0, path_.rfind('/'))); !made) return made;
    auto fd = open_file(path_, O_RDWR | O_CREAT | O_APPEND);
    if (!fd) return fd.error();
    // Held while we look and write, which takes milliseconds: another tnr sees what we wrote.
    if (auto locked = wait_for_lock(fd->get()); !locked) return locked;
    auto text = read_file(path_, history_bytes_max);
    if (!text) return text.error();
    std::string lines = new_lines(parse_history(*text), sightings);
    // A line that a full disk or a crash has cut off must not take ours with it.
    if (!lines.empty() && !text->empty() && text->back() != '\n') lines.insert(0, "\n");
    return append(fd->get(), path_, lines);
}

std::map<std::pair<std::string, std::string>, Sighting> last_of_each(const std::vector<Sighting>& sightings) {
    std::map<std::pair<std::string, std::string>, Sighting> last;
    for (const auto& seen : sightings) last.insert_or_assign({seen.provider, seen.id}, seen);
    return last;
}

}  // namespace tnr::cli

// Clouds that tests own: a server in Python, and a CloudWorld in which no pause takes time.
#pragma once

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "api_client/cloud.hpp"
#include "python_server.hpp"
#include "tests/support/catch.hpp"

namespace tnr::test {

// A mock cloud and what its driver gets: its token, its address in `variable`, pauses that only count.
class MockCloud {
public:
    using Json = nlohmann::json;
    static constexpr const char* token = "mock-token-0123456789abcdef";

    MockCloud(const std::string& cloud, const std::string& script, const std::string& variable, const std::string& path)
        : MockCloud(cloud, PythonServer::twin(script), variable, path) {}
    // With a server that is shared by tests.
    MockCloud(const std::string& cloud, std::shared_ptr<PythonServer> server, const std::string& variable,
              const std::string& path)
        : cloud_(cloud), server_(std::move(server)) {
        std::string name = (std::filesystem::temp_directory_path() / "tnr-cloud-XXXXXX").string();
        if (!::mkdtemp(name.data())) std::abort();
        folder = name;
        variables[variable] = server_->url() + path;
        world.variable = [this](const std::string& name) {
            auto found = variables.find(name);  // and nothing is changed, for several threads may ask
            return found == variables.end() ? std::string() : found->second;
        };
        world.home = folder;
        world.cache_folder = folder / "cache";
        world.now = [this] { return now; };
        world.http.pause = [this](int milliseconds) {
            paused_ms += milliseconds;
            return true;
        };
        world.http.explain = [this](const std::string& line) { explained += line + "\n"; };
    }
    // Whatever a test was about, requests and replies were as the cloud describes them.
    ~MockCloud() {
        const Json violations = ask("violations");
        if (violations.is_null())
            WARN("no API description (TNR_API_SPECS) or no openapi-core: " + cloud_ + " was not checked against it");
        else
            CHECK(violations == Json::array());
        CHECK(explained.find(token) == std::string::npos);
        std::error_code ignored;
        std::filesystem::remove_all(folder, ignored);
    }

    std::unique_ptr<Provider> provider(const std::string& with_token = token) {
        return find_cloud(cloud_)->make({{{"token", with_token}}, "the test"}, world);
    }
    Json ask(const std::string& what, const Json& body = {}) {
        http::Client client({});
        http::Request request{.method = body.is_null() ? "GET" : "POST", .url = server_->url() + "/mock/" + what};
        if (!body.is_null()) request.body = body.dump();
        auto response = client.send(request);
        return response ? Json::parse(response->body) : Json("the mock does not answer");
    }
    void fail_next(const Json& fault) { ask("faults", Json::array({fault})); }
    // How many requests of that kind there were.
    int count(const std::string& method, const std::string& path) {
        int found = 0;
        for (const Json& entry : ask("log")) found += entry["method"] == method && entry["path"] == path;
        return found;
    }

    // What the last request of that kind has brought.
    Json sent(const std::string& method, const std::string& path) {
        Json body;
        for (const Json& entry : ask("log"))
            if (entry["method"] == method && entry["path"] == path)
                body = Json::parse(entry["body"].get<std::string>());
        return body;
    }

    std::filesystem::path folder;  // its home and cache, which go with the object
    CloudWorld world;
    std::map<std::string, std::string> variables;
    std::string now = "2026-01-02T03:04:05Z", explained;
    std::atomic<int> paused_ms = 0;

private:
    std::string cloud_;
    std::shared_ptr<PythonServer> server_;
};

// A price list that makes no sense is not kept, and keeps nobody from deleting. `World` is a cloud with a provider() that asks it
// anew each time.
template <class World>
void live_without_prices(World& cloud, const Order& order, const nlohmann::json& nonsense) {
    auto made = cloud.provider()->create(order);
    REQUIRE(made);
    cloud.now = "2026-01-03T00:00:00Z";  // what was kept is too old
    cloud.fail_next({{"path", "/pricing$"}, {"status", 200}, {"times", 99}, {"body", {{"pricing", nonsense}}}});
    auto machines = cloud.provider()->machines();
    REQUIRE(machines);
    REQUIRE(machines->size() == 1);
    CHECK_FALSE(machines->front().price.running());
    CHECK(machines->front().price.source.find("unknown: ") == 0);
    cloud.ask("knobs", {{"no_faults", true}});
    auto offers = cloud.provider()->offers();
    REQUIRE(offers);
    CHECK(offers->front().price.running());
    cloud.now = "2026-01-04T00:00:00Z";
    cloud.fail_next({{"path", "/pricing$"}, {"status", 500}, {"times", 99}});
    REQUIRE(cloud.provider()->destroy(made->id));
    CHECK(cloud.ask("left") == nlohmann::json::array());
}

// What there is of a machine that has not come to be, in a few words each, sorted. Then it is removed.
inline std::vector<std::string> remove_what_is_left(Provider& provider, const std::string& name) {
    auto left = provider.leftovers(name);
    REQUIRE(left);
    std::vector<std::string> words;
    for (const auto& each : *left) words.push_back(each.what);
    for (int times = 0; times < 2; ++times)  // what is gone counts as removed
        for (const auto& each : *left) REQUIRE(provider.remove_leftover(each));
    CHECK(provider.leftovers(name)->empty());
    std::sort(words.begin(), words.end());
    return words;
}

// Looks until the machine is in that state.
inline Machine wait_until(Provider& provider, const std::string& id, MachineState state) {
    for (int looks = 0; looks < 20; ++looks) {
        auto machine = provider.machine(id);
        REQUIRE(machine);
        if (machine->state == state) return *machine;
    }
    FAIL("machine " << id << " did not come to state " << static_cast<int>(state));
    return {};
}

}  // namespace tnr::test

// See side_by_side.hpp.
#include "cli/side_by_side.hpp"

#include <utility>

#include "api_client/base/at_once.hpp"

namespace tnr::cli {
namespace {

// Lists of machines and prices come within a second; the others are not kept waiting for more than this.
constexpr http::Limits beside_others{
    .connect_ms = 5'000, .total_ms = 15'000, .tries_max = 3, .timeouts_max = 1, .retry_after_max_ms = 5'000};

}  // namespace

void side_by_side(const Session& session, const std::vector<std::function<void()>>& questions) {
    if (session.explain || questions.size() < 2) {
        for (const auto& question : questions) question();
        return;
    }
    at_once(questions);
}

Result<std::unique_ptr<Provider>> open_to_ask(Session& session, const std::string& name) {
    auto before = std::exchange(session.world.limits, beside_others);
    auto provider = session.provider(name);
    session.world.limits = before;
    return provider;
}

std::unique_ptr<Provider> open_to_ask(Session& session, const Cloud& cloud, const Credentials& credentials) {
    auto before = std::exchange(session.world.limits, beside_others);
    auto provider = open_with(session, cloud, credentials);
    session.world.limits = before;
    return provider;
}

}  // namespace tnr::cli

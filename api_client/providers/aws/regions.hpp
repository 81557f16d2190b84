// Asking all regions at once: EC2 has no other way to say what there is.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "api_client/base/interrupt.hpp"
#include "api_client/base/mutex.hpp"
#include "api_client/http/json_api.hpp"
#include "api_client/providers/aws/api.hpp"

namespace tnr::aws {

// Those that the account has enabled.
Result<std::vector<std::string>> regions(Api& api);

// A policy that keeps an account to some regions: nothing of ours can have been made in the others.
bool is_closed_region(const Error& error);

// Explaining is not made for several threads.
CloudWorld world_for_threads(const CloudWorld& world);

// What `look` finds in each region, with a few threads, each with a connection of its own. One failure is everybody's: half an
// answer would hide machines that cost money.
template <class Thing>
Result<std::vector<Thing>> in_all_regions(
    Api& api, const CloudWorld& world,
    const std::function<Result<std::vector<Thing>>(Api&, const std::string& region)>& look) {
    constexpr size_t threads_max = 8;
    auto all = regions(api);
    if (!all) return all.error();
    const CloudWorld shared = world_for_threads(world);
    std::vector<Result<std::vector<Thing>>> found(all->size(), Result<std::vector<Thing>>{std::vector<Thing>{}});
    std::vector<Api> apis;
    for (size_t i = 0; i < std::min(threads_max, all->size()); ++i) {
        auto sibling = api.sibling(shared);
        if (!sibling) return sibling.error();
        apis.push_back(std::move(*sibling));
    }
    std::atomic<size_t> next = 0;
    std::vector<std::thread> threads;
    {
        const interrupt::SignalsBlocked blocked;
        for (auto& own : apis)
            threads.emplace_back([&] {
                for (size_t at = next++; at < all->size(); at = next++)
                    found[at] = http::understood("AWS", [&] { return look(own, (*all)[at]); });
            });
    }
    for (auto& thread : threads) thread.join();
    std::vector<Thing> things;
    for (auto& part : found) {
        if (!part && is_closed_region(part.error())) continue;
        if (!part) return part.error();
        for (auto& thing : *part) things.push_back(std::move(thing));
    }
    return things;
}

}  // namespace tnr::aws

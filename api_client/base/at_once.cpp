// See at_once.hpp.
#include "api_client/base/at_once.hpp"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>

#include "api_client/base/interrupt.hpp"

namespace tnr {

void at_once(const std::vector<std::function<void()>>& questions) {
    std::atomic<size_t> next{0};
    auto ask = [&] {
        for (size_t i = next++; i < questions.size(); i = next++) questions[i]();
    };
    std::vector<std::thread> threads;
    try {
        const interrupt::SignalsBlocked blocked;
        while (threads.size() + 1 < std::min(questions.size(), at_once_max)) threads.emplace_back(ask);
    } catch (const std::system_error&) {
        // What there is has to do.
    }
    ask();
    for (auto& thread : threads) thread.join();
}

}  // namespace tnr

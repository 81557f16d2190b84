// What commands say, for a test that looks at it meanwhile.
#pragma once

#include <chrono>
#include <mutex>
#include <streambuf>
#include <string>
#include <thread>

namespace tnr::test {

// A log that its reader may look at while it is written.
class Log : public std::streambuf {
public:
    // False: a minute has passed without.
    bool comes_to_say(const std::string& words) {
        const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (std::chrono::steady_clock::now() < limit) {
            {
                const std::lock_guard lock(mutex_);
                if (text_.find(words) != std::string::npos) return true;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        return false;
    }

protected:
    int_type overflow(int_type letter) override {
        const std::lock_guard lock(mutex_);
        if (letter != traits_type::eof()) text_ += traits_type::to_char_type(letter);
        return traits_type::not_eof(letter);
    }

private:
    std::mutex mutex_;
    std::string text_;
};

}  // namespace tnr::test

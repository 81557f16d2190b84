// What the threads of a test have found wrong. Catch2's assertions are for the thread alone that runs the test.
#pragma once

#include <string>

#include "api_client/base/mutex.hpp"

namespace tnr::test {

class Complaints {
public:
    // Any thread may call it. Answers `good`.
    bool expect(bool good, const std::string& what) {
        LockGuard lock(mutex_);
        if (!good) text_ += what + "\n";
        return good;
    }
    // Empty when everything was as expected.
    std::string text() const {
        LockGuard lock(mutex_);
        return text_;
    }

private:
    mutable Mutex mutex_;
    std::string text_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::test

// A value or what went wrong: how every part of tnr reports what can happen to a careful user.
// What only a bug can cause is an assert. Exceptions stay inside the libraries that throw them.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace tnr {

// What went wrong, in the user's words, and what they can do about it.
struct Error {
    enum class Kind { usage, auth, not_found, network, remote, internal };
    Kind kind;
    std::string what;       // "instance 'gpu-7' does not exist"
    std::string hint = {};  // "run `tnr status` to see yours"; empty when we would be guessing
};

struct Ok {};

// It becomes std::expected<T, Error> when we move to C++23. Not thread-safe, like any value.
template <class T = Ok>
class [[nodiscard]] Result {
public:
    Result(T value) : state_(std::move(value)) {}
    Result(Error error) : state_(std::move(error)) {}

    explicit operator bool() const { return std::holds_alternative<T>(state_); }
    T& operator*() { return std::get<T>(state_); }
    const T& operator*() const { return std::get<T>(state_); }
    T* operator->() { return &std::get<T>(state_); }
    const T* operator->() const { return &std::get<T>(state_); }
    const Error& error() const { return std::get<Error>(state_); }

private:
    std::variant<T, Error> state_;
};

}  // namespace tnr

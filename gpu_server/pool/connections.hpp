// Who has how many connections open: sources (addresses) that have not proven any key yet, keys, and accounts.
//
// A connection counts for its source from the moment it is accepted, and no more once a key is proven: so somebody who opens
// many and says nothing, or makes us check one wrong key after the other, is stopped without a handshake, and those who come
// from elsewhere, or are in already, never notice. Behind one address, a router's, there may be others than him: so when all
// of its places are taken, who has had the time that a handshake takes makes room for who comes. Any thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <string>

#include "api_client/base/mutex.hpp"

namespace tnr::server {

struct ConnectionLimits {
    size_t unproven_per_source = 0;  // at once
    double unproven_per_second = 0;  // of a source, in the long run; those that prove a key do not count …
    double unproven_burst = 0;       // … and this many may come at once
    size_t per_key = 0;
    size_t per_account = 0;
    size_t crowded = 0;                      // beyond per_key or per_account: so many are let in to be told
    std::chrono::milliseconds handshake{0};  // what one that has proven no key has at least, also when others come
    double unproven_per_second_known = 0;    // where a key has been proven lately: its owner must get in between them
    std::chrono::seconds known_for{0};
};

class Connections {
public:
    using Clock = std::chrono::steady_clock;
    // `cut` ends a connection that has to make room, whose closed() follows; it is called under our lock, so that the number
    // is still that connection's.
    Connections(ConnectionLimits limits, std::function<void(int descriptor)> cut)
        : limits_(limits), cut_(std::move(cut)) {}

    // A connection from there was accepted, maybe in another's place. None: too many from there have not said yet who they
    // are; close it.
    enum class Place { free, of_another, none };
    Place accepted(int descriptor, const std::string& source, Clock::time_point now = Clock::now());
    // It has proven this key, of that account. `crowded`: let it in, but only to tell it that there are too many.
    enum class Room { enough, crowded, none };
    Room proven(int descriptor, const std::string& key, const std::string& account,
                Clock::time_point now = Clock::now());
    // Also of one that never proved a key.
    void closed(int descriptor);

    size_t of_key(const std::string& key) const;
    size_t unproven_of(const std::string& source) const;

private:
    struct Connection {
        std::string source;  // empty: not counted there any more
        std::string key, account;
        Clock::time_point since{};
    };
    struct Source {
        std::deque<int> unproven;  // who came first is first
        double spent = 0;          // of the burst
        Clock::time_point at{}, known_until{};
    };
    void forget(int descriptor) TNR_REQUIRES(mutex_);
    void leave_source(int descriptor, Connection& connection) TNR_REQUIRES(mutex_);
    Place make_room(Source& source, Clock::time_point now) TNR_REQUIRES(mutex_);
    Source& source(const std::string& name, Clock::time_point now) TNR_REQUIRES(mutex_);

    const ConnectionLimits limits_;
    const std::function<void(int)> cut_;
    mutable Mutex mutex_;
    std::map<int, Connection> open_ TNR_GUARDED_BY(mutex_);
    std::map<std::string, Source> sources_ TNR_GUARDED_BY(mutex_);
    std::map<std::string, size_t> keys_ TNR_GUARDED_BY(mutex_), accounts_ TNR_GUARDED_BY(mutex_);
};

}  // namespace tnr::server

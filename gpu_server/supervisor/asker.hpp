// The connection over which a session was asked for. While its client has not connected to the worker, this is all that
// tells whether there still is a client: a program that is killed has its connection closed by its kernel.
#pragma once

#include "api_client/base/handles.hpp"

namespace tnr::server {

class Asker {
public:
    Asker() = default;  // no connection to look at
    // `connection`: ZeroMQ's descriptor, of which we keep a duplicate.
    explicit Asker(int connection);
    bool gone() const;

private:
    UniqueFd connection_;
};

}  // namespace tnr::server

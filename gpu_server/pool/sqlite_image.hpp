// The store of accounts as bytes: what a SQLite file of it would have.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gpu_server/pool/store.hpp"

namespace tnr::server {

struct StoreImage {
    std::unique_ptr<Store> store;        // in memory
    std::function<std::string()> image;  // as it is now; while `store` lives
    // The account's key and tokens go, and one of `parts` parts of its machines; while `store` lives. Nobody of the account is
    // let in from then on. Its limits stay for whoever makes the rest of the change, or makes it again.
    std::function<Result<>(const std::string& account, int64_t parts)> remove_part;
};
// Empty bytes: a new one.
Result<StoreImage> open_store_image(const std::string& bytes);

}  // namespace tnr::server

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
};
// Empty bytes: a new one.
Result<StoreImage> open_store_image(const std::string& bytes);

}  // namespace tnr::server

// Code images on disk, so that a program's second run need not send them: which files there are, whose they are, and which
// go when there are too many. Whoever reads a file checks its contents against its name.
//
//   STATE/images/TENANT/HASH        mode 0600 in folders of mode 0700
//   STATE/images/TENANT/HASH.new    being written; what a crash leaves is removed at the start
//
// A tenant is an account. Where there are no accounts (an open pool) it is a machine, as it names itself: whoever reaches
// such a pool may also join that machine's claims. Nothing is shared between tenants, not even the knowledge that somebody
// else's cache has an image.
//
// A file's time of modification is when it was last used. No locks, one thread; nothing here reads or writes contents.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"
#include "gpu_client/protocol/image_hash.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

struct ImageCacheLimits {
    uint64_t bytes = default_image_cache_mib << 20;  // of all tenants; 0: no cache
    uint64_t tenant_bytes = tenant_image_bytes_max;
    size_t tenant_images = tenant_images_max;
    uint64_t disk_bytes_free = disk_bytes_kept_free;
};

// The tenant's name, fit for a folder; empty when both are empty.
std::string image_tenant(const std::string& account, const std::string& machine);
// The account of such a name; empty for machines.
std::string account_of_tenant(const std::string& tenant);

class ImageCache {
public:
    // Reads what is there and removes what a crash has left. A folder that cannot be used is an error.
    static Result<ImageCache> open(const std::filesystem::path& folder, const ImageCacheLimits& limits);

    // A descriptor to read the image from; none when it is not there.
    UniqueFd find(const std::string& tenant, const wire::ImageHash& hash, uint64_t bytes);

    // Where to write an image (then rename it to the same without ".new"), after room has been made for it by dropping
    // what was used longest ago: the tenant's own first, then anybody's. Empty: there is no room for it.
    std::filesystem::path begin(const std::string& tenant, const wire::ImageHash& hash, uint64_t bytes);
    // Tells whether what begin() made room for has been written. Call it once for each begin() that found room.
    void end(const std::string& tenant, const wire::ImageHash& hash, uint64_t bytes, bool written);

    // False: it was not there.
    bool remove(const std::string& tenant, const wire::ImageHash& hash);
    void forget(const std::string& tenant);
    // Forgets the tenants that are not `known` any more, and images that nobody has used for the time `unused`.
    void tidy(const std::function<bool(const std::string& tenant)>& known, std::chrono::hours unused);

    uint64_t bytes() const { return bytes_; }  // of all, with those for which room has been made

private:
    struct Image {
        uint64_t bytes = 0;
        int64_t used_ns = 0;  // since 1970
    };
    struct Tenant {
        std::map<std::string, Image> images;  // by file name
        uint64_t bytes = 0;                   // with those on their way
        size_t arriving = 0;
    };
    using Tenants = std::map<std::string, Tenant>;

    ImageCache(std::filesystem::path folder, const ImageCacheLimits& limits)
        : folder_(std::move(folder)), limits_(limits) {}
    void read(const std::filesystem::path& folder);
    void drop(Tenant& tenant, const std::string& tenant_name, const std::string& file);
    void drop_oldest_of(const std::string& tenant_name);
    void drop_oldest_of_all();
    bool make_room(const std::string& tenant, uint64_t bytes);

    std::filesystem::path folder_;
    ImageCacheLimits limits_;
    Tenants tenants_;
    uint64_t bytes_ = 0;
};

}  // namespace tnr::server

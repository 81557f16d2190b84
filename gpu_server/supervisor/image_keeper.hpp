// Serves workers from the cache of code images: they have no filesystem of their own. Files travel as descriptors, so
// nothing of 400 MB passes through here; a helper process writes what shall be kept (store_image.cpp).
//
// An image that is still being written is lent from the memory it arrived in: a program's second run may start the moment
// its first has ended.
#pragma once

#include <deque>
#include <functional>
#include <list>

#include "gpu_server/supervisor/event_loop.hpp"
#include "gpu_server/supervisor/image_cache.hpp"
#include "gpu_server/supervisor/reaper.hpp"
#include "gpu_server/supervisor/turns.hpp"
#include "gpu_server/supervisor/workers.hpp"

namespace tnr::server {

class ImageKeeper {
public:
    // `known`: whether the tenant is still enrolled.
    using Known = std::function<bool(const std::string& tenant)>;
    ImageKeeper(EventLoop& loop, Reaper& reaper, Workers& workers, ImageCache cache, Known known);
    ~ImageKeeper();

    void forget(const std::string& tenant);

private:
    // On its way from a worker's memory to the disk.
    struct Arriving {
        std::string tenant;
        wire::ImageHash hash;
        uint64_t bytes = 0;
        UniqueFd file;  // sealed: nobody can change it
        bool forgotten = false;
        pid_t writer = -1;  // -1: waits for its turn
        UniqueFd control;
        EventLoop::TimerId timeout = 0;
    };
    using At = std::list<Arriving>::iterator;

    bool understand(Worker& worker, const ImageMessage& message, UniqueFd file);
    UniqueFd find(const std::string& tenant, const wire::ImageHash& hash, uint64_t bytes);
    bool keep(const std::string& tenant, const wire::ImageHash& hash, uint64_t bytes, UniqueFd file);
    bool has_room_for(const std::string& tenant, const wire::ImageHash& hash, uint64_t bytes) const;
    void write_next();
    bool write(At arriving);
    void written(At arriving, int status);
    // Tenants can have these lines written as often as they like: some of them are.
    void warn(const std::string& tenant, const std::string& what);
    void tidy();

    EventLoop& loop_;
    Reaper& reaper_;
    Workers& workers_;
    ImageCache cache_;
    Known known_;
    std::list<Arriving> arriving_;
    Allowances lines_{image_lines_per_second_max, image_lines_burst};  // by tenant
};

}  // namespace tnr::server

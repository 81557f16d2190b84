// See image_keeper.hpp.
#include "gpu_server/supervisor/image_keeper.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpu_client/protocol/control.hpp"
#include "gpu_client/protocol/limits.hpp"
#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/child.hpp"

namespace tnr::server {

using nlohmann::json;

ImageKeeper::ImageKeeper(EventLoop& loop, Reaper& reaper, Workers& workers, ImageCache cache, Known known)
    : loop_(loop), reaper_(reaper), workers_(workers), cache_(std::move(cache)), known_(std::move(known)) {
    workers_.on_image_message([this](Worker& worker, const ImageMessage& message, UniqueFd file) {
        return understand(worker, message, std::move(file));
    });
    tidy();
}

ImageKeeper::~ImageKeeper() {
    for (auto& one : arriving_)
        if (one.writer > 0) kill_child(one.writer);
}

bool ImageKeeper::understand(Worker& worker, const ImageMessage& message, UniqueFd file) {
    if (auto* wanted = std::get_if<FindImage>(&message)) {
        auto found = find(worker.tenant, wanted->hash, wanted->bytes);
        workers_.tell(worker, {{"image", {{"ticket", wanted->ticket}}}}, found.get());
        return true;
    }
    if (auto* brought = std::get_if<KeepImage>(&message))
        return keep(worker.tenant, brought->hash, brought->bytes, std::move(file));
    const auto& hash = std::get<DamagedImage>(message).hash;
    if (cache_.remove(worker.tenant, hash))
        warn(worker.tenant, "the code image " + wire::to_hex(hash) + " of " + worker.tenant +
                                " is damaged; removed, it will be sent again");
    return true;
}

void ImageKeeper::warn(const std::string& tenant, const std::string& what) {
    if (lines_.take(tenant, loop_.now())) log(LogLevel::warning, what);
}

UniqueFd ImageKeeper::find(const std::string& tenant, const wire::ImageHash& hash, uint64_t bytes) {
    for (auto& one : arriving_)
        if (!one.forgotten && one.tenant == tenant && one.hash == hash && one.bytes == bytes)
            return UniqueFd(fcntl(one.file.get(), F_DUPFD_CLOEXEC, 0));
    return cache_.find(tenant, hash, bytes);
}

// The file comes from a process that a stranger has fed: it must be plain memory of that size which nobody can change any
// more. What is in it is checked by whoever loads it.
static bool is_sealed(const UniqueFd& file, uint64_t bytes) {
    constexpr int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct stat status {};
    int seals = file ? fcntl(file.get(), F_GET_SEALS) : -1;
    return seals >= 0 && (seals & all) == all && fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
           static_cast<uint64_t>(status.st_size) == bytes;
}

bool ImageKeeper::keep(const std::string& tenant, const wire::ImageHash& hash, uint64_t bytes, UniqueFd file) {
    if (bytes < wire::offered_image_bytes_min || bytes > wire::image_bytes_max) return false;
    if (tenant.empty() || !is_sealed(file, bytes) || !known_(tenant) || !has_room_for(tenant, hash, bytes)) return true;
    Arriving arriving;
    arriving.tenant = tenant;
    arriving.hash = hash;
    arriving.bytes = bytes;
    arriving.file = std::move(file);
    arriving_.push_back(std::move(arriving));
    write_next();
    return true;
}

bool ImageKeeper::has_room_for(const std::string& tenant, const wire::ImageHash& hash, uint64_t bytes) const {
    uint64_t all = bytes, of_tenant = bytes;
    for (auto& one : arriving_) {
        bool same_tenant = one.tenant == tenant;
        if (same_tenant && one.hash == hash) return false;  // two of its programs have brought the same
        all += one.bytes;
        if (same_tenant) of_tenant += one.bytes;
    }
    return arriving_.size() < arriving_images_max && all <= arriving_image_bytes_max &&
           of_tenant <= arriving_image_bytes_max / 2;
}

void ImageKeeper::write_next() {
    auto writing = [](auto& one) { return one.writer > 0; };
    for (auto at = arriving_.begin(); at != arriving_.end();) {
        auto next = std::next(at);
        if (static_cast<size_t>(std::count_if(arriving_.begin(), arriving_.end(), writing)) >= image_writers_max)
            return;
        if (!writing(*at) && !write(at)) arriving_.erase(at);
        at = next;
    }
}

bool ImageKeeper::write(At arriving) {
    if (arriving->forgotten || !known_(arriving->tenant)) return false;
    auto path = cache_.begin(arriving->tenant, arriving->hash, arriving->bytes);
    if (path.empty()) return false;
    ChildPlan plan{
        "/proc/self/exe", {"store-image", path.string(), std::to_string(arriving->bytes)}, inherited_environment()};
    plan.listen_fd = arriving->file.get();
    auto child = start_child(plan);
    if (!child) {
        cache_.end(arriving->tenant, arriving->hash, arriving->bytes, false);
        return false;
    }
    arriving->writer = child->pid;
    arriving->control = std::move(child->control);
    arriving->timeout = loop_.after(image_write_timeout, [pid = child->pid] { kill_child(pid); });
    reaper_.expect(child->pid, [this, arriving](int status) { written(arriving, status); });
    return true;
}

void ImageKeeper::written(At arriving, int status) {
    loop_.cancel(arriving->timeout);
    auto received = receive_message(arriving->control.get());
    auto answer = control::parse(received.text.data(), received.text.size());
    bool stored = answer && answer->contains("stored");
    if (stored) {
        log(LogLevel::debug, "kept code image " + wire::to_hex(arriving->hash) + " of " + arriving->tenant);
    } else {
        std::string how = "its writer " + describe_exit(status);
        if (answer && answer->contains("failed") && (*answer)["failed"].is_string()) how = (*answer)["failed"];
        warn(arriving->tenant, "a code image could not be kept: " + printable(how));
    }
    cache_.end(arriving->tenant, arriving->hash, arriving->bytes, stored);
    if (arriving->forgotten) cache_.remove(arriving->tenant, arriving->hash);
    if (!known_(arriving->tenant)) cache_.forget(arriving->tenant);
    arriving_.erase(arriving);
    write_next();
}

void ImageKeeper::forget(const std::string& tenant) {
    for (auto& one : arriving_)
        if (one.tenant == tenant) one.forgotten = true;
    cache_.forget(tenant);
}

void ImageKeeper::tidy() {
    cache_.tidy(known_, images_unused_max);
    loop_.after(image_cache_tidied_every, [this] { tidy(); });
}

}  // namespace tnr::server

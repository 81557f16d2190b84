// See image_cache.hpp.
#include "gpu_server/supervisor/image_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/request.hpp"

namespace tnr::server {

namespace fs = std::filesystem;

static const std::string account_prefix = "account-", machine_prefix = "machine-";
static constexpr const char* unfinished = ".new";

std::string image_tenant(const std::string& account, const std::string& machine) {
    if (is_name(account)) return account_prefix + account;
    return account.empty() && is_name(machine) ? machine_prefix + machine : std::string();
}

std::string account_of_tenant(const std::string& tenant) {
    return tenant.starts_with(account_prefix) ? tenant.substr(account_prefix.size()) : std::string();
}

static int64_t since_1970(const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

static int64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return since_1970(now);
}

Result<ImageCache> ImageCache::open(const fs::path& folder, const ImageCacheLimits& limits) {
    ImageCache cache(folder, limits);
    if (limits.bytes == 0) {
        std::error_code error;
        fs::remove_all(folder, error);
        return cache;
    }
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
        return Error{Error::Kind::internal, "cannot make " + folder.string() + ": " + std::strerror(errno)};
    std::error_code error;
    for (auto& entry : fs::directory_iterator(folder, error)) cache.read(entry.path());
    if (error) return Error{Error::Kind::internal, "cannot read " + folder.string() + ": " + error.message()};
    while (cache.bytes_ > limits.bytes) cache.drop_oldest_of_all();
    return cache;
}

void ImageCache::read(const fs::path& folder) {
    std::error_code error;
    auto name = folder.filename().string();
    if (!name.starts_with(account_prefix) && !name.starts_with(machine_prefix)) return;
    auto& tenant = tenants_[name];
    for (auto& entry : fs::directory_iterator(folder, error)) {
        auto file = entry.path().filename().string();
        struct stat status {};
        bool sound = lstat(entry.path().c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
                     wire::image_hash_from_hex(file).has_value();
        if (!sound) {
            fs::remove_all(entry.path(), error);
            continue;
        }
        auto bytes = static_cast<uint64_t>(status.st_size);
        tenant.images[file] = {bytes, since_1970(status.st_mtim)};
        tenant.bytes += bytes;
        bytes_ += bytes;
    }
}

UniqueFd ImageCache::find(const std::string& tenant_name, const wire::ImageHash& hash, uint64_t bytes) {
    auto tenant = tenants_.find(tenant_name);
    if (tenant == tenants_.end()) return {};
    auto name = wire::to_hex(hash);
    auto image = tenant->second.images.find(name);
    if (image == tenant->second.images.end() || image->second.bytes != bytes) return {};
    auto path = folder_ / tenant_name / name;
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat status {};
    if (!file || fstat(file.get(), &status) != 0 || static_cast<uint64_t>(status.st_size) != bytes) {
        drop(tenant->second, tenant_name, name);  // the operator has emptied it, or a power cut has
        return {};
    }
    image->second.used_ns = now_ns();
    (void)futimens(file.get(), nullptr);
    return file;
}

fs::path ImageCache::begin(const std::string& tenant_name, const wire::ImageHash& hash, uint64_t bytes) {
    if (tenant_name.empty() || !make_room(tenant_name, bytes)) return {};
    auto folder = folder_ / tenant_name;
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return {};
    auto& tenant = tenants_[tenant_name];
    tenant.bytes += bytes;
    ++tenant.arriving;
    bytes_ += bytes;
    return folder / (wire::to_hex(hash) + unfinished);
}

void ImageCache::end(const std::string& tenant_name, const wire::ImageHash& hash, uint64_t bytes, bool written) {
    auto& tenant = tenants_[tenant_name];
    tenant.bytes -= bytes;
    --tenant.arriving;
    bytes_ -= bytes;
    if (!written) return;
    auto& image = tenant.images[wire::to_hex(hash)];  // it may have replaced one that was damaged
    tenant.bytes += bytes - image.bytes;
    bytes_ += bytes - image.bytes;
    image = {bytes, now_ns()};
}

bool ImageCache::make_room(const std::string& tenant_name, uint64_t bytes) {
    if (bytes > limits_.bytes || bytes > limits_.tenant_bytes) return false;
    auto full = [&](const Tenant& tenant) {
        return tenant.bytes + bytes > limits_.tenant_bytes ||
               tenant.images.size() + tenant.arriving >= limits_.tenant_images;
    };
    auto& tenant = tenants_[tenant_name];
    while (full(tenant) && !tenant.images.empty()) drop_oldest_of(tenant_name);
    auto any = [&] {
        return std::any_of(tenants_.begin(), tenants_.end(), [](auto& one) { return !one.second.images.empty(); });
    };
    while (bytes_ + bytes > limits_.bytes && any()) drop_oldest_of_all();
    struct statvfs disk {};
    bool space = statvfs(folder_.c_str(), &disk) == 0 &&
                 uint64_t{disk.f_bavail} * disk.f_frsize >= bytes + limits_.disk_bytes_free;
    return space && !full(tenant) && bytes_ + bytes <= limits_.bytes;
}

static auto oldest(auto& images) {
    return std::min_element(images.begin(), images.end(),
                            [](auto& one, auto& other) { return one.second.used_ns < other.second.used_ns; });
}

void ImageCache::drop_oldest_of(const std::string& tenant_name) {
    auto& tenant = tenants_[tenant_name];
    drop(tenant, tenant_name, std::string(oldest(tenant.images)->first));
}

void ImageCache::drop_oldest_of_all() {
    const std::string* of = nullptr;
    int64_t used_ns = 0;
    for (auto& [name, tenant] : tenants_) {
        if (tenant.images.empty()) continue;
        auto candidate = oldest(tenant.images)->second.used_ns;
        if (!of || candidate < used_ns) of = &name, used_ns = candidate;
    }
    if (of) drop_oldest_of(*of);
}

void ImageCache::drop(Tenant& tenant, const std::string& tenant_name, const std::string& file) {
    auto image = tenant.images.find(file);
    if (image == tenant.images.end()) return;
    ::unlink((folder_ / tenant_name / file).c_str());  // who has it open may go on reading
    tenant.bytes -= image->second.bytes;
    bytes_ -= image->second.bytes;
    tenant.images.erase(image);
}

bool ImageCache::remove(const std::string& tenant_name, const wire::ImageHash& hash) {
    auto tenant = tenants_.find(tenant_name);
    if (tenant == tenants_.end() || tenant->second.images.count(wire::to_hex(hash)) == 0) return false;
    drop(tenant->second, tenant_name, wire::to_hex(hash));
    return true;
}

void ImageCache::forget(const std::string& tenant_name) {
    auto tenant = tenants_.find(tenant_name);
    if (tenant == tenants_.end() || tenant_name.empty()) return;
    while (!tenant->second.images.empty()) drop_oldest_of(tenant_name);
    ::rmdir((folder_ / tenant_name).c_str());  // unless something is just being written
    if (tenant->second.arriving == 0) tenants_.erase(tenant);
}

void ImageCache::tidy(const std::function<bool(const std::string&)>& known, std::chrono::hours unused) {
    std::vector<std::string> names;
    for (auto& one : tenants_) names.push_back(one.first);
    auto too_old = now_ns() - std::chrono::nanoseconds(unused).count();
    for (auto& name : names) {
        auto& tenant = tenants_[name];
        while (!tenant.images.empty() && oldest(tenant.images)->second.used_ns < too_old) drop_oldest_of(name);
        if (!known(name) || (tenant.images.empty() && tenant.arriving == 0)) forget(name);
    }
}

}  // namespace tnr::server

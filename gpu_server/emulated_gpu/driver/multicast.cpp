// See multicast.hpp.
#include "gpu_server/emulated_gpu/driver/multicast.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

namespace tnr::emulated {
namespace {

constexpr size_t bindings_max = 1024;
// Where the next memory goes is only ever counted up, so the file is as long as it will ever need to be.
constexpr int64_t file_bytes = int64_t{1} << 50, page_bytes = int64_t{2} << 20;
// How often a process looks whether the others have added their devices.
constexpr std::chrono::milliseconds team_pause{1};

}  // namespace

struct Multicast::Page {
    enum State : uint32_t { free_place, taken, live };

    struct Binding {
        std::atomic<uint32_t> state{free_place};
        uint32_t device = 0;  // place in the team
        uint64_t serial = 0;
        uint64_t offset = 0, bytes = 0;
        int64_t begin = 0;  // in the file
    };

    struct Entry {  // a look at a Binding
        size_t place = 0;
        uint32_t device = 0;
        uint64_t serial = 0, offset = 0, bytes = 0;
        int64_t begin = 0;
    };

    char magic[24] = "emulated multicast";
    uint64_t bytes = 0;
    uint32_t devices = 0;
    uint32_t shareable = 0;
    std::atomic<uint32_t> claimed{0}, added{0};
    std::array<CUuuid, devices_max> team{};
    std::atomic<int64_t> end{page_bytes};
    std::atomic<uint64_t> serial{1};
    std::array<Binding, bindings_max> bindings;

    // False for what is not live, or cannot be.
    bool look_at(size_t place, Entry& entry) const {
        auto& binding = bindings[place];
        if (binding.state.load(std::memory_order_acquire) != live) return false;
        entry = {place, binding.device, binding.serial, binding.offset, binding.bytes, binding.begin};
        return entry.offset <= bytes && entry.bytes <= bytes - entry.offset && entry.begin >= page_bytes &&
               entry.begin <= file_bytes - static_cast<int64_t>(entry.bytes) && aligned(entry.begin) &&
               entry.device < devices && entry.bytes != 0;
    }
    static bool aligned(int64_t offset) { return offset % 4096 == 0; }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

namespace {

Multicast::Page* show_page(int file) {
    static_assert(sizeof(Multicast::Page) <= page_bytes);
    void* page = mmap(nullptr, sizeof(Multicast::Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return page == MAP_FAILED ? nullptr : static_cast<Multicast::Page*>(page);
}

bool same_file(int one, int other) {
    struct stat first {
    }, second{};
    return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

}  // namespace

// What GPUs have NVLink multicast: NVIDIA's data sheets of Hopper and Blackwell for data centres.
bool has_multicast(const Device& device) {
    return device.type->multicast && !device.file;
}

std::shared_ptr<Multicast> Multicast::create(unsigned devices, uint64_t bytes, bool shareable) {
    UniqueFd file(memfd_create("emulated-gpu-multicast", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    bool made = file && ftruncate(file.get(), file_bytes) == 0 &&
                fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
    auto* page = made ? show_page(file.get()) : nullptr;
    if (!page) return nullptr;
    new (page) Page;
    page->bytes = bytes;
    page->devices = devices;
    page->shareable = shareable;
    return std::make_shared<Multicast>(std::move(file), page);
}

std::shared_ptr<Multicast> Multicast::import(const UniqueFd& given) {
    struct stat status {};
    int seals = fcntl(given.get(), F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(given.get(), &status) != 0 || status.st_size != file_bytes)
        return nullptr;
    UniqueFd file(fcntl(given.get(), F_DUPFD_CLOEXEC, 0));
    auto* page = file ? show_page(file.get()) : nullptr;
    if (!page) return nullptr;
    bool ours = std::memcmp(page->magic, Page{}.magic, sizeof page->magic) == 0 && page->shareable &&
                page->devices >= 1 && page->devices <= devices_max && page->bytes % multicast_granularity == 0 &&
                page->bytes != 0;
    if (ours) return std::make_shared<Multicast>(std::move(file), page);
    munmap(page, sizeof(Page));
    return nullptr;
}

Multicast::Multicast(UniqueFd file, Page* page)
    : Object(kind_of),
      file_(std::move(file)),
      page_(page),
      bytes_(page->bytes),
      devices_(page->devices),
      shareable_(page->shareable) {}

Multicast::~Multicast() {
    for (auto& [place, memory] : bound_) page_->bindings[place].state = Page::free_place;
    munmap(page_, sizeof(Page));
}

int Multicast::export_file() const {
    return shareable_ ? fcntl(file_.get(), F_DUPFD_CLOEXEC, 0) : -1;
}

int Multicast::place_of(const Device& device) const {
    auto count = std::min<uint32_t>(page_->added.load(std::memory_order_acquire), devices_);
    for (uint32_t place = 0; place < count; ++place)
        if (std::memcmp(&page_->team[place], &device.uuid, sizeof device.uuid) == 0) return static_cast<int>(place);
    return -1;
}

CUresult Multicast::add(const Device& device) {
    if (has(device)) return CUDA_ERROR_INVALID_VALUE;
    uint32_t place = page_->claimed.load();
    do {
        if (place >= devices_) return CUDA_ERROR_INVALID_VALUE;
    } while (!page_->claimed.compare_exchange_weak(place, place + 1));
    page_->team[place] = device.uuid;
    // In the order of the places: who counts one up has all below it.
    for (uint32_t expected = place; !page_->added.compare_exchange_weak(expected, place + 1); expected = place)
        std::this_thread::yield();
    return CUDA_SUCCESS;
}

void Multicast::wait_for_team() const {
    while (page_->added.load(std::memory_order_acquire) < devices_) std::this_thread::sleep_for(team_pause);
}

CUresult Multicast::bind(uint64_t offset, const std::shared_ptr<PhysicalMemory>& memory, uint64_t memory_offset,
                         uint64_t size, const std::function<void()>& remap) {
    int device = place_of(memory->device);
    if (device < 0) return CUDA_ERROR_INVALID_VALUE;
    Page::Entry entry;
    for (size_t place = 0; place < bindings_max; ++place)
        if (page_->look_at(place, entry) && entry.device == static_cast<uint32_t>(device) &&
            entry.offset < offset + size && offset < entry.offset + entry.bytes)
            return CUDA_ERROR_INVALID_VALUE;
    if (!same_file(memory->fd(), file_.get())) {
        auto begin = page_->end.fetch_add(static_cast<int64_t>(memory->bytes));
        if (begin > file_bytes - static_cast<int64_t>(memory->bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
        if (CUresult error = memory->move_to(file_.get(), begin, remap)) return error;
    }
    for (size_t place = 0; place < bindings_max; ++place) {
        auto& binding = page_->bindings[place];
        uint32_t state = Page::free_place;
        if (!binding.state.compare_exchange_strong(state, Page::taken)) continue;
        binding.device = static_cast<uint32_t>(device);
        binding.serial = page_->serial++;
        binding.offset = offset;
        binding.bytes = size;
        binding.begin = memory->offset() + static_cast<int64_t>(memory_offset);
        binding.state.store(Page::live, std::memory_order_release);
        LockGuard lock(mutex_);
        bound_[place] = memory;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Multicast::unbind(const Device& device, uint64_t offset, uint64_t size) {
    int team_place = place_of(device);
    if (team_place < 0) return CUDA_ERROR_INVALID_DEVICE;
    LockGuard lock(mutex_);
    Page::Entry entry;
    for (auto& [place, memory] : bound_) {
        if (!page_->look_at(place, entry) || entry.device != static_cast<uint32_t>(team_place)) continue;
        if (entry.offset != offset || entry.bytes != size) continue;
        page_->bindings[place].state = Page::free_place;
        bound_.erase(place);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

std::shared_ptr<std::byte> Multicast::window(size_t place, uint64_t serial, int64_t begin, uint64_t size) const {
    auto& known = windows_[place];
    if (known.memory && known.serial == serial) return known.memory;
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.get(), begin);
    if (at == MAP_FAILED) return nullptr;
    known.serial = serial;
    known.memory = {static_cast<std::byte*>(at), [size](std::byte* memory) { munmap(memory, size); }};
    return known.memory;
}

ptx::Memory::Team Multicast::copies_at(uint64_t offset) const {
    ptx::Memory::Team team;
    team.range = {0, bytes_};
    team.copies.resize(devices_);
    LockGuard lock(mutex_);
    uint32_t found = 0;
    Page::Entry entry;
    std::array<std::pair<std::shared_ptr<std::byte>, uint64_t>, devices_max> parts;  // with the offset of each
    for (size_t place = 0; place < bindings_max && found < devices_; ++place) {
        if (!page_->look_at(place, entry) || offset - entry.offset >= entry.bytes) continue;
        if (parts[entry.device].first) continue;
        parts[entry.device] = {window(place, entry.serial, entry.begin, entry.bytes), entry.offset};
        if (!parts[entry.device].first) return {};
        team.range.begin = std::max(team.range.begin, entry.offset);
        team.range.end = std::min(team.range.end, entry.offset + entry.bytes);
        ++found;
    }
    if (found < devices_) return {};
    for (uint32_t device = 0; device < devices_; ++device) {
        auto& [memory, begin] = parts[device];
        team.copies[device] = {memory, memory.get() + (team.range.begin - begin)};
    }
    return team;
}

}  // namespace tnr::emulated

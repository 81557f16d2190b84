// See page_view.hpp.
#include "gpu_client/cuda/page_view.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "gpu_client/cuda/address_ranges.hpp"
#include "gpu_client/cuda/page_watch.hpp"
#include "gpu_client/cuda/process_mappings.hpp"

namespace tnr::cuda {

std::optional<PageAccess> PageView::protect(PageRun run, PageAccess access) {
    int allowed = PROT_NONE;
    if (access != PageAccess::none) allowed = access == PageAccess::read ? PROT_READ : PROT_READ | PROT_WRITE;
    auto* at = reinterpret_cast<void*>(address_ + run.first * page_bytes());
    if (::syscall(SYS_mprotect, at, run.count * page_bytes(), allowed) != 0) return std::nullopt;
    return access;
}

namespace {

class FreshPages : public PageView {
public:
    FreshPages(uint64_t address, const FilePages& pages) : PageView(address), pages_(pages) {}
    ~FreshPages() override {
        hide_pages(address_, pages_.bytes);
        page_file().give_back(pages_);
    }
    FreshPages(const FreshPages&) = delete;
    FreshPages& operator=(const FreshPages&) = delete;

    const std::byte* content(size_t page) const override { return pages_.window + page * page_bytes(); }
    bool read_in_place() const override { return false; }
    std::byte* hidden(PageRun run, std::vector<std::byte>&) override {
        return pages_.window + run.first * page_bytes();
    }
    bool show(PageRun, const std::vector<std::byte>&) override { return true; }  // both places show the same memory
    std::vector<PageRun> touched() const override {
        std::vector<PageRun> runs;
        for (auto [offset, bytes] : page_file().touched(pages_)) {
            uint64_t first = offset / page_bytes(), end = (offset + bytes + page_bytes() - 1) / page_bytes();
            runs.push_back({first, end - first});
        }
        return runs;
    }

protected:
    const FilePages pages_;
};

// The same where the kernel tells us of accesses: nothing that the program does with its pages fails.
class WatchedPages : public FreshPages {
public:
    WatchedPages(uint64_t address, const FilePages& pages, PageWatch& watch)
        : FreshPages(address, pages), watch_(watch) {}

    std::optional<PageAccess> protect(PageRun run, PageAccess access) override {
        // Not before the GPU gets them for the first time: until then no access is told.
        if (!watched_ && access != PageAccess::none) return access;
        if (!watched_) watched_ = watch_.watch(address_, pages_.bytes);
        if (!*watched_) return PageView::protect(run, access);
        if (access == PageAccess::read && !watch_.shows_for_reading()) return let_read(run);
        if (access == PageAccess::none)
            watch_.take(place(run), bytes(run));
        else if (!let(run, access == PageAccess::write))
            return std::nullopt;
        if (access == PageAccess::read) watch_.forbid_writing(place(run), bytes(run));  // of what it could write before
        return access;
    }

private:
    uint64_t place(PageRun run) const { return address_ + run.first * page_bytes(); }
    static uint64_t bytes(PageRun run) { return run.count * page_bytes(); }

    bool let(PageRun run, bool write) {
        for (uint64_t done = 0; done < bytes(run);) {
            done += watch_.show(place(run) + done, bytes(run) - done, write);
            if (done == bytes(run)) break;
            // Nobody has ever touched that page; now it is there.
            (void)*reinterpret_cast<const volatile std::byte*>(content(run.first) + done);
            if (watch_.show(place(run) + done, page_bytes(), write) == 0) return false;
            done += page_bytes();
        }
        return true;
    }
    // The program can write for a moment: whether it has shows by comparing.
    std::optional<PageAccess> let_read(PageRun run) {
        const std::vector<std::byte> before(content(run.first), content(run.first) + bytes(run));
        if (!let(run, true)) return std::nullopt;
        watch_.forbid_writing(place(run), bytes(run));
        if (std::memcmp(before.data(), content(run.first), before.size()) == 0) return PageAccess::read;
        return let(run, true) ? std::optional(PageAccess::write) : std::nullopt;
    }

    PageWatch& watch_;
    std::optional<bool> watched_;  // false: the kernel refuses this mapping
};

// The kernel lets a process write to its own private memory through this file whatever the protection; it may be
// configured not to. Memory that other processes have, too, it does not.
int own_memory() {
    static const int file = ::open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    return file;
}

bool write_anyway(uint64_t address, const std::byte* data, uint64_t bytes) {
    for (uint64_t done = 0; done < bytes;) {
        auto written = ::pwrite(own_memory(), data + done, bytes - done, static_cast<off_t>(address + done));
        if (written <= 0) return false;
        done += static_cast<uint64_t>(written);
    }
    return true;
}

bool may_write_anyway() {
    static const bool may = [] {
        void* page = ::mmap(nullptr, page_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED || own_memory() < 0) return false;
        const std::byte probe{1};
        bool written = write_anyway(reinterpret_cast<uint64_t>(page), &probe, 1);
        ::munmap(page, page_bytes());
        return written;
    }();
    return may;
}

class ProgramPages : public PageView {
public:
    ProgramPages(uint64_t address, uint64_t bytes)
        : PageView(address), pages_(bytes / page_bytes()), second_(address, bytes) {}
    ~ProgramPages() override { (void)protect({0, pages_}, PageAccess::write); }
    ProgramPages(const ProgramPages&) = delete;
    ProgramPages& operator=(const ProgramPages&) = delete;

    const std::byte* content(size_t page) const override {
        return reinterpret_cast<const std::byte*>(address_ + page * page_bytes());
    }
    bool read_in_place() const override { return true; }
    std::byte* hidden(PageRun run, std::vector<std::byte>& room) override {
        room.resize(run.count * page_bytes());
        return room.data();
    }
    bool show(PageRun run, const std::vector<std::byte>& room) override {
        const uint64_t at = address_ + run.first * page_bytes();
        for (uint64_t done = 0; done < room.size();) {
            auto [place, bytes] = second_.find(at + done, room.size() - done);
            if (place)
                std::memcpy(place, room.data() + done, bytes);
            else if (!write_anyway(at + done, room.data() + done, bytes))
                return false;
            done += bytes;
        }
        return true;
    }
    std::vector<PageRun> touched() const override { return {{0, pages_}}; }
    bool can_be_written() const { return second_.complete(); }

private:
    const size_t pages_;
    const SecondPlaces second_;
};

}  // namespace

std::unique_ptr<PageView> view_of_fresh_pages(uint64_t address, uint64_t bytes) {
    auto pages = page_file().take(bytes);
    if (!pages.window) return nullptr;
    if (show_pages(address, bytes, page_file().descriptor(), pages.offset)) {
        if (auto* watch = PageWatch::get()) return std::make_unique<WatchedPages>(address, pages, *watch);
        return std::make_unique<FreshPages>(address, pages);
    }
    page_file().give_back(pages);
    return nullptr;
}

std::unique_ptr<PageView> view_of_program_pages(uint64_t address, uint64_t bytes) {
    if (!may_write_anyway()) return nullptr;
    auto pages = std::make_unique<ProgramPages>(address, bytes);
    return pages->can_be_written() ? std::move(pages) : nullptr;
}

}  // namespace tnr::cuda

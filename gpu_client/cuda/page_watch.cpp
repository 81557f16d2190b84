// See page_watch.hpp. The kernel's words for it: Documentation/admin-guide/mm/userfaultfd.rst.
#include "gpu_client/cuda/page_watch.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "gpu_client/cuda/page_file.hpp"

namespace tnr::cuda {

namespace {

// Of Linux 6.1 and 6.4: headers may be older.
constexpr unsigned long new_from_device = _IO(0xAA, 0x00);  // USERFAULTFD_IOC_NEW
constexpr uint64_t continue_mode_wp = 2;                    // UFFDIO_CONTINUE_MODE_WP
constexpr uint64_t feature_exact_address = 1 << 11;         // UFFD_FEATURE_EXACT_ADDRESS, of 5.18

int open_watch() {
    int device = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    if (device >= 0) {
        int file = ::ioctl(device, new_from_device, O_CLOEXEC);
        ::close(device);
        if (file >= 0) return file;
    }
    return static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC));
}

bool has_what_we_need(int file) {
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM |
                   UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_THREAD_ID | feature_exact_address;
    return ::ioctl(file, UFFDIO_API, &api) == 0;
}

void set_writing(int file, uffdio_range range, uint64_t mode) {
    uffdio_writeprotect wanted{range, mode};
    while (::ioctl(file, UFFDIO_WRITEPROTECT, &wanted) != 0 && errno == EAGAIN) {
    }
}

}  // namespace

// Tried on a page of our own.
bool PageWatch::works() {
    const uint64_t bytes = page_bytes();
    int file = ::memfd_create("tnr-probe", MFD_CLOEXEC);
    if (file < 0) return false;
    const char content = 'x';
    bool works = ::pwrite(file, &content, 1, static_cast<off_t>(bytes - 1)) == 1;
    void* page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (page == MAP_FAILED) return false;
    auto address = reinterpret_cast<uint64_t>(page);
    works = works && watch(address, bytes);
    if (works) take(address, bytes);
    shows_for_reading_ = works && show(address, bytes, false) == bytes;
    works = works && (shows_for_reading_ || show(address, bytes, true) == bytes);
    ::munmap(page, bytes);
    return works;
}

PageWatch* PageWatch::get() {
    static auto* const only = []() -> PageWatch* {
        const char* wanted = std::getenv("TNR_USERFAULTFD");
        if (wanted && std::strcmp(wanted, "0") == 0) return nullptr;
        int file = open_watch();
        if (file < 0) return nullptr;
        auto* watch = new PageWatch(file);
        if (has_what_we_need(file) && watch->works()) return watch;
        ::close(file);
        delete watch;
        return nullptr;
    }();
    return only;
}

bool PageWatch::watch(uint64_t address, uint64_t bytes) {
    uffdio_register wanted{};
    wanted.range = {address, bytes};
    wanted.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;
    return ::ioctl(file_, UFFDIO_REGISTER, &wanted) == 0;
}

void PageWatch::take(uint64_t address, uint64_t bytes) {
    (void)::syscall(SYS_madvise, address, bytes, MADV_DONTNEED);
}

uint64_t PageWatch::show(uint64_t address, uint64_t bytes, bool write) {
    uint64_t shown = 0;
    while (shown < bytes) {
        uffdio_continue wanted{};
        wanted.range = {address + shown, bytes - shown};
        wanted.mode = UFFDIO_CONTINUE_MODE_DONTWAKE | (write ? 0 : continue_mode_wp);
        int failed = ::ioctl(file_, UFFDIO_CONTINUE, &wanted) == 0 ? 0 : errno;
        if (wanted.mapped > 0) shown += static_cast<uint64_t>(wanted.mapped);
        if (failed == EEXIST)
            shown += page_bytes();  // it is shown already
        else if (failed != 0 && failed != EAGAIN)
            break;
    }
    if (write && shown > 0) set_writing(file_, {address, shown}, UFFDIO_WRITEPROTECT_MODE_DONTWAKE);
    return shown;
}

void PageWatch::forbid_writing(uint64_t address, uint64_t bytes) {
    set_writing(file_, {address, bytes}, UFFDIO_WRITEPROTECT_MODE_WP);
}

PageWatch::Access PageWatch::next() {
    uffd_msg message{};
    while (::read(file_, &message, sizeof message) != sizeof message || message.event != UFFD_EVENT_PAGEFAULT) {
    }
    const auto fault = message.arg.pagefault;  // the kernel packs it
    bool write = (fault.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP)) != 0;
    return {fault.address, write, static_cast<long>(fault.feat.ptid)};
}

void PageWatch::retry(uint64_t address) {
    uffdio_range page{address / page_bytes() * page_bytes(), page_bytes()};
    (void)::ioctl(file_, UFFDIO_WAKE, &page);
}

}  // namespace tnr::cuda

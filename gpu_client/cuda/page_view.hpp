// The pages of one piece of memory as the program sees them: what it may do with each, and how their content gets in
// and out. Pages are counted from 0. Not for several threads at once.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "gpu_client/cuda/page_file.hpp"

namespace tnr::cuda {

enum class PageAccess { none, read, write };

struct PageRun {
    size_t first = 0, count = 0;
    size_t end() const { return first + count; }
};

class PageView {
public:
    virtual ~PageView() = default;
    // What the program may do with the pages now: what is asked, or for reading, where it has just written there, both.
    // Nothing if the process has as many mappings as the system allows.
    virtual std::optional<PageAccess> protect(PageRun run, PageAccess access);
    // What the program has in the pages. While this is read it must not be able to write there.
    virtual const std::byte* content(size_t page) const = 0;
    // True if that can be read only where the program can, too.
    virtual bool read_in_place() const = 0;
    // Where new content of these pages is put while the program cannot see it, perhaps in `room`; show() then makes it
    // the program's. Several runs may be on their way at once, each with a room of its own.
    virtual std::byte* hidden(PageRun run, std::vector<std::byte>& room) = 0;
    virtual bool show(PageRun run, const std::vector<std::byte>& room) = 0;
    // The pages that the program has touched since the view was made. All that it can tell: the program has had access
    // to every page since.
    virtual std::vector<PageRun> touched() const = 0;

protected:
    explicit PageView(uint64_t address) : address_(address) {}
    const uint64_t address_;
};

// Fresh pages at addresses that are held, which are held again when the view ends. Null if the system has no more.
std::unique_ptr<PageView> view_of_fresh_pages(uint64_t address, uint64_t bytes);
// The program's own pages, which stay its own. Null if this process may not write to pages that the program cannot see.
std::unique_ptr<PageView> view_of_program_pages(uint64_t address, uint64_t bytes);

}  // namespace tnr::cuda

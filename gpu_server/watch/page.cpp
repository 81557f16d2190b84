// See page.hpp. The file's bytes come in by way of the assembler: no generated source, no limit on a literal's length.
#include "gpu_server/watch/page.hpp"

asm(".pushsection .rodata\n"
    ".global tnr_watch_page\n.hidden tnr_watch_page\ntnr_watch_page:\n.incbin \"" TNR_WATCH_PAGE
    "\"\n"
    ".global tnr_watch_page_end\n.hidden tnr_watch_page_end\ntnr_watch_page_end:\n.byte 0\n.popsection");

extern "C" const char tnr_watch_page[], tnr_watch_page_end[];

namespace tnr::watch {

std::shared_ptr<const std::string> page() {
    static const auto text = std::make_shared<const std::string>(tnr_watch_page, tnr_watch_page_end);
    return text;
}

}  // namespace tnr::watch

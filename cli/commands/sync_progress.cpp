// See sync_progress.hpp.
#include "cli/commands/sync_progress.hpp"

#include <algorithm>

#include "api_client/base/text.hpp"
#include "api_client/vocabulary.hpp"
#include "cli/ui/progress.hpp"
#include "cli/ui/text.hpp"

namespace tnr::cli {

std::string SyncProgress::operator()(const sync::Tally& tally, Clock::time_point now) {
    auto done = static_cast<double>(tally.bytes + tally.bytes_found);
    double all = std::max(done, static_cast<double>(tally.bytes_total));
    std::string text = ui::bytes_text(done) + " of " + ui::bytes_text(all) + ", " + counted(tally.files, "file");
    if (done == 0 || begun_ == Clock::time_point{}) begun_ = now;
    double seconds = std::chrono::duration<double>(now - begun_).count();
    if (seconds < 1) return text;
    double rate = done / seconds;
    text += ", " + ui::bytes_text(rate) + "/s";
    if (all > done && rate > 0) text += ", " + ui::seconds_text((all - done) / rate) + " left";
    return text;
}

}  // namespace tnr::cli

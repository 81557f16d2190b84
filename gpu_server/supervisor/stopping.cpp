// See stopping.hpp.
#include "gpu_server/supervisor/stopping.hpp"

#include <cstring>

#include "gpu_server/pool/log.hpp"
#include "gpu_server/supervisor/limits.hpp"

namespace tnr::server {

// Of a pool in use there may be hundreds; the log names some.
static constexpr size_t named_max = 8;

std::string Stopping::who_runs() const {
    std::string names;
    size_t count = 0;
    for (auto& claim : claims_.all()) {
        if (claim->ending || claim->sessions.empty()) continue;
        if (++count <= named_max)
            names += (names.empty() ? "" : ", ") +
                     (claim->account.empty() ? claim->machine : claim->account + "/" + claim->machine);
    }
    return names + (count > named_max ? " and " + std::to_string(count - named_max) + " more" : "");
}

void Stopping::asked(int signal) {
    const std::string name = strsignal(signal);
    if (over_) return;
    auto runs = who_runs();
    if (waiting_ || runs.empty() || grace_ == milliseconds(0)) return end(name);
    waiting_ = true;
    until_ = loop_.now() + grace_;
    told_ = loop_.now();
    claims_.refuse_new({Error::Kind::remote, "the pool's server is about to stop, and takes no new programs",
                        "try again when it is back, which its operator knows"});
    log(LogLevel::info, "stopping (" + name + "): no new claims; waiting for programs of " + runs + ", for " +
                            std::to_string(grace_.count() / 1000) + " s at most; a second signal ends them at once");
    begun_();
    look();
}

void Stopping::look() {
    if (over_) return;
    auto runs = who_runs();
    if (runs.empty()) return end("no program runs any more");
    const auto now = loop_.now();
    if (now >= until_) return end("programs of " + runs + " have not ended in time");
    if (now - told_ >= stopping_told_every) {
        told_ = now;
        auto left = std::chrono::ceil<std::chrono::seconds>(until_ - now).count();
        log(LogLevel::info, "still waiting for programs of " + runs + ", for " + std::to_string(left) + " s more");
    }
    loop_.after(stopping_looked_every, [this] { look(); });
}

void Stopping::end(const std::string& why) {
    over_ = true;
    end_now_(why);
}

}  // namespace tnr::server

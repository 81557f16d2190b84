// See escapes.hpp.
#include "cli/ssh/escapes.hpp"

#include "cli/ssh/client.hpp"

namespace tnr::ssh {
namespace {

constexpr char ctrl_c = '\x03';
constexpr int ctrl_c_enough = 3;
// A keepalive and its answer fit into this: only a machine that is gone says nothing for so long.
constexpr auto answer_limit_of_ctrl_c = keepalive_interval + std::chrono::seconds{2};

}  // namespace

std::string Escapes::take(const std::string& typed, Deadline now) {
    std::string forward;
    for (char key : typed) {
        if (tilde_) {
            tilde_ = false;
            if (key == '.') {
                ended_ = true;
                return forward;
            }
            if (key != '~') forward += '~';
        } else if (key == '~' && line_begins_) {
            tilde_ = true;
            continue;
        }
        if (key == ctrl_c && unanswered_++ == 0) first_ = now;
        line_begins_ = key == '\r' || key == '\n' || key == ctrl_c;
        forward += key;
    }
    return forward;
}

bool Escapes::gives_up(Deadline heard, Deadline now) {
    if (heard > first_) unanswered_ = 0;
    return unanswered_ >= ctrl_c_enough && now - first_ >= answer_limit_of_ctrl_c;
}

}  // namespace tnr::ssh

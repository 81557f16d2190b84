// How a newer server takes the place of one that runs while programs go on (SIGHUP, `tnr-gpu-server reload`).
//
// The process stays, and so do its children, the workers: it writes down what it has in a document, keeps the descriptors that
// the document names, and executes the binary that is now at its own path. Whoever has something that must outlive this (claims,
// workers, GPUs, books, the lease, listening sockets) writes and reads its section in one place: hand_over() and take_over().
//
// All threads have ended by then, as at a server's end. So where the new binary cannot be executed, the old one takes over from
// itself. A document that does not make sense is no server's: its workers are ended, and the server begins anew.
#pragma once

#include <sys/types.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api_client/base/handles.hpp"
#include "api_client/base/result.hpp"
#include "gpu_server/supervisor/child.hpp"
#include "gpu_server/supervisor/event_loop.hpp"

namespace tnr::server {

// Of the document. A binary that reads another one ends no programs: it is not executed. What a server adds to the document, and
// can do without, needs no new version.
inline constexpr int handover_version = 1;

// What the kernel knows this process by: the path of its binary, now perhaps another file, and its arguments. Made at the start,
// before the file can have been replaced.
struct OwnCommand {
    std::string program;
    std::vector<std::string> arguments;  // the program's name is first
    bool has_terminal = false;           // whose end, a SIGHUP, is to be this process's, too
    static OwnCommand read();
};

class Handover {
public:
    Handover();
    // What this process was executed with; nothing: it begins anew. An Error: it was, and that makes no sense.
    static Result<std::optional<Handover>> received();

    nlohmann::json& section(const std::string& name) { return document_[name]; }
    // Throws what nlohmann::json does if it is not there: see reading().
    const nlohmann::json& at(const std::string& name) const { return document_.at(name); }

    // A descriptor that goes along; the number stands for it in the document.
    int keep(UniqueFd file);
    int keep_copy(int file);
    // Once. None: there is no such descriptor.
    UniqueFd take(const nlohmann::json& number);

    // Executes the command with this document. Returns if that cannot be: everything is as it was.
    Error execute(const OwnCommand& command);

    static Result<Handover> from_file(UniqueFd document);  // received() of it
    Result<UniqueFd> to_file() const;                      // a sealed memory file

private:
    nlohmann::json document_;
    std::map<int, UniqueFd> files_;
};

// Runs what reads a section. An Error: it is not what hand_over() writes.
template <class Read>
Result<> reading(const char* section, Read&& read) try {
    return read();
} catch (const nlohmann::json::exception& error) {
    return Error{Error::Kind::internal, std::string("what the earlier server handed over of its ") + section +
                                            " makes no sense: " + error.what()};
}
Error badly_handed_over(const std::string& what);

// Ends all children of this process, and waits for them: workers whose document makes no sense.
void end_all_children();

// What a binary is asked before it is executed, and what it answers on its control socket: {"handover": version}, or
// {"why_not": "words"}. It has read its arguments and its configuration by then; `able`: whether it can use the folder.
inline constexpr const char* handover_question = "TNR_HANDOVER_QUESTION";
ChildPlan question_for(const OwnCommand& command);
bool is_asked();
Result<> answer_question(const Result<>& able);
// Why it does not answer as it should; nothing: it does.
std::optional<std::string> why_not(const Received& answer);

// Times of the event loop's clock, which goes on over an exec.
inline int64_t ticks(EventLoop::Clock::time_point time) {
    return time.time_since_epoch().count();
}
inline EventLoop::Clock::time_point time_of(const nlohmann::json& ticks) {
    return EventLoop::Clock::time_point(EventLoop::Clock::duration(ticks.get<int64_t>()));
}

}  // namespace tnr::server

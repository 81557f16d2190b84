// What both ends share, and the server.
#include "cli/sync/engine/session.hpp"

#include <cerrno>
#include <cstring>

#include "api_client/base/files.hpp"
#include "cli/sync/engine/messages.hpp"

namespace tnr::sync {
namespace {

constexpr uint64_t flag_remove = 1, flag_dry = 2, flag_ignore = 4;

std::string reason(int error_number) {
    if (error_number == EACCES) return "permission denied";
    return std::strerror(error_number);
}

Error refused(Error::Kind kind, const std::string& what, const std::string& hint = "") {
    return {kind, what, hint};
}

}  // namespace

Error nonsense() {
    return {Error::Kind::remote, "the other end of the sync sent what makes no sense",
            "nothing was written because of it"};
}

Error not_a_folder(const SyncSettings& settings) {
    return {Error::Kind::usage, "--delete is for folders, and " + settings.from + " is a file"};
}

Error empty_source() {
    return {Error::Kind::usage, "the source is empty, so --delete would remove everything",
            "is it the right one? To empty the other side, remove what is there by hand"};
}

Error changes(const std::string& path) {
    return {Error::Kind::remote, path + " changes while it is read, and was not copied",
            "sync again when nobody writes to it"};
}

Error read_error(const SyncSettings& settings, const std::string& path, int error_number) {
    if (settings.here) return file_error("cannot read", path, error_number);
    std::string hint;
    if (error_number == EACCES)
        hint = "root may: `tnr connect " + settings.machine + " -- sudo chmod a+rX " + path + "`, then sync again";
    return refused(error_number == ENOENT ? Error::Kind::not_found : Error::Kind::remote,
                   "cannot read " + settings.told(path) + ": " +
                       (error_number == ENOENT ? "it does not exist there" : reason(error_number)),
                   hint);
}

Error write_error(const SyncSettings& settings, const std::string& path, int error_number, const std::string& doing) {
    if (settings.here) return file_error(doing, path, error_number);
    std::string what = doing + " " + settings.told(path) + ": ";
    if (error_number == ENOSPC || error_number == EDQUOT)
        return refused(Error::Kind::remote, what + "the disk there is full",
                       "see what takes the space: `tnr connect " + settings.machine + " -- df -h`; then sync again");
    if (error_number == EACCES)
        return refused(Error::Kind::remote, what + "permission denied",
                       "copy to the home folder (`" + settings.machine + ":`) and move it with `tnr connect " +
                           settings.machine + " -- sudo mv …`");
    return refused(Error::Kind::remote, what + reason(error_number));
}

Message error_message(uint8_t type, const Error& error) {
    return Message(type).number(static_cast<uint64_t>(error.kind)).text(error.what).text(error.hint);
}

Error error_of(Fields& fields) {
    uint64_t kind = fields.number();
    std::string what(fields.text()), hint(fields.text());
    if (!fields.good() || kind > static_cast<uint64_t>(Error::Kind::internal)) return nonsense();
    return {static_cast<Error::Kind>(kind), what, hint};
}

Result<> hear_trouble(Fields& fields, Tally& tally) {
    Error error = error_of(fields);
    if (tally.unreadable.size() < troubles_max) tally.unreadable.push_back(error);
    return fields.good() ? Result<>{Ok{}} : Result<>{nonsense()};
}

Message hello(const SyncSettings& settings, bool server_sends) {
    uint64_t flags = (settings.remove_extra ? flag_remove : 0) | (settings.dry_run ? flag_dry : 0) |
                     (settings.ignore ? flag_ignore : 0);
    return Message(static_cast<uint8_t>(Says::hello))
        .number(server_sends)
        .text(settings.from)
        .text(settings.to)
        .text(settings.machine)
        .number(flags);
}

Result<> read_hello(Fields fields, SyncSettings& settings, bool& server_sends) {
    server_sends = fields.number() != 0;
    settings.from = fields.text();
    settings.to = fields.text();
    settings.machine = fields.text();
    uint64_t flags = fields.number();
    settings.remove_extra = flags & flag_remove;
    settings.dry_run = flags & flag_dry;
    settings.ignore = flags & flag_ignore;
    return fields.good() ? Result<>{Ok{}} : Result<>{nonsense()};
}

}  // namespace tnr::sync

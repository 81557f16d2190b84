// Handshake, host key, authentication, in that order and never another.
#include "cli/ssh/client.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "api_client/base/interrupt.hpp"

namespace tnr::ssh {
namespace {

// Between two attempts on a machine that is still booting.
constexpr int retry_pause_ms = 500;

ssize_t send_callback(libssh2_socket_t, const void* data, size_t length, int, void** abstract) {
    return static_cast<Client*>(*abstract)->wire().send(data, length);
}

ssize_t receive_callback(libssh2_socket_t, void* data, size_t length, int, void** abstract) {
    return static_cast<Client*>(*abstract)->wire().receive(data, length);
}

#if LIBSSH2_VERSION_NUM >= 0x010b00  // older ones refuse channels to an agent
void agent_callback(LIBSSH2_SESSION*, LIBSSH2_CHANNEL* channel, void** abstract) {
    if (auto& opened = static_cast<Client*>(*abstract)->on_agent_channel) opened(channel);
}
#endif

// libssh2 1.11.1 calls deprecated what older ones have alone.
template <class Callback>
void set_callback(LIBSSH2_SESSION* session, int which, Callback* callback) {
#if LIBSSH2_VERSION_NUM >= 0x010b01
    libssh2_session_callback_set2(session, which, reinterpret_cast<libssh2_cb_generic*>(callback));
#else
    libssh2_session_callback_set(session, which, reinterpret_cast<void*>(callback));
#endif
}

// Those of `wanted` that this libssh2 has. Versions before 1.11 take others out of the list by copying it onto itself with
// memcpy.
std::string known_methods(LIBSSH2_SESSION* session, int kind, const std::vector<std::string>& wanted) {
    const char** known = nullptr;
    const int count = libssh2_session_supported_algs(session, kind, &known);
    std::string list;
    for (const auto& each : wanted)
        if (std::find(known, known + std::max(count, 0), each) != known + std::max(count, 0))
            list.append(list.empty() ? "" : ",").append(each);
    if (known) libssh2_free(session, known);
    return list;
}

LIBSSH2_SESSION* make_session(Client& client) {
    static const int initialised = libssh2_init(0);
    if (initialised != 0) return nullptr;
    LIBSSH2_SESSION* session = libssh2_session_init_ex(nullptr, nullptr, nullptr, &client);
    if (!session) return nullptr;
    set_callback(session, LIBSSH2_CALLBACK_SEND, &send_callback);
    set_callback(session, LIBSSH2_CALLBACK_RECV, &receive_callback);
    libssh2_session_set_blocking(session, 0);
    libssh2_keepalive_config(session, 1, keepalive_interval.count());
    // The only host key we planted is ed25519; asking for others would let a machine show a different one.
    libssh2_session_method_pref(session, LIBSSH2_METHOD_HOSTKEY, "ssh-ed25519");
    // GCM needs no hash beside it. With it, and packets encrypted whole (packaging/third_party/libssh2.patch), sending 1 GiB takes
    // 1.4 s of processor time; with CTR, 16 bytes at a time, 3.1. 128 bits take four fifths of the time of 256.
    for (int direction : {LIBSSH2_METHOD_CRYPT_CS, LIBSSH2_METHOD_CRYPT_SC}) {
        const std::string ciphers = known_methods(
            session, direction,
            {"aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr"});
        libssh2_session_method_pref(session, direction, ciphers.c_str());
    }
    return session;
}

int sign_callback(LIBSSH2_SESSION*, unsigned char** signature, size_t* length, const unsigned char* data,
                  size_t data_length, void** abstract) {
    auto made =
        sign(*static_cast<const KeyPair*>(*abstract), std::string(reinterpret_cast<const char*>(data), data_length));
    if (!made) return -1;
    *length = made->size();
    *signature = static_cast<unsigned char*>(std::malloc(made->size()));  // libssh2 frees it
    if (!*signature) return -1;
    std::memcpy(*signature, made->data(), made->size());
    return 0;
}

std::string where(const Target& target) {
    return "'" + target.name + "' (" + target.host + " port " + std::to_string(target.port) + ")";
}

}  // namespace

Client::Client(Target target, UniqueFd socket)
    : target_(std::move(target)), wire_(std::move(socket)), session_(make_session(*this)) {}

Client::~Client() {
    if (!session_) return;
    libssh2_session_disconnect(session_, "done");
    wire_.cut();
    libssh2_session_free(session_);
}

std::chrono::seconds Client::keep_alive() {
    int next_s = 1;
    libssh2_keepalive_send(session_, &next_s);
    return std::chrono::seconds(std::clamp<long>(next_s, 1, keepalive_interval.count()));
}

bool Client::listened() {
    auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - wire_.heard());
    if (silent >= silence.lost) lost_ = true;
    bool tell = silent >= silence.told;
    if (tell != std::exchange(told_, tell) && on_silence) on_silence(tell ? silent : std::chrono::milliseconds{0});
    return !lost_;
}

Result<> Client::take_agent_channels(std::function<void(LIBSSH2_CHANNEL*)> opened) {
#if LIBSSH2_VERSION_NUM >= 0x010b00
    on_agent_channel = std::move(opened);
    set_callback(session_, LIBSSH2_CALLBACK_AUTHAGENT, &agent_callback);
    return Ok{};
#else
    return Error{Error::Kind::usage, "this tnr cannot forward an SSH agent: it was built with libssh2 " LIBSSH2_VERSION,
                 "one built with 1.11 or newer can, as released ones are; or leave out -A"};
#endif
}

Error Client::failure(const std::string& doing, long code) {
    if (interrupt::interrupted()) return interrupt::error();
    broken_ = lost_ || code != LIBSSH2_ERROR_TIMEOUT;
    if (lost_)
        return Error{Error::Kind::network,
                     where(target_) + " has not answered for " +
                         std::to_string(std::chrono::duration_cast<std::chrono::seconds>(silence.lost).count()) +
                         " s while " + doing + ": the connection is given up",
                     "see whether it runs: `tnr status`"};
    if (code == LIBSSH2_ERROR_TIMEOUT)
        return Error{Error::Kind::network, where(target_) + " did not answer in time while " + doing,
                     "see whether it runs: `tnr status`"};
    char* text = nullptr;
    libssh2_session_last_error(session_, &text, nullptr, 0);
    return Error{
        Error::Kind::network,
        "lost the connection to " + where(target_) + " while " + doing + ": " + (text ? text : "no reason given"),
        "see whether it runs: `tnr status`"};
}

Result<> Client::handshake(Deadline deadline) {
    if (!session_) return Error{Error::Kind::internal, "libssh2 could not create a session"};
    long code = finish([&] { return libssh2_session_handshake(session_, wire_.fd()); }, deadline);
    if (code == 0) return Ok{};
    if (code == LIBSSH2_ERROR_KEX_FAILURE || code == LIBSSH2_ERROR_METHOD_NONE)
        return Error{Error::Kind::remote,
                     where(target_) + " has no ed25519 host key, so it is not the machine tnr made",
                     "do not send anything to it; see `tnr status`"};
    return failure("greeting it", code);
}

static std::string shown_blob(LIBSSH2_SESSION* session) {
    size_t length = 0;
    int type = 0;
    const char* shown = libssh2_session_hostkey(session, &length, &type);
    return {shown ? shown : "", shown ? length : 0};
}

std::string Client::host_key() const {
    return line_of_blob(shown_blob(session_), target_.name);
}

Result<> Client::check_host_key() {
    if (target_.trust_first) return Ok{};
    auto planted = blob_of_line(target_.host_key);
    if (!planted) return planted.error();
    const std::string blob = shown_blob(session_);
    if (blob == *planted) return Ok{};
    return Error{Error::Kind::remote,
                 "the machine at " + target_.host + " port " + std::to_string(target_.port) + " is not '" +
                     target_.name + "': it shows host key " + fingerprint(blob) + ", but that machine's is " +
                     fingerprint(*planted),
                 "something else answers at that address; nothing was sent to it. `tnr status` shows the machine's "
                 "present address"};
}

Result<> Client::authenticate(Deadline deadline) {
    std::string blob = public_blob(target_.key);
    void* key = &target_.key;
    long code = finish(
        [&] {
            return libssh2_userauth_publickey(session_, target_.user.c_str(),
                                              reinterpret_cast<const unsigned char*>(blob.data()), blob.size(),
                                              sign_callback, &key);
        },
        deadline);
    if (code == 0) return Ok{};
    if (code == LIBSSH2_ERROR_AUTHENTICATION_FAILED || code == LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED)
        return Error{
            Error::Kind::auth,
            "authentication failed: " + where(target_) + " refuses this computer's SSH key for user " + target_.user,
            "was the machine made on another computer? Copy its key, or delete the machine and start it anew"};
    return failure("signing in", code);
}

Result<std::unique_ptr<Client>> Client::connect(const Target& target, Deadline deadline) {
    deadline = std::min(deadline, Clock::now() + attempt_limit);
    auto socket = connect_tcp(target.host, target.port, deadline);
    if (!socket) return socket.error();
    std::unique_ptr<Client> client{new Client(target, std::move(*socket))};
    if (auto greeted = client->handshake(deadline); !greeted) return greeted.error();
    if (auto checked = client->check_host_key(); !checked) return checked.error();
    if (auto signed_in = client->authenticate(deadline); !signed_in) return signed_in.error();
    return client;
}

Result<std::unique_ptr<Client>> connect_when_ready(const Target& target, Deadline deadline,
                                                   const std::function<Result<>(const Error&)>& waiting,
                                                   std::chrono::milliseconds auth_patience) {
    for (std::optional<Deadline> refused_since;;) {
        auto client = Client::connect(target, deadline);
        if (client) return client;
        if (interrupt::interrupted()) return interrupt::error();
        const bool refused = client.error().kind == Error::Kind::auth;
        if (client.error().kind != Error::Kind::network && !refused) return client;
        if (Clock::now() + std::chrono::milliseconds(retry_pause_ms) >= deadline) return client;
        if (refused) {
            if (!refused_since) refused_since = Clock::now();
            if (Clock::now() - *refused_since >= auth_patience) return client;
        }
        if (waiting)
            if (auto go_on = waiting(client.error()); !go_on) return go_on.error();
        if (!interrupt::pause_ms(retry_pause_ms)) return interrupt::error();
    }
}

}  // namespace tnr::ssh

// The ZeroMQ Authentication Protocol, version 1.0 (rfc.zeromq.org/spec/27). See zap.hpp.
#include "gpu_server/pool/zap.hpp"

#include <sys/eventfd.h>
#include <zmq.h>

#include <cstdlib>
#include <vector>

#include "gpu_server/pool/log.hpp"

namespace tnr::server {

bool Knock::from_loopback() const {
    return address.starts_with("127.") || address == "::1" || address.starts_with("::ffff:127.");
}

Zap::Zap(zmq::context_t& context, Admit admit)
    : socket_(context, ZMQ_REP), admit_(std::move(admit)), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.bind("inproc://zeromq.zap.01");
}

Result<std::unique_ptr<Zap>> Zap::start(zmq::context_t& context, Admit admit) try {
    std::unique_ptr<Zap> zap(new Zap(context, std::move(admit)));
    zap->thread_ = std::thread([&zap = *zap] { zap.serve(); });
    return zap;
} catch (const zmq::error_t& error) {
    return Error{Error::Kind::internal, std::string("cannot start the authentication of peers: ") + error.what()};
}

Zap::~Zap() {
    uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
    if (thread_.joinable()) thread_.join();
}

void Zap::serve() {
    while (true) {
        zmq::pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, stop_.get(), ZMQ_POLLIN, 0}};
        try {
            zmq::poll(items, 2, std::chrono::milliseconds(-1));
            if (items[1].revents) return;
            if (items[0].revents) answer_one();
        } catch (const zmq::error_t& error) {
            if (error.num() == EINTR) continue;
            // Without us ZeroMQ lets nobody in: the safe side, and the log says why.
            log(LogLevel::error, std::string("the authentication of peers has stopped: ") + error.what());
            return;
        }
    }
}

static std::string z85(const zmq::message_t& raw) {
    char text[41];
    auto* bytes = static_cast<const uint8_t*>(raw.data());
    return raw.size() == 32 && zmq_z85_encode(text, bytes, 32) ? text : std::string();
}

void Zap::tell_refusal(const Knock& knock, const std::string& why) {
    auto now = std::chrono::steady_clock::now();
    if (told_ != decltype(told_){} && now - told_ < refusals_told_every) return void(++untold_);
    told_ = now;
    std::string others = untold_ > 0 ? " (and " + std::to_string(untold_) + " others since the last such line)" : "";
    untold_ = 0;
    log(LogLevel::warning, "refused a connection from " + printable(knock.address) +
                               (knock.plain ? ": plain text" : ": " + why + " " + printable(knock.public_key)) +
                               others);
}

// What our patch of libzmq tells: ADDRESS#DESCRIPTOR.
static void set_caller(Knock& knock, const std::string& told) {
    auto mark = told.rfind('#');
    knock.address = told.substr(0, mark);
    if (mark != std::string::npos) knock.connection = std::atoi(told.c_str() + mark + 1);
}

// Frames: version, request id, domain, address, identity, mechanism, credentials…
void Zap::answer_one() {
    std::vector<zmq::message_t> frames;
    do {
        frames.emplace_back();
        (void)socket_.recv(frames.back());
    } while (frames.back().more());

    std::optional<std::string> user;
    if (frames.size() >= 6 && frames[0].to_string_view() == "1.0") {
        Knock knock;
        knock.plain = frames[5].to_string_view() == "NULL";
        set_caller(knock, frames[3].to_string());
        if (frames[5].to_string_view() == "CURVE" && frames.size() == 7) knock.public_key = z85(frames[6]);
        Admission admission{std::nullopt, "no key"};
        if (knock.plain || !knock.public_key.empty()) admission = admit_(knock);
        user = std::move(admission.user);
        if (!user) tell_refusal(knock, admission.why_not);
    }
    auto more = zmq::send_flags::sndmore;
    socket_.send(zmq::str_buffer("1.0"), more);
    socket_.send(frames.size() > 1 ? std::move(frames[1]) : zmq::message_t(), more);
    socket_.send(user ? zmq::str_buffer("200") : zmq::str_buffer("400"), more);
    socket_.send(zmq::message_t(), more);  // no status text: nothing for strangers
    socket_.send(user ? zmq::message_t(user->data(), user->size()) : zmq::message_t(), more);
    socket_.send(zmq::message_t(), zmq::send_flags::none);
}

}  // namespace tnr::server

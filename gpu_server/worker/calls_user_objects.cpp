// User objects; and printing graphs.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu_server/worker/driver.hpp"
#include "gpu_server/worker/graph_calls.hpp"

namespace tnr::worker {

namespace {

struct Kept {
    WorkerSession& session;
    uint64_t number;
};

// Called by the driver, which must not be kept waiting.
void gone(void* data) {
    std::unique_ptr<Kept> kept(static_cast<Kept*>(data));
    auto& session = kept->session;
    session.handles.user_objects.remove(kept->number);
    session.waiting.run([&session, number = kept->number] { session.outbox.tell(wire::UserObjectGone{number}); });
}

}  // namespace

static Answer create_object(WorkerSession& session, Call&, const wire::CreateUserObject& wanted) {
    if (!driver().cuUserObjectCreate) return CUDA_ERROR_NOT_SUPPORTED;
    if (auto room = session.handles.user_objects.room_for(wanted.object); room != CUDA_SUCCESS) return room;
    auto kept = std::make_unique<Kept>(Kept{session, wanted.object});
    CUuserObject made = nullptr;
    auto result =
        driver().cuUserObjectCreate(&made, kept.get(), gone, wanted.references, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS) return result;
    (void)kept.release();
    session.handles.user_objects.add(wanted.object, made);
    return CUDA_SUCCESS;
}

// What has gone meanwhile, the client need not release.
static Answer release_object(WorkerSession& session, Call&, const wire::ReleaseUserObject& wanted) {
    if (!driver().cuUserObjectRelease) return CUDA_ERROR_NOT_SUPPORTED;
    auto* object = session.handles.user_objects.find(wanted.object);
    return object ? driver().cuUserObjectRelease(object, wanted.references) : CUDA_SUCCESS;
}

// The driver writes to a file that exists in memory only.
static Answer print_graph(WorkerSession&, Call& call, const wire::PrintGraph<Resolved>& wanted) {
    if (!driver().cuGraphDebugDotPrint) return CUDA_ERROR_NOT_SUPPORTED;
    int file = memfd_create("graph", MFD_CLOEXEC);
    if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    auto path = "/proc/self/fd/" + std::to_string(file);
    auto result = driver().cuGraphDebugDotPrint(wanted.graph.handle, path.c_str(), wanted.flags);
    struct stat status {};
    constexpr off_t most = wire::record_bytes_max / 2;
    if (result == CUDA_SUCCESS && fstat(file, &status) != 0) result = CUDA_ERROR_OPERATING_SYSTEM;
    if (result == CUDA_SUCCESS && status.st_size > most) result = CUDA_ERROR_NOT_SUPPORTED;
    wire::Bytes text(result == CUDA_SUCCESS ? static_cast<size_t>(status.st_size) : 0);
    if (!text.empty() && pread(file, text.data(), text.size(), 0) != status.st_size)
        result = CUDA_ERROR_OPERATING_SYSTEM;
    close(file);
    call.reply(wire::PrintGraph<>::Reply{text});
    return result;
}

void add_user_object_calls(HandlerTable& table) {
    table.add<create_object>();
    table.add<release_object>();
    table.add<print_graph>();
}

}  // namespace tnr::worker

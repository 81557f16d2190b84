// Streams as calls name them: by handle, or as one of the default streams.
#pragma once

#include "gpu_client/cuda/green_contexts.hpp"
#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/cuda/thread_state.hpp"

namespace tnr::cuda {

// What `handle` means on the calling thread. Null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD need a current context.
CUresult resolve_stream(CUstream handle, StreamRef& stream);
// The context a stream belongs to: its own, or the current one for default streams.
CUresult context_of_stream(const StreamRef& stream, Context*& context);

// A new stream of the context, made there in order with everything else; `green`: in that part of it.
CUresult make_stream(Context& context, unsigned flags, int priority, uint64_t& handle,
                     const GreenContext* green = nullptr);

// The position up to which all of the stream's work is known to be complete, and that of its last record.
uint64_t synced_position(const StreamRef& stream, const Context& context);
uint64_t last_use(const StreamRef& stream, const Context& context);
// A question about the stream, sent at `position`, was answered: all work before it is complete. note_waited(): the
// question was a wait.
void note_synced(const StreamRef& stream, Context& context, uint64_t position);
void note_waited(const StreamRef& stream, Context& context, uint64_t position);
// The worker reports that a watched stream has passed `position`.
void stream_completed(uint64_t number, uint64_t position);
// Forgets the streams of a context that ends.
void forget_streams_of(const Context& context);
// The green context ends. The program keeps the handles of its streams, which are good for nothing any more.
void end_streams_of(const GreenContext& green);

}  // namespace tnr::cuda

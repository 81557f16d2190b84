// Gates: where a stream is held back until a copy to the client has read what the stream's later work may overwrite.
//
// A stream waits there for a word in memory, not in a host function. A driver may run those one after the other, whatever
// streams they are in, and NVIDIA's seems to do so: ours would stand behind one of the client's.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "driver_table.hpp"
#include "gpu_server/worker/standing.hpp"

namespace tnr::worker {

class Gates {
public:
    class Gate;
    explicit Gates(Standing& standing) : standing_(standing) {}

    // `stream` waits from here on, until somebody opens the gate. If this fails it does not. The dispatcher's; `context` is
    // the current one.
    CUresult close(CUcontext context, CUstream stream, std::shared_ptr<Gate>& gate) TNR_EXCLUDES(mutex_);

private:
    // A gate's is open when the word has its number. Where gates follow each other the numbers rise.
    struct Word {
        std::atomic<uint32_t>* in_memory = nullptr;
        uint32_t number = 0;
    };
    static CUresult hold_back(CUstream stream, const Word& word);
    static void stand(void* word);
    Word take(CUcontext context) TNR_EXCLUDES(mutex_);
    void give_back(CUcontext context, Word word) TNR_EXCLUDES(mutex_);

    Standing& standing_;
    Mutex mutex_;
    std::map<CUcontext, std::vector<Word>> free_
        TNR_GUARDED_BY(mutex_);  // pinned by their contexts, and so gone with them
};

// Any thread.
class Gates::Gate {
public:
    Gate(Gates& all, CUcontext context, Word word) : all_(all), context_(context), word_(word) {}
    void open();  // once
    bool is_open() const { return open_; }

private:
    Gates& all_;
    CUcontext context_;
    Word word_;
    std::atomic<bool> open_{false};
};

}  // namespace tnr::worker

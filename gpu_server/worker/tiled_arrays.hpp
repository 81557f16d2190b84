// Sparse arrays and those that are mapped later: what their tiles have for their memory. That stays charged to the session for
// as long as a tile has it, or a stream is still to take it away.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "driver_table.hpp"
#include "gpu_client/protocol/tiled_arrays.hpp"
#include "gpu_server/worker/events.hpp"
#include "gpu_server/worker/memory_accounts.hpp"

namespace tnr::worker {

struct TiledArray {
    wire::TiledShape shape;
    wire::TileBook<std::shared_ptr<Physical>> book;
};

// How the driver has made a new array of tiles. Its error, if it does not say.
CUresult learn_tiles(CUarray array, const CUDA_ARRAY3D_DESCRIPTOR& described, CUdevice device,
                     std::shared_ptr<TiledArray>& tiled);
CUresult learn_tiles(CUmipmappedArray array, const CUDA_ARRAY3D_DESCRIPTOR& described, unsigned levels, CUdevice device,
                     std::shared_ptr<TiledArray>& tiled);

// The dispatcher's.
class UnmappedTiles {
public:
    // What tiles have no more when `stream`, of the current context, gets here.
    void put(std::vector<std::shared_ptr<Physical>> memory, CUstream stream);
    // Lets go of what streams have reached.
    void sweep();

private:
    struct Waiting {
        SharedEvent reached;
        std::vector<std::shared_ptr<Physical>> memory;
    };
    std::deque<Waiting> waiting_;
};

}  // namespace tnr::worker

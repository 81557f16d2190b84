// Loaded code: modules and libraries, their kernels and symbols.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "api_client/base/mutex.hpp"
#include "api_client/base/turn.hpp"
#include "gpu_client/cuda/image.hpp"
#include "gpu_client/cuda/objects.hpp"
#include "gpu_client/protocol/code_records.hpp"
#include "gpu_client/protocol/wire.hpp"

namespace tnr::cuda {

class RemoteCall;

// Options that are sent, each as a number and a value.
struct LoadOptions {
    wire::LibraryOptions library = {};  // CUlibraryOption
    wire::JitOptions compiler = {};     // CUjit_option
    bool log_wanted = false;            // the program will read the compiler's log
};

// The code behind a Library. Sent when something of it is first needed; its kernels are known from then on.
struct LoadedCode {
    Turn sending;  // held by the thread that writes what follows; any may read it once `loaded`
    std::atomic<bool> loaded{false};
    CUresult failed = CUDA_SUCCESS;   // what loading said; every later use fails alike
    std::string errors, information;  // the compiler's logs
    Image image;                      // what is sent: one entry. Kept until something of it is used
    // Of an image that was offered. It may be kept where the image is not: the server may still have that.
    wire::ImageOffer offer;
    LoadOptions options;
    std::vector<std::unique_ptr<KernelInfo>> kernels;
    std::map<std::string, size_t, std::less<>> by_name;

    Mutex mutex;  // also held while a kernel's handle is made, and for the image once it is loaded
    bool used TNR_GUARDED_BY(mutex) = false;  // see load_elsewhere()
    // Address and size of the globals asked for so far.
    std::map<std::string, std::pair<uint64_t, uint64_t>, std::less<>> globals TNR_GUARDED_BY(mutex);
    std::vector<uint64_t> managed TNR_GUARDED_BY(mutex);  // where blocks of managed variables begin
};

// Makes the handle. `image` comes from image_for_device(). A module (`context` not 0) is loaded at once, a library when
// first needed: until then the image must own its bytes, or borrow them from memory that the program preserves.
CUresult create_library(Image image, LoadOptions options, uint64_t context, Library*& library);
// Images are sent ahead of the call that uses them, each under a number that is never reused.
uint64_t next_library_number();
CUresult send_image(uint64_t number, const Image& image, Context* context);
// Loads the library unless it is loaded; its kernels are known afterwards.
CUresult ensure_loaded(Library& library);
CUresult unload_library(uint64_t handle);
// The handle of the kernel called `name`; CUDA_ERROR_NOT_FOUND if there is none.
CUresult get_kernel(Library& library, const char* name, uint64_t& handle);
CUresult kernel_handle(Library& library, size_t index, uint64_t& handle);
// Loads another copy of code, so that the driver puts its variables elsewhere. What was loaded before stays, so that
// nothing else is put there, and its number is added to `left`, for unload_copies(). CUDA_ERROR_ALREADY_MAPPED once
// something of the code has been used.
CUresult load_elsewhere(Library& library, std::vector<uint64_t>& left);
void unload_copies(const Library& library, const std::vector<uint64_t>& left);
// Something of the code is used from now on.
void keep_in_place(LoadedCode& code);
void forget_modules_of(const Context& context);

}  // namespace tnr::cuda

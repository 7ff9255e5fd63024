#include "worker/cuda/plugin.h"

#include <dlfcn.h>

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun::worker::cuda {

absl::StatusOr<FlatAdamW> LoadCudaFlatAdamW() {
  const char* named = std::getenv("DDPRUN_CUDA_PLUGIN");
  const char* library = named != nullptr && *named != '\0' ? named : "libddprun_cuda.so";
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  void* symbol = handle != nullptr ? dlsym(handle, kCudaFlatAdamWSymbol) : nullptr;
  if (symbol == nullptr) {
    const char* reason = dlerror();
    return absl::FailedPreconditionError(absl::StrCat(
        "the CUDA kernels can't be loaded from '", library, "': ", reason != nullptr ? reason : "?",
        "; they are built where nvcc is found at configure time; name the library in "
        "DDPRUN_CUDA_PLUGIN if it lies elsewhere"));
  }
  return *reinterpret_cast<const FlatAdamW* (*)()>(symbol)();
}

}  // namespace ddprun::worker::cuda

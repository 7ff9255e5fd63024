#ifndef DDPRUN_WORKER_CUDA_PLUGIN_H_
#define DDPRUN_WORKER_CUDA_PLUGIN_H_

#include "absl/status/statusor.h"
#include "worker/cuda/flat_adamw.h"

namespace ddprun::worker::cuda {

// Loads FlatAdamW for GPUs, from the library that DDPRUN_CUDA_PLUGIN names, else from
// libddprun_cuda.so on the program's search path. The library stays loaded. Loading needs no GPU,
// calling does.
// Errors: FAILED_PRECONDITION — it can't be loaded; the text says what to do. Threads: any.
//
// A plug-in, so that workers on CPUs need no CUDA runtime, and without LibTorch's extension
// headers, which need the CUDA wheels at build time and take minutes to compile.
absl::StatusOr<FlatAdamW> LoadCudaFlatAdamW();

}  // namespace ddprun::worker::cuda

#endif  // DDPRUN_WORKER_CUDA_PLUGIN_H_

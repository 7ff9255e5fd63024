#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_TORCH_ARCHIVE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_TORCH_ARCHIVE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"

namespace ddprun::worker {

// Whether a file that begins with `bytes` is a zip, as the files of torch.save and torch::save are.
bool IsTorchArchive(absl::string_view bytes);

// The tensors of a zip by their names, on the CPU: the parameters and buffers of a module that
// torch::save or torch.jit.save wrote, or the tensors of a dict that torch.save wrote.
// Errors: FAILED_PRECONDITION — the zip has something else, such as a whole Python module; the text
// has the command that converts it, and the keys of a dict that has the weights under one of them.
absl::StatusOr<CheckpointTensors> ReadTorchArchive(const std::string& path,
                                                   absl::string_view bytes);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_TORCH_ARCHIVE_H_

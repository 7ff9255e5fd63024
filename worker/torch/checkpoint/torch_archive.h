#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_TORCH_ARCHIVE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_TORCH_ARCHIVE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"

namespace ddprun::worker {

// Whether a file that begins so is a zip, as all that torch.save and torch::save write.
bool IsTorchArchive(absl::string_view bytes);

// The tensors of a zip by their names, on the CPU: of a module that torch::save or torch.jit.save
// wrote its parameters and buffers; of a dict that torch.save wrote its tensors.
// Errors: FAILED_PRECONDITION — it is something else, such as a whole Python module; the text has
// the command that converts it, and the keys of a dict that has the weights under one of them.
absl::StatusOr<CheckpointTensors> ReadTorchArchive(const std::string& path,
                                                   absl::string_view bytes);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_TORCH_ARCHIVE_H_

#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_ATOMIC_FILE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_ATOMIC_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::worker {

// The suffix of a file that is still being written: "<path>.<pid>.tmp".
inline constexpr const char* kTemporarySuffix = ".tmp";

// Writes the pieces, one after the other, to a new file that then replaces `path`. A reader, also
// one after a crash of the machine, finds the old file or the whole new one (fsync(2) of the file,
// rename(2), fsync of the directory). A failed write leaves nothing behind.
// Errors: the errno's code, with the call and the path.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces);

// Creates the directory and its parents, so that they survive a crash; existing ones are fine.
absl::Status MakeDirectories(const std::string& path);

// Names in a directory, sorted, without "." and "..". Errors: NOT_FOUND — no such directory.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_ATOMIC_FILE_H_

#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_MAPPED_FILE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_MAPPED_FILE_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::worker {

// A file's bytes, mapped from the kernel's page cache: reading them takes no memory of this
// process, and the processes of a machine share the pages. To read the file instead would take
// 24 GB a rank for a billion parameters with Adam's state, though a rank keeps only a part.
// Unmapped with the last owner. If a mapped file is truncated, or its disk fails, a process that
// reads the lost part is killed (SIGBUS). Checkpoints are only replaced by rename(2) or deleted,
// which is harmless. Threads: any.
class MappedFile {
 public:
  // Errors: NOT_FOUND and others by errno, with the path.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Read-only memory; valid while this lives.
  absl::string_view bytes() const { return {static_cast<const char*>(begin_), size_}; }

 private:
  MappedFile(void* begin, size_t size) : begin_(begin), size_(size) {}

  void* const begin_;  // null = an empty file
  const size_t size_;
};

// Reads a mapped file from its disk into the page cache, in a thread of its own, ahead of the code
// that uses the bytes: otherwise the disk would idle while a checksum is computed, and the checksum
// wait while the disk reads. Only speed depends on this: it gives up if the kernel can't (Linux
// before 5.14 lacks MADV_POPULATE_READ, madvise(2)), or the disk fails. Threads: one.
class ReadAhead {
 public:
  // Begins at once. Params: mapped: bytes() of a MappedFile, which must outlive this.
  explicit ReadAhead(absl::string_view mapped);
  ~ReadAhead();  // ends it within a piece of 8 MiB
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

 private:
  void Run(absl::string_view mapped);

  std::atomic<bool> ended_ = false;
  std::thread thread_;  // not joinable: no thread could be started
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_MAPPED_FILE_H_

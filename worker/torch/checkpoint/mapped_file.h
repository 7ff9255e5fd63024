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

// A file's bytes as they lie in the kernel's page cache: what of them is read takes no memory of
// this process, and a machine's processes share it. Reading the file instead would take 24 GB a
// rank for a billion parameters with Adam's state, though a rank keeps a part. Unmapped with the
// last owner.
// A file that shrinks, or whose disk fails, while it is mapped kills whoever reads the lost part
// (SIGBUS); ours are replaced by rename(2), and deleted, which is harmless. Threads: any.
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

// Has the bytes of a mapped file read from its disk ahead of who uses them, in a thread of its own:
// otherwise the disk waits while a checksum is computed, and the checksum while the disk reads.
// Nothing but speed depends on it: it gives up where the kernel can't (Linux before 5.14 lacks
// MADV_POPULATE_READ, madvise(2)), or the disk fails. Threads: one.
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
  std::thread thread_;  // none: there were no more threads
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_MAPPED_FILE_H_

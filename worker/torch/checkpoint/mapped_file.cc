#include "worker/torch/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/thread.h"

namespace ddprun::worker {
namespace {

// A multiple of every page size; large enough to keep a disk busy, small enough to end soon.
constexpr size_t kReadAheadPiece = size_t{8} << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const auto failed = [&path](const char* call) {
    return ErrnoStatus(errno, absl::StrCat(call, " '", path, "'"));
  };
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return failed("open");
  struct stat information {};
  if (fstat(file.get(), &information) != 0) return failed("stat");
  const auto size = static_cast<size_t>(information.st_size);
  void* begin = nullptr;
  if (size > 0) {
    begin = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (begin == MAP_FAILED) return failed("map");
    madvise(begin, size, MADV_SEQUENTIAL);  // a checksum reads it all once; failing is no harm
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(begin, size));
}

MappedFile::~MappedFile() {
  if (begin_ != nullptr) munmap(begin_, size_);
}

ReadAhead::ReadAhead(absl::string_view mapped) {
  absl::StatusOr<std::thread> thread =
      StartThread("reading a checkpoint ahead", [this, mapped] { Run(mapped); });
  if (thread.ok()) thread_ = *std::move(thread);
}

ReadAhead::~ReadAhead() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
}

void ReadAhead::Run(absl::string_view mapped) {
  while (!mapped.empty() && !ended_) {
    const absl::string_view piece = mapped.substr(0, kReadAheadPiece);
    mapped.remove_prefix(piece.size());
    // Not MADV_WILLNEED, which doesn't wait: it took twice as long for the same bytes.
    if (madvise(const_cast<char*>(piece.data()), piece.size(), MADV_POPULATE_READ) != 0) return;
  }
}

}  // namespace ddprun::worker

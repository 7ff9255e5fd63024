#include "worker/torch/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/fd.h"

namespace ddprun::worker {

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

}  // namespace ddprun::worker

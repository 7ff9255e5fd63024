#ifndef DDPRUN_LAUNCHER_OS_FILES_H_
#define DDPRUN_LAUNCHER_OS_FILES_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Makes a folder and its parents, with the mode that the umask leaves; OK if it exists. Errors: of
// mkdir(2), with the path. Threads: any.
absl::Status MakeFolders(const std::string& path);

// MakeFolders(), then checks that this process may make files in the folder. Errors: of mkdir(2),
// access(2), with the path. Threads: any.
absl::Status MakeWritableFolder(const std::string& path);

// Checks that a file can be made in a folder, and written: a file system may be read-only, or full.
// Errors: of open(2), write(2), with the path. A limit of this process (ulimit -f) isn't an error,
// because it applies to every folder. Threads: any.
absl::Status TryFolder(const std::string& path);

// The folders for temporary files, absolute, best first; in the order of Python's tempfile, and
// so of torchrun: $TMPDIR, $TEMP, $TMP, /tmp, /var/tmp, /usr/tmp, the working folder; then
// /dev/shm, for a file system that is read-only. Threads: any.
std::vector<std::string> TemporaryFolders();

// The names in a folder except "." and "..", at most `most` of them, sorted; empty if the folder
// can't be read. Threads: any.
std::vector<std::string> NamesIn(const std::string& folder, size_t most = SIZE_MAX);

// Removes `path` and all folders below it that have no file in them or below. Symbolic links are
// files. Folders that can't be removed are left. Threads: any.
void RemoveEmptyFolders(const std::string& path);

// Removes `path` with its contents; symbolic links aren't followed. "" = nothing. Files that can't
// be removed are left. Threads: any.
void RemoveFolder(const std::string& path);

// Reads a file of at most `bytes_max` bytes. Errors: of open(2), read(2); RESOURCE_EXHAUSTED — the
// file is longer.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t bytes_max);

// Writes a file atomically: readers see the old text or the new one. Errors: of open(2), write(2),
// rename(2), with the path. Blocks. Threads: any.
absl::Status WriteFile(const std::string& path, absl::string_view text, mode_t mode = 0600);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_FILES_H_

#ifndef DDPRUN_LAUNCHER_OS_FOLDERS_H_
#define DDPRUN_LAUNCHER_OS_FOLDERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ddprun::launcher {

// Makes a folder and those on the way to it, with the mode that the umask leaves; OK when it is
// there. Errors: of mkdir(2), with the path. Threads: any.
absl::Status MakeFolders(const std::string& path);

// MakeFolders(), and whether this process may make files in it. Errors: of mkdir(2), access(2),
// with the path. Threads: any.
absl::Status MakeWritableFolder(const std::string& path);

// Whether a file can be made in a folder, and written: a file system may be read-only, or full.
// Errors: of open(2), write(2), with the path. A limit of this process (ulimit -f) is none: it
// holds everywhere. Threads: any.
absl::Status TryFolder(const std::string& path);

// Where temporary files may be, best first, from the root; in the order of Python's tempfile, and
// so of torchrun: $TMPDIR, $TEMP, $TMP, /tmp, /var/tmp, /usr/tmp, the working folder. Threads: any.
std::vector<std::string> TemporaryFolders();

// Removes `path` and all folders below it that hold nothing but empty folders. Files stay, and so
// do the folders on the way to them; symbolic links are files. What can't be removed is left: it
// harms nobody. Threads: any.
void RemoveEmptyFolders(const std::string& path);

// Removes `path` with all that is in it; symbolic links are not followed. "" = nothing. What can't
// be removed is left. Threads: any.
void RemoveFolder(const std::string& path);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_FOLDERS_H_

#include "tests/unit/worker/torch/checkpoint/recorded_disk.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"

namespace ddprun::testing {
namespace {

using Call = RecordedDisk::Call;
using Kind = RecordedDisk::Kind;
using worker::FileCalls;

constexpr size_t kBlock = 512;

struct Inode {
  bool is_directory = false;
  std::string bytes = "";
  size_t synced = 0;  // so many of them are on the disk
};

// A change of a directory's names.
struct Change {
  std::optional<std::string> adds = std::nullopt;
  size_t inode = 0;
  std::optional<std::string> removes = std::nullopt;
};

struct Directory {
  std::map<std::string, size_t> on_disk;
  std::map<std::string, size_t> now;
  std::vector<Change> unsynced;
};

void Apply(const Change& change, std::map<std::string, size_t>& names) {
  if (change.removes.has_value()) names.erase(*change.removes);
  if (change.adds.has_value()) names[*change.adds] = change.inode;
}

// The disk as the kernel sees it, by paths.
class Disk {
 public:
  void Do(const Call& call) {
    const std::filesystem::path path = call.path;
    Directory& directory = directories_[path.parent_path()];
    const std::string name = path.filename();
    switch (call.kind) {
      case Kind::kMakeDirectory:
      case Kind::kCreate:
        inodes_.push_back({.is_directory = call.kind == Kind::kMakeDirectory});
        Make(directory, {.adds = name, .inode = inodes_.size() - 1});
        break;
      case Kind::kWrite:
        inodes_[directory.now.at(name)].bytes += call.bytes;
        break;
      case Kind::kSyncFile: {
        Inode& inode = inodes_[directory.now.at(name)];
        inode.synced = inode.bytes.size();
        break;
      }
      case Kind::kRename:
        Make(directory, {.adds = std::filesystem::path(call.to).filename(),
                         .inode = directory.now.at(name),
                         .removes = name});
        break;
      case Kind::kRemove:
        if (directory.now.contains(name)) Make(directory, {.removes = name});
        break;
      case Kind::kSyncDirectory: {
        Directory& synced = directories_[path];
        synced.on_disk = synced.now;
        synced.unsynced.clear();
        break;
      }
      case Kind::kSaid:
        break;
    }
  }

  // What the directory `path` has after a crash, as files in `to`.
  void Leave(const std::filesystem::path& path, Rng& rng, const std::string& to) {
    if (!NamesLeft(path.parent_path(), rng).contains(path.filename())) return;
    for (const auto& [name, inode] : NamesLeft(path, rng)) {
      std::ofstream(to + "/" + name, std::ios::binary) << BytesLeft(inodes_[inode], rng);
    }
  }

 private:
  static void Make(Directory& directory, const Change& change) {
    Apply(change, directory.now);
    directory.unsynced.push_back(change);
  }

  // Which of `count` unsynced things have reached the disk.
  static std::vector<bool> Reached(size_t count, Rng& rng) {
    std::vector<bool> reached(count, false);
    const uint64_t how = rng.Below(4);  // none, all, a beginning, any
    const uint64_t beginning = rng.Below(count + 1);
    for (size_t i = 0; i < count; ++i) {
      reached[i] = how == 1 || (how == 2 && i < beginning) || (how == 3 && rng.Chance(50));
    }
    return reached;
  }

  std::map<std::string, size_t> NamesLeft(const std::filesystem::path& path, Rng& rng) {
    const Directory& directory = directories_[path];
    std::map<std::string, size_t> names = directory.on_disk;
    const std::vector<bool> reached = Reached(directory.unsynced.size(), rng);
    for (size_t i = 0; i < reached.size(); ++i) {
      Change change = directory.unsynced[i];
      if (change.adds.has_value() && rng.Chance(25)) change.removes.reset();  // both names
      if (reached[i]) Apply(change, names);
    }
    return names;
  }

  static std::string BytesLeft(const Inode& inode, Rng& rng) {
    std::string bytes = inode.bytes;
    const size_t blocks = (bytes.size() - inode.synced + kBlock - 1) / kBlock;
    const std::vector<bool> reached = Reached(blocks, rng);
    const char rubbish = rng.Chance(50) ? '\0' : '\x5a';
    for (size_t i = 0; i < blocks; ++i) {
      const size_t begin = inode.synced + i * kBlock;
      const size_t end = std::min(begin + kBlock, bytes.size());
      if (!reached[i]) std::fill(bytes.begin() + begin, bytes.begin() + end, rubbish);
    }
    if (rng.Chance(50)) bytes.resize(inode.synced + rng.Below(bytes.size() - inode.synced + 1));
    return bytes;
  }

  std::vector<Inode> inodes_;
  std::map<std::string, Directory> directories_;
};

}  // namespace

void RecordedDisk::Note(Call call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_.push_back(std::move(call));
}

std::vector<RecordedDisk::Call> RecordedDisk::calls() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

absl::Status RecordedDisk::MakeDirectory(const std::string& path) {
  Note({.kind = Kind::kMakeDirectory, .path = path});
  return FileCalls::MakeDirectory(path);
}

absl::StatusOr<Fd> RecordedDisk::Create(const std::string& path) {
  Note({.kind = Kind::kCreate, .path = path});
  return FileCalls::Create(path);
}

absl::Status RecordedDisk::Write(const Fd& file, const std::string& path, absl::string_view bytes) {
  Note({.kind = Kind::kWrite, .path = path, .bytes = std::string(bytes)});
  return FileCalls::Write(file, path, bytes);
}

absl::Status RecordedDisk::SyncFile(const Fd& /*file*/, const std::string& path) {
  Note({.kind = Kind::kSyncFile, .path = path});
  return absl::OkStatus();  // no crash but the simulated one
}

absl::Status RecordedDisk::Rename(const std::string& from, const std::string& to) {
  Note({.kind = Kind::kRename, .path = from, .to = to});
  return FileCalls::Rename(from, to);
}

absl::Status RecordedDisk::SyncDirectory(const std::string& path) {
  Note({.kind = Kind::kSyncDirectory, .path = path});
  return absl::OkStatus();
}

absl::Status RecordedDisk::Remove(const std::string& path) {
  Note({.kind = Kind::kRemove, .path = path});
  return FileCalls::Remove(path);
}

void LeaveAfterCrash(const std::vector<RecordedDisk::Call>& calls, size_t count, Rng& rng,
                     const std::string& from, const std::string& to) {
  Disk disk;
  for (size_t i = 0; i < count; ++i) disk.Do(calls[i]);
  disk.Leave(from, rng, to);
}

CrashTally CrashAfterEachCall(const std::vector<RecordedDisk::Call>& calls, int points,
                              const std::string& from, const std::string& left,
                              const CheckpointReader& read) {
  CrashTally tally;
  for (int point = 0; point < points; ++point) {
    const size_t count = static_cast<size_t>(point) % (calls.size() + 1);
    Rng rng(static_cast<uint64_t>(point));
    std::filesystem::remove_all(left);
    std::filesystem::create_directory(left);
    LeaveAfterCrash(calls, count, rng, from, left);
    int64_t promised = 0;
    for (size_t i = 0; i < count; ++i) promised = std::max(promised, calls[i].said);
    const ResumedSave resumed = read(left);
    const int64_t number = resumed.value_or(0);
    if (number == kTornSave || number > promised + 1) {
      ++tally.torn;
    } else if (number < promised) {
      ++tally.lost;
    }
    if (!resumed.has_value()) ++tally.from_none;
    if (number == promised + 1) ++tally.newest;
  }
  return tally;
}

}  // namespace ddprun::testing

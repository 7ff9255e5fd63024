#include "tests/worker/faults.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"

namespace ddprun::testing {
namespace {

// The file that this thread renamed last: a sync of a directory doesn't say which file it is for.
thread_local std::string renamed;

// Returns the owner of a checkpoint's file, as FAULT names it.
std::string OwnerOf(absl::string_view path) {
  const size_t mark = path.rfind("-r");
  int rank = 0;
  if (mark == path.npos || !absl::SimpleAtoi(path.substr(mark + 2, 5), &rank)) return "whole";
  return absl::StrCat(rank);
}

}  // namespace

Faults::Faults(std::string fault, std::string journal)
    : fault_(std::move(fault)), journal_(std::move(journal)) {}

std::string Faults::TakeFault(const std::string& call, const std::string& whose) const {
  std::string wanted;
  std::string owner;
  std::string what;
  std::ifstream(fault_) >> wanted >> owner >> what;
  if (what.empty() || wanted != call || owner != whose) return "";
  // If several workers meet the fault, only one can rename the file.
  const std::string taken = absl::StrCat(fault_, ".", getpid());
  return std::rename(fault_.c_str(), taken.c_str()) == 0 ? what : "";
}

void Faults::Note(const std::string& event, const std::string& call,
                  const std::string& path) const {
  // A whole line of several processes: one write.
  std::ofstream(journal_, std::ios::app)
      << absl::StrFormat(
             R"({"event":"%s","t":%.6f,"who":"worker","pid":%d,"call":"%s","name":"%s"})", event,
             static_cast<double>(MonotonicNow().nanoseconds()) / 1e9, getpid(), call,
             path.substr(path.rfind('/') + 1))
      << std::endl;
}

template <typename Function>
auto Faults::During(const std::string& call, const std::string& whose, const std::string& path,
                    Function&& function) const {
  const std::string what = TakeFault(call, whose);
  if (!what.empty()) Note("fault", call, path);
  if (what == "kill") raise(SIGKILL);
  if (what == "hold") {
    const Fd gate(open((fault_ + ".gate").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    flock(gate.get(), LOCK_SH);
  }
  auto result = function();
  if (what == "kill_after") raise(SIGKILL);
  return result;
}

void Faults::At(const std::string& call, uint32_t rank) const {
  During(call, absl::StrCat(rank), "", [] { return true; });
}

absl::StatusOr<Fd> Faults::Create(const std::string& path) {
  return During("create", OwnerOf(path), path, [&] { return FileCalls::Create(path); });
}

absl::Status Faults::Write(const Fd& file, const std::string& path, absl::string_view bytes) {
  return During("write", OwnerOf(path), path, [&] { return FileCalls::Write(file, path, bytes); });
}

absl::Status Faults::SyncFile(const Fd& file, const std::string& path) {
  return During("sync", OwnerOf(path), path, [&] { return FileCalls::SyncFile(file, path); });
}

absl::Status Faults::Rename(const std::string& from, const std::string& to) {
  return During("rename", OwnerOf(to), to, [&] {
    absl::Status done = FileCalls::Rename(from, to);
    Note("renamed", "rename", to);
    renamed = to;
    return done;
  });
}

absl::Status Faults::SyncDirectory(const std::string& path) {
  return During("named", OwnerOf(renamed), renamed, [&] { return FileCalls::SyncDirectory(path); });
}

absl::Status Faults::Remove(const std::string& path) {
  return During("remove", OwnerOf(path), path, [&] { return FileCalls::Remove(path); });
}

}  // namespace ddprun::testing

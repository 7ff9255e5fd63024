#include "launcher/os/wait_probe.h"

#include <dirent.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/os/files.h"
#include "launcher/os/wait_calls.h"
#include "launcher/os/wait_target.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kMapsBytesMax = 8 << 20;
constexpr int kGenerationsMax = 8;

// The value of "Name:\tvalue" in a status file, proc_pid_status(5).
std::string Field(const std::string& status, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    if (absl::ConsumePrefix(&line, name) && absl::ConsumePrefix(&line, ":")) {
      return std::string(absl::StripAsciiWhitespace(line));
    }
  }
  return "";
}

struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool is_code = false;
  bool is_private = false;
  std::string file;  // its name without the folder
};

std::vector<Mapping> Mappings(pid_t pid) {
  std::vector<Mapping> mappings;
  const std::string text = ProcText(absl::StrCat("/proc/", pid, "/maps"), kMapsBytesMax);
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (fields.size() < 5 || fields[1].size() != 4) return {};
    const std::pair<absl::string_view, absl::string_view> range = absl::StrSplit(fields[0], '-');
    Mapping mapping{.is_code = fields[1][2] == 'x', .is_private = fields[1][3] == 'p'};
    if (!absl::SimpleHexAtoi(range.first, &mapping.begin) ||
        !absl::SimpleHexAtoi(range.second, &mapping.end)) {
      return {};
    }
    if (fields.size() > 5) mapping.file = std::string(fields[5].substr(fields[5].rfind('/') + 1));
    mappings.push_back(std::move(mapping));
  }
  return mappings;  // in the order of their addresses
}

const Mapping* Find(const std::vector<Mapping>& mappings, uint64_t address) {
  const auto after = std::upper_bound(
      mappings.begin(), mappings.end(), address,
      [](uint64_t value, const Mapping& mapping) { return value < mapping.begin; });
  if (after == mappings.begin() || address >= std::prev(after)->end) return nullptr;
  return &*std::prev(after);
}

// The library that called the C library: the first address of code on the stack that lies in
// neither the C nor the C++ library.
std::string Caller(pid_t pid, uint64_t stack, const std::vector<Mapping>& mappings) {
  std::array<uint64_t, 64> words{};
  const size_t size = ReadMemory(pid, stack, words.data(), sizeof(words));
  for (size_t i = 0; i < size / sizeof(uint64_t); ++i) {
    const Mapping* mapping = Find(mappings, words[i]);
    if (mapping == nullptr || !mapping->is_code || absl::StartsWith(mapping->file, "libc.so") ||
        absl::StartsWith(mapping->file, "libc-") || absl::StartsWith(mapping->file, "libpthread") ||
        absl::StartsWith(mapping->file, "libstdc++") || absl::StartsWith(mapping->file, "ld-")) {
      continue;
    }
    return mapping->file;
  }
  return "";
}

constexpr absl::string_view kGlooWorker = "pt_gloo_runloop";
constexpr absl::string_view kStoreServer = "pt_tcpstore_uv";
constexpr absl::string_view kTorch = "libtorch_cpu.so";

// Gloo's event loop asks for 64 events with a limit of 10 ms (gloo/transport/tcp/loop.cc); its
// thread has no name. libuv's, in a TCPStore's server, asks for 1024.
bool IsTorchLoop(pid_t pid, const ThreadWait& thread, const BlockedCall& call,
                 const std::vector<Mapping>& mappings) {
  if (!IsEpoll(call)) return false;
  const bool gloo = call.arguments[2] == 64 && call.arguments[3] == 10;
  if (!gloo && thread.comm != kStoreServer) return false;
  return Caller(pid, call.stack, mappings) == kTorch;
}

// Signals whose handlers can't make a sealed process go on; see the header.
bool HandlersAreHarmless(const std::string& status) {
  uint64_t caught = 0;
  if (!absl::SimpleHexAtoi(Field(status, "SigCgt"), &caught)) return false;
  for (const int number : {SIGINT, SIGCHLD, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP,
                           SIGSYS, SIGPIPE, 32, 33}) {
    caught &= ~(uint64_t{1} << (number - 1));
  }
  return caught == 0;
}

// A look at one process and, for the proof, its descendants.
class Look {
 public:
  explicit Look(pid_t pid) : pid_(pid), target_(pid), folder_(absl::StrCat("/proc/", pid, "/")) {}

  ProcessWait Run(const std::set<pid_t>& ignored_tids, int depth) {
    if (!ReadTasks()) return std::move(result_);
    const bool can_read = WaitTarget::CanReadMemory(pid_);
    CallReader reader(pid_, can_read);
    for (size_t i = 0; i < tasks_.size(); ++i) {
      ThreadWait& thread = result_.threads.emplace_back();
      thread.tid = tasks_[i];
      const std::string folder = TaskFolder(thread.tid);
      thread.comm = ProcText(folder + "comm");
      CallText text;
      calls_.push_back(reader.Read(folder, &text));
      thread.what = std::move(text.what);
      if (thread.tid == pid_) result_.main = std::move(text.main);
    }
    if (can_read && !truncated_) Prove(ignored_tids, depth);
    return std::move(result_);
  }

 private:
  std::string TaskFolder(pid_t tid) const { return absl::StrCat(folder_, "task/", tid, "/"); }

  bool ReadTasks() {
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir((folder_ + "task").c_str()),
                                                        closedir);
    while (const dirent* entry = directory == nullptr ? nullptr : readdir(directory.get())) {
      pid_t tid = 0;
      if (!absl::SimpleAtoi(entry->d_name, &tid)) continue;
      truncated_ = tasks_.size() == kWaitThreadsMax;
      if (truncated_) break;
      tasks_.push_back(tid);
    }
    return !tasks_.empty();
  }

  void Prove(const std::set<pid_t>& ignored_tids, int depth) {
    const std::optional<std::vector<size_t>> counted = Closed(ignored_tids);
    if (!counted.has_value() || counted->empty() || !NothingElseWakes()) return;
    std::string fingerprint = StartTime();
    for (const size_t i : *counted) {
      const std::string status = ProcText(TaskFolder(tasks_[i]) + "status");
      const std::string turns = Field(status, "voluntary_ctxt_switches");
      if (turns.empty()) return;
      absl::StrAppend(&fingerprint, " ", tasks_[i], ":", absl::Hex(calls_[i]->arguments[0]), ":",
                      turns, ":", Field(status, "nonvoluntary_ctxt_switches"));
    }
    for (const pid_t child : WaitTarget::Children(pid_)) {
      if (IsHarmlessChild(child)) continue;
      if (depth == kGenerationsMax) return;
      ProcessWait wait = Look(child).Run(ignored_tids, depth + 1);
      if (!wait.sealed) return;
      absl::StrAppend(&fingerprint, " [", child, " ", wait.fingerprint, "]");
    }
    result_.fingerprint = std::move(fingerprint);
    result_.sealed = true;
  }

  // Marks the threads that are closed. Returns those that count, none when one isn't closed.
  std::optional<std::vector<size_t>> Closed(const std::set<pid_t>& ignored_tids) {
    if (std::none_of(calls_.begin(), calls_.end(),
                     [](const auto& call) { return call && IsPrivateLock(*call); })) {
      return std::nullopt;
    }
    const std::vector<Mapping> mappings = Mappings(pid_);
    std::vector<size_t> counted;
    bool all = true;
    bool has_loop = false;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      ThreadWait& thread = result_.threads[i];
      if (calls_[i].has_value() && IsPrivateLock(*calls_[i])) {
        const Mapping* mapping = Find(mappings, calls_[i]->arguments[0]);
        thread.closed = mapping != nullptr && mapping->is_private;
      }
      if (ignored_tids.contains(tasks_[i])) continue;
      if (thread.closed) {
        counted.push_back(i);
      } else if (calls_[i].has_value() && IsTorchLoop(pid_, thread, *calls_[i], mappings)) {
        has_loop = true;
        store_servers_ += thread.comm == kStoreServer ? 1 : 0;
      } else {
        all = false;
      }
    }
    if (!all || (has_loop && !GlooIsIdle())) return std::nullopt;
    return counted;
  }

  // Gloo's event loop wakes the workers whose transfers are done. Each process group has two
  // workers or more, which wait for work at one condition variable (two words of it, in turns);
  // a worker with a transfer waits at that transfer's own.
  bool GlooIsIdle() const {
    const auto is_worker = [this](size_t i) { return result_.threads[i].comm == kGlooWorker; };
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (!is_worker(i)) continue;
      if (!calls_[i].has_value()) return false;
      bool has_company = false;
      for (size_t k = 0; k < tasks_.size(); ++k) {
        const uint64_t here = calls_[i]->arguments[0];
        const uint64_t there = calls_[k] ? calls_[k]->arguments[0] : 0;
        has_company |= k != i && is_worker(k) && std::max(here, there) - std::min(here, there) <= 4;
      }
      if (!has_company) return false;
    }
    return true;
  }

  // Whether the process has no debugger, timer, handler, or io_uring (which can wake a futex)
  // besides the one that libuv has in each TCPStore server for its own descriptors.
  bool NothingElseWakes() const {
    const std::string status = ProcText(folder_ + "status");
    const absl::StatusOr<std::string> timers = ReadFile(folder_ + "timers", kProcTextMax);
    const std::optional<size_t> urings = target_.IoUrings();
    return Field(status, "TracerPid") == "0" && HandlersAreHarmless(status) && timers.ok() &&
           timers->empty() && urings.has_value() && *urings <= store_servers_;
  }

  // The start time of the process, which distinguishes it from a later one with the same pid.
  std::string StartTime() const {
    const std::string stat = ProcText(folder_ + "stat");
    const std::vector<absl::string_view> fields =
        absl::StrSplit(absl::string_view(stat).substr(std::min(stat.rfind(')'), stat.size())), ' ');
    return fields.size() > 20 ? std::string(fields[20]) : "";
  }

  // A zombie does nothing more.
  static bool IsHarmlessChild(pid_t child) {
    const std::string folder = absl::StrCat("/proc/", child, "/");
    return ProcState(folder) == 'Z' || ProcText(folder + "comm") == "pt_data_worker";
  }

  const pid_t pid_;
  const WaitTarget target_;
  const std::string folder_;
  std::vector<pid_t> tasks_;
  std::vector<std::optional<BlockedCall>> calls_;  // as tasks_
  bool truncated_ = false;
  size_t store_servers_ = 0;
  ProcessWait result_;
};

}  // namespace

ProcessWait LookAtWaits(pid_t pid, const std::set<pid_t>& ignored_tids) {
  return pid <= 0 ? ProcessWait() : Look(pid).Run(ignored_tids, 0);
}

bool SameSealed(const ProcessWait& first, const ProcessWait& second) {
  return first.sealed && second.sealed && first.fingerprint == second.fingerprint;
}

}  // namespace ddprun::launcher

#include "bench/load/service_under_load.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/null_terminated.h"
#include "base/status_macros.h"

namespace ddprun::bench {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "VmRSS:	  123456 kB" in MB.
double MegabytesOf(const std::string& status, const std::string& name) {
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    double kilobytes = 0;
    if (words.size() >= 2 && absl::SimpleAtod(words[words.size() - 2], &kilobytes)) {
      return kilobytes / 1024;
    }
  }
  return 0;
}

int CountEntries(const std::string& path) {
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return 0;
  int count = -2;  // "." and ".."
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

}  // namespace

ProcessUse UseOf(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid);
  const std::string stat = TextOf(absl::StrCat(folder, "/stat"));
  // Behind the name, which may hold anything: state is field 3, user and system time 14 and 15.
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(std::min(stat.size(), stat.rfind(')') + 2)), ' ');
  ProcessUse use;
  int64_t user = 0;
  int64_t system = 0;
  if (fields.size() > 12 && absl::SimpleAtoi(fields[11], &user) &&
      absl::SimpleAtoi(fields[12], &system)) {
    use.processor = absl::Seconds(user + system) / sysconf(_SC_CLK_TCK);
  }
  const std::string status = TextOf(absl::StrCat(folder, "/status"));
  use.resident_mb = MegabytesOf(status, "VmRSS:");
  use.resident_peak_mb = MegabytesOf(status, "VmHWM:");
  use.descriptors = CountEntries(absl::StrCat(folder, "/fd"));
  return use;
}

void ForgetPeak(pid_t pid) { std::ofstream(absl::StrCat("/proc/", pid, "/clear_refs")) << "5"; }

double LoadAverage() {
  double load = 0;
  getloadavg(&load, 1);
  return load;
}

ServiceUnderLoad::~ServiceUnderLoad() { Kill(); }

absl::Status ServiceUnderLoad::Start() {
  DDPRUN_ASSIGN_OR_RETURN(FdPair pipe, MakePipe());
  const std::vector<std::string> words = {program_,      "rendezvous",
                                          "--listen",    absl::StrCat("127.0.0.1:", port_),
                                          "--state_dir", absl::StrCat(folder_, "/state"),
                                          "--event_log", absl::StrCat(folder_, "/events.jsonl")};
  const std::vector<char*> arguments = NullTerminated(words);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe.second.get(), STDERR_FILENO);
  const int error =
      posix_spawn(&pid_, program_.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("posix_spawn ", program_));
  words_ = std::move(pipe.first);
  return AwaitReady();
}

// Reads until it says on which port it listens.
absl::Status ServiceUnderLoad::AwaitReady() {
  const std::string before = ", port ";
  std::string said;
  char bytes[512];
  size_t at = std::string::npos;
  while ((at = said.find(before)) == std::string::npos || said.find(';', at) == std::string::npos) {
    const ssize_t n = read(words_.get(), bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::UnavailableError(absl::StrCat("the service did not start: ", said));
    said.append(bytes, static_cast<size_t>(n));
  }
  const std::string port = said.substr(at + before.size(), said.find(';', at) - at - before.size());
  if (!absl::SimpleAtoi(port, &port_)) return absl::InternalError(absl::StrCat("no port: ", said));
  drain_ = std::make_unique<FdWatch>(loop_, words_.get(), [this] {
    char more[512];
    if (read(words_.get(), more, sizeof(more)) == 0) drain_.reset();
  });
  return absl::OkStatus();
}

void ServiceUnderLoad::Kill() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);  // our own child: nobody else has its number before we wait for it
  waitpid(std::exchange(pid_, 0), nullptr, 0);
  drain_.reset();
  words_.Reset();
}

size_t ServiceUnderLoad::Noted(const std::string& event) const {
  std::ifstream log(absl::StrCat(folder_, "/events.jsonl"));
  const std::string wanted = absl::StrCat("\"event\":\"", event, "\"");
  size_t count = 0;
  for (std::string line; std::getline(log, line);) count += absl::StrContains(line, wanted) ? 1 : 0;
  return count;
}

}  // namespace ddprun::bench

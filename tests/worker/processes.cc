#include "tests/worker/processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/fd.h"
#include "base/null_terminated.h"
#include "tests/worker/parked_probe.h"

namespace ddprun::testing {
namespace {

// This process' environment with `variables` on top, as "NAME=value".
std::vector<std::string> MergedEnvironment(std::map<std::string, std::string> variables) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) {
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  std::vector<std::string> merged;
  for (const auto& [name, value] : variables) merged.push_back(name + "=" + value);
  return merged;
}

}  // namespace

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "ddprun_test_XXXXXX").string();
  DDPRUN_CHECK(mkdtemp(pattern.data()) != nullptr, pattern);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Process::Process(const std::vector<std::string>& command,
                 const std::map<std::string, std::string>& variables,
                 const std::string& output_file, Start start)
    : output_file_(output_file) {
  const Fd output(
      open(output_file.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR));
  DDPRUN_CHECK(output.valid(), output_file);
  std::vector<std::string> environment = MergedEnvironment(variables);
  if (start != Start::kExecuted) {
    pid_ = ForkParked(command, std::move(environment), output.get(), start == Start::kForked);
    return;
  }
  std::vector<std::string> arguments = command;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, output.get(), 2);
  const int error =
      posix_spawn(&pid_, arguments[0].c_str(), &actions, nullptr, NullTerminated(arguments).data(),
                  NullTerminated(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  DDPRUN_CHECK(error == 0, command[0]);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), output_file_(std::move(other.output_file_)) {}

Process::~Process() {
  if (pid_ == 0) return;
  Kill(SIGKILL);
  Wait();
}

int Process::Wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0) DDPRUN_CHECK(errno == EINTR, "waitpid");
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void Process::Kill(int signal) const { kill(pid_, signal); }

bool Process::AwaitStop() const {
  siginfo_t seen{};
  DDPRUN_CHECK(waitid(P_PID, static_cast<id_t>(pid_), &seen, WSTOPPED | WEXITED | WNOWAIT) == 0,
               "waitid");
  return seen.si_code == CLD_STOPPED;
}

std::string Process::Output() const { return ReadFile(output_file_); }

std::map<std::string, std::string> WorkerVariables(const std::string& directory, uint32_t rank,
                                                   uint32_t world_size, uint64_t generation) {
  return {{"RANK", std::to_string(rank)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"LOCAL_WORLD_SIZE", std::to_string(world_size)},
          {"GROUP_RANK", "0"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "1"},
          {"OMP_NUM_THREADS", "1"},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_MAX_RESTARTS", "0"},
          {"TORCHELASTIC_RUN_ID", "test"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"},
          {"TORCHELASTIC_ERROR_FILE", directory + "/error." + std::to_string(rank)},
          {"DDPRUN_GENERATION", std::to_string(generation)},
          {"DDPRUN_AGENT", directory + "/agent"}};
}

bool TestsWhole() {
  const char* value = std::getenv("DDPRUN_TEST_WHOLE");
  return value != nullptr && std::string(value) == "1";
}

uint16_t FreePort() {
  const int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  DDPRUN_CHECK(bind(holder, generic, size) == 0, "bind");
  DDPRUN_CHECK(getsockname(holder, generic, &size) == 0, "getsockname");
  // Only now: two that set it before they bind may share a port.
  const int on = 1;
  DDPRUN_CHECK(setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0, "setsockopt");
  return ntohs(address.sin_port);
}

std::string FindPython(const std::string& environment) {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  };
  const std::string named = variable("DDPRUN_TEST_PYTHON");
  if (environment == "py-full" && !named.empty()) return named;
  std::string cache = variable("DDPRUN_CACHE");
  if (cache.empty() && !variable("XDG_CACHE_HOME").empty()) {
    cache = variable("XDG_CACHE_HOME") + "/ddprun";
  }
  if (cache.empty()) cache = variable("HOME") + "/.cache/ddprun";
  const std::string python = cache + "/" + environment + "/bin/python";
  return access(python.c_str(), X_OK) == 0 ? python : "";
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ddprun::testing

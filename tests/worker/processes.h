#ifndef DDPRUN_TESTS_WORKER_PROCESSES_H_
#define DDPRUN_TESTS_WORKER_PROCESSES_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ddprun::testing {

// A directory of its own, removed with everything in it at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A program with its output going to a file; killed when still there at the end.
class Process {
 public:
  enum class Start {
    kExecuted,        // with posix_spawn(3)
    kForked,          // of a probe that has loaded LibTorch already (tests/worker/parked_probe.h)
    kForkedAnywhere,  // the same, with all CPUs
  };
  // `variables` come on top of this process' environment.
  Process(const std::vector<std::string>& command,
          const std::map<std::string, std::string>& variables, const std::string& output_file,
          Start start = Start::kExecuted);
  ~Process();
  Process(Process&& other) noexcept;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Waits for the end: the exit code, or minus the signal.
  int Wait();
  void Kill(int signal) const;
  // Waits until a signal has stopped it; false: it has ended.
  bool AwaitStop() const;
  // What it has printed so far.
  std::string Output() const;

 private:
  pid_t pid_ = 0;  // 0 = reaped
  std::string output_file_;
};

// The variables that an agent sets for one of `world_size` workers of one node, with the socket
// "<directory>/agent" and error files "<directory>/error.<rank>".
std::map<std::string, std::string> WorkerVariables(const std::string& directory, uint32_t rank,
                                                   uint32_t world_size, uint64_t generation = 1);

// Whether DDPRUN_TEST_WHOLE=1 asks for all of a test's parameters, also for those that repeat a
// check with other options.
bool TestsWhole();
// A test's parameters: always `few`, and with TestsWhole() `more`, which repeat the check.
template <typename Parameter>
std::vector<Parameter> FewOrAll(std::vector<Parameter> few, const std::vector<Parameter>& more) {
  if (TestsWhole()) few.insert(few.end(), more.begin(), more.end());
  return few;
}

// A port of 127.0.0.1 that is the caller's until this process ends. It is held by a socket that
// doesn't listen: connections are refused, and a program that sets SO_REUSEADDR can listen there
// (socket(7)).
uint16_t FreePort();

// The interpreter of one of scripts/lib/torch_env.sh's environments (py-launchers; py-full, for
// which DDPRUN_TEST_PYTHON can name another); "" when there is none.
std::string FindPython(const std::string& environment = "py-full");

// The whole file; "" when there is none.
std::string ReadFile(const std::string& path);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_PROCESSES_H_

#include "worker/env/worker_environment.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"

namespace ddprun::worker {
namespace {

constexpr const char* kHint =
    "; start the program with ddprun or torchrun, or without any of their variables to run alone";

// Reads typed variables; the first bad one is kept as the error.
class Variables {
 public:
  explicit Variables(const VariableReader& read) : read_(read) {}

  std::string Text(const char* name) {
    std::optional<std::string> value = read_(name);
    if (!value.has_value() || value->empty()) {
      Fail(absl::StrCat("environment variable ", name, " is ", value ? "empty" : "not set", kHint));
    }
    return value.value_or("");
  }

  std::string TextOr(const char* name, const std::string& otherwise) {
    return read_(name).value_or(otherwise);
  }

  template <typename Number>
  Number Count(const char* name) {
    return Parse<Number>(name, Text(name));
  }

  template <typename Number>
  Number CountOr(const char* name, Number otherwise) {
    const std::optional<std::string> value = read_(name);
    return value.has_value() && !value->empty() ? Parse<Number>(name, *value) : otherwise;
  }

  // Keeps the first error.
  void Fail(absl::string_view message) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(message);
  }

  const absl::Status& status() const { return status_; }

 private:
  template <typename Number>
  Number Parse(const char* name, const std::string& text) {
    Number number = 0;
    if (!text.empty() && !absl::SimpleAtoi(text, &number)) {
      Fail(absl::StrCat("environment variable ", name, " is '", text,
                        "', not a whole number from 0", kHint));
    }
    return number;
  }

  const VariableReader& read_;
  absl::Status status_;
};

// A rank must lie below its size.
void CheckBelow(Variables& variables, const char* rank_name, uint32_t rank, const char* size_name,
                uint32_t size) {
  if (rank < size) return;
  variables.Fail(absl::StrCat("environment variable ", rank_name, " is ", rank,
                              ", which is not below ", size_name, " = ", size, kHint));
}

void ReadDdprunVariables(Variables& variables, WorkerEnvironment& environment) {
  environment.generation = variables.CountOr<uint64_t>("DDPRUN_GENERATION", 0);
  environment.progress_page = variables.TextOr("DDPRUN_PROGRESS", "");
  const std::string agent = variables.TextOr("DDPRUN_AGENT", "");
  environment.agent_socket = std::string(absl::StripPrefix(agent, "unix:"));
  if (environment.started_by_ddprun() && environment.generation == 0) {
    variables.Fail(absl::StrCat("environment variable DDPRUN_AGENT is '", agent,
                                "', but DDPRUN_GENERATION is not a number from 1", kHint));
  }
}

}  // namespace

absl::StatusOr<WorkerEnvironment> ReadWorkerEnvironment(const VariableReader& read) {
  WorkerEnvironment environment;
  Variables variables(read);
  environment.run_id = variables.TextOr("TORCHELASTIC_RUN_ID", "none");
  environment.error_file = variables.TextOr("TORCHELASTIC_ERROR_FILE", "");
  if (!read("RANK").has_value() && !read("WORLD_SIZE").has_value()) return environment;

  environment.rank = variables.Count<uint32_t>("RANK");
  environment.world_size = variables.Count<uint32_t>("WORLD_SIZE");
  environment.local_rank = variables.Count<uint32_t>("LOCAL_RANK");
  environment.local_world_size = variables.Count<uint32_t>("LOCAL_WORLD_SIZE");
  environment.group_rank = variables.CountOr<uint32_t>("GROUP_RANK", 0);
  environment.master_addr = variables.Text("MASTER_ADDR");
  environment.master_port = variables.Count<uint32_t>("MASTER_PORT");
  environment.restart_count = variables.CountOr<uint32_t>("TORCHELASTIC_RESTART_COUNT", 0);
  environment.max_restarts = variables.CountOr<uint32_t>("TORCHELASTIC_MAX_RESTARTS", 0);
  environment.launcher_serves_store =
      variables.TextOr("TORCHELASTIC_USE_AGENT_STORE", "") == "True";
  ReadDdprunVariables(variables, environment);

  CheckBelow(variables, "RANK", environment.rank, "WORLD_SIZE", environment.world_size);
  CheckBelow(variables, "LOCAL_RANK", environment.local_rank, "LOCAL_WORLD_SIZE",
             environment.local_world_size);
  if (environment.local_world_size > environment.world_size) {
    variables.Fail(absl::StrCat("environment variable LOCAL_WORLD_SIZE is ",
                                environment.local_world_size,
                                ", more than WORLD_SIZE = ", environment.world_size, kHint));
  }
  if (environment.master_port == 0 || environment.master_port > 65535) {
    variables.Fail(absl::StrCat("environment variable MASTER_PORT is ", environment.master_port,
                                ", not a port from 1 to 65535", kHint));
  }
  DDPRUN_RETURN_IF_ERROR(variables.status());
  return environment;
}

absl::StatusOr<WorkerEnvironment> ReadWorkerEnvironment() {
  return ReadWorkerEnvironment([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

std::string ErrorFileText(const WorkerError& error, int64_t epoch_seconds) {
  const std::string& stack = error.stack.empty() ? error.message : error.stack;
  const nlohmann::json json = {
      {"message",
       {{"message", error.message},
        {"extraInfo", {{"py_callstack", stack}, {"timestamp", absl::StrCat(epoch_seconds)}}}}}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status WriteErrorFile(const std::string& path, const WorkerError& error) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  Fd file(open(temporary.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("create error file '", temporary, "'"));
  const absl::Cleanup remove = [&] { unlink(temporary.c_str()); };
  const std::string text = ErrorFileText(error, absl::ToUnixSeconds(absl::Now()));
  DDPRUN_RETURN_IF_ERROR(WriteAll(file.get(), text));
  // link(2), unlike rename(2), keeps a file that another thread or process wrote first; some file
  // systems don't have it.
  if (link(temporary.c_str(), path.c_str()) == 0 || errno == EEXIST) return absl::OkStatus();
  if (rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("create error file '", path, "'"));
}

}  // namespace ddprun::worker

#include "ddprun/run_worker.h"

#include <c10/util/Logging.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "worker/env/worker_environment.h"
#include "worker/torch/context/process_context.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/errors/failure_notice.h"
#include "worker/torch/store/collective_check.h"

namespace ddprun {
namespace {

// Set before the body runs; read by the terminate handler too, which a detached thread may call
// when main() has returned: never destroyed.
std::string* error_file_path = nullptr;
std::string* worker_name = nullptr;
// A child that the body forks, and that ends by an error of its own, isn't the worker.
pid_t worker_pid = 0;

void Report(const absl::Status& status) {
  const worker::WorkerError error = worker::ToWorkerError(status);
  const std::vector<std::string> lines = absl::StrSplit(error.message, '\n');
  Notify(absl::StrCat(*worker_name, ": ", lines.front()));
  if (error_file_path->empty() || getpid() != worker_pid) return;
  const absl::Status written = worker::WriteErrorFile(*error_file_path, error);
  if (!written.ok()) Notify(absl::StrCat(*worker_name, ": ", written.ToString()));
}

// Gloo throws a collective mismatch on a thread of its own, where nobody can catch it.
[[noreturn]] void ReportAndAbort() {
  if (std::current_exception() != nullptr) {
    try {
      throw;
    } catch (...) {
      Report(worker::StatusFromCurrentException());
    }
  } else {
    Report(absl::InternalError("std::terminate was called"));
  }
  std::abort();
}

const char* Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void SetUp() {
  const std::string rank = Variable("RANK");
  error_file_path = new std::string(Variable("TORCHELASTIC_ERROR_FILE"));
  worker_pid = getpid();
  worker_name = new std::string(rank.empty() ? "worker" : absl::StrCat("worker of rank ", rank));
  c10::initLogging();
  SetLogLevel(Variable("LOGLEVEL"));
  std::set_terminate(&ReportAndAbort);
}

}  // namespace

int RunWorker(int argc, char** argv, const std::function<absl::Status(int, char**)>& body) {
  SetUp();
  absl::Status status = worker::CatchExceptions([&] { return body(argc, argv); });
  worker::ReleaseProcessContext();
  if (getpid() != worker_pid) {
    if (!status.ok()) Report(status);
    return status.ok() ? 0 : 1;
  }
  if (status.ok()) status = worker::CompareEnds();
  status = worker::ExchangeFailures(status);
  if (!status.ok()) Report(status);
  worker::LeaveStores(status);
  return status.ok() ? 0 : 1;
}

}  // namespace ddprun

#ifndef DDPRUN_BENCH_LOAD_SERVICE_UNDER_LOAD_H_
#define DDPRUN_BENCH_LOAD_SERVICE_UNDER_LOAD_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/fd.h"

namespace ddprun::bench {

// A process' use of resources, from /proc.
struct ProcessUse {
  absl::Duration processor;  // of all its threads, in user and kernel mode; in steps of 10 ms
  double resident_mb = 0;
  double resident_peak_mb = 0;  // since ForgetPeak()
  int descriptors = 0;
};

// Zeros when there is no such process.
ProcessUse UseOf(pid_t pid);
// Resets the resident peak (proc(5), clear_refs).
void ForgetPeak(pid_t pid);
// Runnable processes of the machine over the last minute.
double LoadAverage();

// `ddprun rendezvous` as a process of its own, with a journal. Threads: the loop's.
class ServiceUnderLoad {
 public:
  // Params: folder: for its journal and its event log; exists.
  ServiceUnderLoad(EventLoop* loop, std::string program, std::string folder)
      : loop_(loop), program_(std::move(program)), folder_(std::move(folder)) {}
  ~ServiceUnderLoad();
  ServiceUnderLoad(const ServiceUnderLoad&) = delete;
  ServiceUnderLoad& operator=(const ServiceUnderLoad&) = delete;

  // Starts the service, at the same port as before, and waits until it listens.
  absl::Status Start();
  // Kills the service with SIGKILL, as the kernel does when memory is short.
  void Kill();

  pid_t pid() const { return pid_; }
  int port() const { return port_; }
  // How often the service has logged this event, over all its starts.
  size_t Noted(const std::string& event) const;

 private:
  absl::Status AwaitReady();

  EventLoop* const loop_;
  const std::string program_;
  const std::string folder_;
  pid_t pid_ = 0;
  int port_ = 0;
  Fd words_;                        // the service's stderr
  std::unique_ptr<FdWatch> drain_;  // of words_
};

}  // namespace ddprun::bench

#endif  // DDPRUN_BENCH_LOAD_SERVICE_UNDER_LOAD_H_

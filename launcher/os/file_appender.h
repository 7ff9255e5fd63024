#ifndef DDPRUN_LAUNCHER_OS_FILE_APPENDER_H_
#define DDPRUN_LAUNCHER_OS_FILE_APPENDER_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/fd.h"

namespace ddprun::launcher {

// Appends to a file in libuv's helper threads, so that a hung disk or file server holds up neither
// the loop nor its heartbeats. One write at a time, in order. Lives on by itself until all is
// written; only the end of the process before that loses bytes.
// Threads: the loop's.
class FileAppender : public std::enable_shared_from_this<FileAppender> {
 public:
  // Opens or makes the file. Errors: of open(2) with the path.
  static absl::StatusOr<std::shared_ptr<FileAppender>> Open(EventLoop* loop,
                                                            const std::string& path);

  // Bound: the caller's, who waits for `on_idle` where it matters.
  void Append(std::string bytes);
  // True when all was written, or dropped after an error, which is told once.
  bool idle() const { return chunks_.empty(); }
  // Called on the loop each time it gets idle; nullptr for nobody.
  void set_on_idle(std::function<void()> on_idle) { on_idle_ = std::move(on_idle); }

 private:
  struct Write;
  FileAppender(EventLoop* loop, std::string path, Fd fd);
  void StartWrite();
  void OnWritten(ssize_t result);

  EventLoop* loop_;
  std::string path_;
  Fd fd_;
  std::deque<std::string> chunks_;  // the first one is being written
  size_t written_ = 0;              // of the first one
  bool failed_ = false;
  std::function<void()> on_idle_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_FILE_APPENDER_H_

#ifndef DDPRUN_LAUNCHER_OUTPUT_FILE_APPENDER_H_
#define DDPRUN_LAUNCHER_OUTPUT_FILE_APPENDER_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/fd.h"

namespace ddprun::launcher {

// Appends to a file in libuv's helper threads, so that a hung disk or file server holds up neither
// the loop nor its heartbeats. One write at a time, in order. Several streams may share an
// appender. It keeps itself alive until everything is written; bytes are lost only if the process
// ends first. Threads: the loop's.
class FileAppender : public std::enable_shared_from_this<FileAppender> {
 public:
  // Opens or makes the file, with the mode that the umask leaves. Errors: of open(2) with the path.
  static absl::StatusOr<std::shared_ptr<FileAppender>> Open(EventLoop* loop,
                                                            const std::string& path);

  // Unbounded: the caller must stop while full().
  void Append(std::string bytes);
  // True when everything was written, or dropped after an error, which is reported once.
  bool idle() const { return chunks_.empty(); }
  // True when 1 MiB or more waits to be written: the caller must pause its streams.
  bool full() const { return waiting_bytes_ >= kFullBytes; }
  // Calls `on_written` on the loop after each write, until Unlisten(). One for each `owner`.
  void Listen(const void* owner, std::function<void()> on_written);
  void Unlisten(const void* owner) { listeners_.erase(owner); }

 private:
  static constexpr size_t kFullBytes = 1 << 20;

  struct Write;
  FileAppender(EventLoop* loop, std::string path, Fd fd);
  void StartWrite();
  void OnWritten(ssize_t result);
  void Drop(size_t bytes);

  EventLoop* loop_;
  std::string path_;
  Fd fd_;
  std::deque<std::string> chunks_;  // the first ones are being written
  size_t written_ = 0;              // of the first one
  size_t waiting_bytes_ = 0;        // in chunks_, less written_
  bool failed_ = false;
  std::map<const void*, std::function<void()>> listeners_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OUTPUT_FILE_APPENDER_H_

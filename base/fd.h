#ifndef DDPRUN_BASE_FD_H_
#define DDPRUN_BASE_FD_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/instant.h"

namespace ddprun {

// Owns a file descriptor and closes it. Move-only.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Gives the descriptor up without closing it.
  int Release() { return std::exchange(fd_, -1); }
  // Closes what is held and takes `fd`.
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

struct FdPair {
  Fd first;   // pipe: the read end
  Fd second;  // pipe: the write end
};

// pipe2(2) with O_CLOEXEC. Errors: RESOURCE_EXHAUSTED — no descriptor is left.
absl::StatusOr<FdPair> MakePipe();

// Opens /dev/null for each of the descriptors 0 to 2 that is closed. Otherwise a socket may get
// such a number and receive what a program prints, and children would start without their standard
// streams.
void FillStandardStreams();

// socketpair(2) of SOCK_SEQPACKET with SOCK_CLOEXEC: messages keep their borders, and the death of
// one side is an end of file at the other.
absl::StatusOr<FdPair> MakeMessagePair();

// Sets or clears O_NONBLOCK.
absl::Status SetNonBlocking(int fd, bool on);

// Writes all bytes to a blocking descriptor, over short writes and EINTR.
absl::Status WriteAll(int fd, absl::string_view bytes);

// Waits for poll(2)'s `events` on `fd` (-1 = none). Params: peer: the one that is to
// answer, for errors: "the store". Errors: DEADLINE_EXCEEDED at the deadline.
absl::Status AwaitReady(int fd, int16_t events, Instant deadline,
                        absl::string_view peer = "the peer");

// Sends all bytes on a socket that doesn't block. Params: peer: as for AwaitReady(). Errors: of
// send(2) and AwaitReady().
absl::Status SendAll(int fd, absl::string_view bytes, Instant deadline,
                     absl::string_view peer = "the peer");

// Receives `size` bytes from such a socket. Errors: of recv(2) and AwaitReady(); UNAVAILABLE: the
// peer closed the connection.
absl::StatusOr<std::string> ReceiveAll(int fd, size_t size, Instant deadline,
                                       absl::string_view peer = "the peer");

// Lets this process, and those that it forks from now on, have as many descriptors as the hard
// limit allows: a service has one for each agent and more. Returns how many that are; 0 = unknown.
uint64_t RaiseDescriptorLimit();

// Undoes RaiseDescriptorLimit(), in a child that is to have the user's limit: programs with
// select(2) break where there may be more than 1024. Async-signal-safe.
void RestoreDescriptorLimit();

// Whether the hard limit allows `count` descriptors. Errors: RESOURCE_EXHAUSTED, with
// LimitAdvice().
absl::Status CheckDescriptors(uint64_t count);

// How many descriptors this process may have; 0 = unknown.
uint64_t DescriptorLimit();

// A process as a descriptor, with O_CLOEXEC. The parameter `whose` names the process in errors:
// "process 17". Errors: pidfd_open(2)'s, with PidfdAdvice() if the kernel or a filter refuses the
// call itself. Threads: any.
absl::StatusOr<Fd> OpenPidfd(pid_t pid, absl::string_view whose);

// Whether the kernel is too old for pidfds, or a seccomp filter refuses them, and what to do.
// Params: release: the kernel's, of uname(2): "5.10.0-32-amd64".
std::string PidfdAdvice(absl::string_view release);
// PidfdAdvice() for the running kernel.
std::string PidfdAdvice();

}  // namespace ddprun

#endif  // DDPRUN_BASE_FD_H_

#include "launcher/keeper/channel.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

constexpr char kInPacket = 'p';
constexpr char kInFile = 'f';
constexpr size_t kPacketBytesMax = 32 << 10;
constexpr size_t kFdsMax = 8;

using FdSpace = char[CMSG_SPACE(kFdsMax * sizeof(int))];

absl::StatusOr<Fd> ToMemoryFile(absl::string_view bytes) {
  Fd file(memfd_create("ddprun-message", MFD_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, "memfd_create");
  DDPRUN_RETURN_IF_ERROR(WriteAll(file.get(), bytes));
  return file;
}

absl::StatusOr<std::string> FromMemoryFile(int file) {
  struct stat info {};
  if (fstat(file, &info) != 0) return ErrnoStatus(errno, "fstat of a message");
  if (info.st_size < 0 || static_cast<size_t>(info.st_size) > kMessageBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a message of ", info.st_size, " bytes"));
  }
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::InvalidArgumentError("a message that ends early");
    done += static_cast<size_t>(n);
  }
  return bytes;
}

// Returns 0 or an errno.
int SendPacket(int channel, const Message& packet) {
  iovec io{.iov_base = const_cast<char*>(packet.bytes.data()), .iov_len = packet.bytes.size()};
  alignas(cmsghdr) FdSpace space{};
  msghdr header{};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  if (const size_t count = packet.fds.size(); count > 0) {
    header.msg_control = space;
    header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(count * sizeof(int));
    for (size_t i = 0; i < count; ++i) {
      const int fd = packet.fds[i].get();
      std::memcpy(CMSG_DATA(control) + i * sizeof(int), &fd, sizeof(int));
    }
  }
  while (sendmsg(channel, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

std::vector<Fd> TakeFds(msghdr* header) {
  std::vector<Fd> fds;
  for (cmsghdr* control = CMSG_FIRSTHDR(header); control != nullptr;
       control = CMSG_NXTHDR(header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

// Errors that say something about this message, not about the peer.
bool IsShortage(int error) {
  return error == ENOBUFS || error == ENOMEM || error == EMSGSIZE || error == ETOOMANYREFS;
}

}  // namespace

absl::Status Outbox::Send(absl::string_view bytes, std::vector<Fd> fds) {
  if (bytes.size() > kMessageBytesMax) {
    return absl::ResourceExhaustedError(absl::StrCat("a message of ", bytes.size(),
                                                     " bytes to the keeper; at most ",
                                                     kMessageBytesMax, " can be sent"));
  }
  if (waiting_.size() >= kWaitingMax) {
    return absl::ResourceExhaustedError("too many messages wait for the keeper");
  }
  Message packet{.bytes = std::string(1, kInPacket), .fds = std::move(fds)};
  if (bytes.size() < kPacketBytesMax) {
    absl::StrAppend(&packet.bytes, bytes);
  } else {
    auto file = ToMemoryFile(bytes);
    if (!file.ok()) return absl::ResourceExhaustedError(file.status().message());
    packet.bytes[0] = kInFile;
    packet.fds.insert(packet.fds.begin(), *std::move(file));
  }
  int error = waiting_.empty() ? SendPacket(channel_, packet) : EAGAIN;
  if (error == EAGAIN) {
    waiting_.push_back(std::move(packet));
    error = 0;
  }
  if (error == 0) return absl::OkStatus();
  absl::Status status = ErrnoStatus(error, "send to the keeper channel");
  return IsShortage(error) ? absl::ResourceExhaustedError(status.message()) : status;
}

absl::Status Outbox::Flush() {
  while (!waiting_.empty()) {
    const int error = SendPacket(channel_, waiting_.front());
    if (error == EAGAIN || error == ENOBUFS || error == ENOMEM || error == ETOOMANYREFS) break;
    if (error != 0) return ErrnoStatus(error, "send to the keeper channel");
    waiting_.pop_front();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Message>> ReceiveMessage(int channel) {
  Message message{.bytes = std::string(kPacketBytesMax + 1, '\0')};
  iovec io{.iov_base = message.bytes.data(), .iov_len = message.bytes.size()};
  alignas(cmsghdr) FdSpace space{};
  msghdr header{};
  header.msg_iov = &io;
  header.msg_iovlen = 1;
  header.msg_control = space;
  header.msg_controllen = sizeof(space);
  ssize_t n = 0;
  do {
    n = recvmsg(channel, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // A peer that is gone and has left a message of ours unread; told once, before its last words.
  } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  if (n < 0 && errno == EAGAIN) return std::nullopt;
  if (n <= 0) return absl::OutOfRangeError("the peer has closed the keeper channel");
  message.fds = TakeFds(&header);
  const bool cut = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  const char where = message.bytes[0];
  if (cut || (where != kInPacket && where != kInFile) ||
      (where == kInFile && message.fds.empty())) {
    return absl::InvalidArgumentError("a malformed packet on the keeper channel");
  }
  if (where == kInPacket) {
    message.bytes.resize(static_cast<size_t>(n));
    message.bytes.erase(0, 1);
    return message;
  }
  DDPRUN_ASSIGN_OR_RETURN(message.bytes, FromMemoryFile(message.fds.front().get()));
  message.fds.erase(message.fds.begin());
  return message;
}

}  // namespace ddprun::launcher

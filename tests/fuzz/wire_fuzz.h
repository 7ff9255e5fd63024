#ifndef DDPRUN_TESTS_FUZZ_WIRE_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_WIRE_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ddprun::rendezvous {

class WireWorld;

struct WireFuzzResult {
  std::string problem;   // "" = none
  uint64_t refused = 0;  // streams and calls
  uint64_t welcomed = 0;
  uint64_t assigned = 0;
};

// Plays bytes into a real service over its wire: streams of messages and calls, whole, damaged and
// raw. The first byte says whether it is a stranger who speaks, or members with the token. To the
// service they are on another machine. A stranger is never welcomed, hears nothing, and changes
// nothing of a job that is there; members may break what is theirs. Whatever is said, every stream
// and call ends, and the service answers and holds little.
class WireFuzz {
 public:
  explicit WireFuzz(std::string token = "the token of this service, which nobody guesses");
  ~WireFuzz();

  WireFuzzResult Play(const uint8_t* data, size_t size);

 private:
  std::unique_ptr<WireWorld> world_;
  uint64_t inputs_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_FUZZ_WIRE_FUZZ_H_

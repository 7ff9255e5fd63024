#ifndef DDPRUN_BASE_STRONG_H_
#define DDPRUN_BASE_STRONG_H_

#include <compare>
#include <utility>

namespace ddprun {

// A value that can't be mixed up with others of its representation: Strong<struct RankTag, int>.
template <typename Tag, typename Value>
class Strong {
 public:
  using value_type = Value;

  constexpr Strong() = default;
  constexpr explicit Strong(Value value) : value_(std::move(value)) {}

  constexpr const Value& value() const { return value_; }
  friend constexpr auto operator<=>(const Strong&, const Strong&) = default;

  // The next number; for counters.
  constexpr Strong Next() const { return Strong(static_cast<Value>(value_ + 1)); }

 private:
  Value value_{};
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_STRONG_H_

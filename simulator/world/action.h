// A callable that is run once: move-only, without an allocation for up to 88 bytes of captures. The scheduler holds
// hundreds of thousands of them.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace fluvial::simulator {

class Action {
 public:
  Action() = default;
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, Action> && std::is_invocable_v<std::remove_cvref_t<F>&>)
  Action(F&& function) {  // NOLINT(google-explicit-constructor): written where a lambda is given
    using Held = std::remove_cvref_t<F>;
    if constexpr (sizeof(Held) <= kInlineBytes && std::is_nothrow_move_constructible_v<Held>) {
      new (static_cast<void*>(storage_)) Held(std::forward<F>(function));
      verbs_ = &kInlineVerbs<Held>;
    } else {
      new (static_cast<void*>(storage_)) std::unique_ptr<Held>(std::make_unique<Held>(std::forward<F>(function)));
      verbs_ = &kHeapVerbs<Held>;
    }
  }
  Action(Action&& other) noexcept { take(other); }
  Action& operator=(Action&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Action() { reset(); }

  explicit operator bool() const { return verbs_ != nullptr; }
  void operator()() { verbs_->call(storage_); }

 private:
  static constexpr std::size_t kInlineBytes = 88;
  struct Verbs {
    void (*call)(std::byte*);
    void (*move)(std::byte* from, std::byte* to);
    void (*destroy)(std::byte*);
  };
  template <typename Held>
  static Held* as(std::byte* storage) {
    return std::launder(reinterpret_cast<Held*>(storage));  // NOLINT: what the constructor put there
  }
  template <typename Held>
  static constexpr Verbs kInlineVerbs = {
      [](std::byte* storage) { (*as<Held>(storage))(); },
      [](std::byte* from, std::byte* to) {
        new (static_cast<void*>(to)) Held(std::move(*as<Held>(from)));
        as<Held>(from)->~Held();
      },
      [](std::byte* storage) { as<Held>(storage)->~Held(); },
  };
  template <typename Held>
  static constexpr Verbs kHeapVerbs = {
      [](std::byte* storage) { (**as<std::unique_ptr<Held>>(storage))(); },
      [](std::byte* from, std::byte* to) {
        new (static_cast<void*>(to)) std::unique_ptr<Held>(std::move(*as<std::unique_ptr<Held>>(from)));
        std::destroy_at(as<std::unique_ptr<Held>>(from));
      },
      [](std::byte* storage) { std::destroy_at(as<std::unique_ptr<Held>>(storage)); },
  };

  void take(Action& other) {
    verbs_ = std::exchange(other.verbs_, nullptr);
    if (verbs_ != nullptr) verbs_->move(other.storage_, storage_);
  }
  void reset() {
    if (const Verbs* verbs = std::exchange(verbs_, nullptr)) verbs->destroy(storage_);
  }

  alignas(std::max_align_t) std::byte storage_[kInlineBytes];
  const Verbs* verbs_ = nullptr;
};

}  // namespace fluvial::simulator

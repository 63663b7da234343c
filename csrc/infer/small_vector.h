// A vector of trivially copyable items that keeps the first N inside: shapes are short.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>

namespace mithril::infer {

template <class T, size_t N>
class SmallVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  SmallVector() = default;
  explicit SmallVector(size_t n, T value = T()) { assign(n, value); }
  SmallVector(std::initializer_list<T> items) { append(items.begin(), items.size()); }
  explicit SmallVector(std::span<const T> items) { append(items.data(), items.size()); }
  SmallVector(const SmallVector& o) { append(o.data(), o.size_); }
  SmallVector& operator=(const SmallVector& o) {
    if (this != &o) {
      size_ = 0;
      append(o.data(), o.size_);
    }
    return *this;
  }

  T* data() { return heap_ ? heap_.get() : inline_; }
  const T* data() const { return heap_ ? heap_.get() : inline_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& back() { return data()[size_ - 1]; }
  operator std::span<const T>() const { return {data(), size_}; }  // NOLINT

  void clear() { size_ = 0; }
  void push_back(T item) {
    reserve(size_ + 1);
    data()[size_++] = item;
  }
  void assign(size_t n, T value) {
    size_ = 0;
    reserve(n);
    for (size_t i = 0; i < n; ++i) data()[i] = value;
    size_ = n;
  }
  void append(const T* items, size_t n) {
    if (n == 0) return;
    reserve(size_ + n);
    std::memcpy(data() + size_, items, n * sizeof(T));
    size_ += n;
  }
  void append(std::span<const T> items) { append(items.data(), items.size()); }
  void insert(size_t at, T item) {
    push_back(item);
    for (size_t i = size_ - 1; i > at; --i) data()[i] = data()[i - 1];
    data()[at] = item;
  }
  void erase(size_t at) {
    for (size_t i = at + 1; i < size_; ++i) data()[i - 1] = data()[i];
    --size_;
  }

 private:
  void reserve(size_t n) {
    if (n <= capacity_) return;
    size_t grown = capacity_ * 2;
    if (grown < n) grown = n;
    auto fresh = std::make_unique<T[]>(grown);
    if (size_ > 0) std::memcpy(fresh.get(), data(), size_ * sizeof(T));
    heap_ = std::move(fresh);
    capacity_ = grown;
  }

  size_t size_ = 0, capacity_ = N;
  T inline_[N];
  std::unique_ptr<T[]> heap_;
};

using DimList = SmallVector<uint32_t, 8>;  // dims of a shape

}  // namespace mithril::infer

// Shared by the stand-ins for NVIDIA's libraries: functions of the emulated driver, rounding.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>

namespace {

struct Stream;

/// Finds a function of the emulated driver, which is open by then.
template <class Function>
Function of_driver(const char* name) {
  static void* const driver = dlopen(std::getenv("MITHRIL_CUDA_LIB"), RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function>(driver == nullptr ? nullptr : dlsym(driver, name));
}
bool has_context() {
  static const auto ask = of_driver<bool (*)()>("emulated_has_context");
  return ask != nullptr && ask();
}
bool is_ours(uint64_t at, size_t size) {
  static const auto ask = of_driver<bool (*)(uint64_t, size_t)>("emulated_is_ours");
  return ask(at, size);
}
bool is_ours(const void* at, size_t size) { return is_ours(reinterpret_cast<uint64_t>(at), size); }
void give(Stream* stream, std::function<void()> one) {
  static const auto give =
      of_driver<void (*)(Stream*, const std::function<void()>*)>("emulated_give");
  give(stream, &one);
}

float as_tf32(float value) {  // 10 bits behind the point
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7f800000U) != 0x7f800000U) bits = (bits + 0x1000U) & ~0x1fffU;
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

/// bfloat16, as it is stored.
struct Bfloat16 {
  uint16_t bits;
  operator float() const {
    const uint32_t wide = uint32_t{bits} << 16;
    float out = 0;
    std::memcpy(&out, &wide, sizeof out);
    return out;
  }
  explicit Bfloat16(float value) {
    uint32_t wide = 0;
    std::memcpy(&wide, &value, sizeof wide);
    const bool is_nan = value != value;
    wide += is_nan ? 0 : 0x7fffU + ((wide >> 16) & 1U);
    bits = static_cast<uint16_t>(wide >> 16) | (is_nan ? 0x40 : 0);
  }
};

/// Tells whether a scale, which is read in the type of sums, is a number.
bool is_number(const void* at, bool is_double, double number) {
  double wide = 0;
  float narrow = 0;
  if (at == nullptr) return false;
  std::memcpy(is_double ? static_cast<void*>(&wide) : &narrow, at, is_double ? 8 : 4);
  return (is_double ? wide : static_cast<double>(narrow)) == number;
}

}  // namespace

#include "core/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "core/checked.h"
#include "core/json.h"

namespace mithril::core {
namespace {

constexpr size_t kMostDims = 64;
constexpr std::array<std::pair<DType, std::string_view>, 10> kNames{{{DType::kBool, "BOOL"},
                                                                     {DType::kUInt8, "U8"},
                                                                     {DType::kInt8, "I8"},
                                                                     {DType::kInt16, "I16"},
                                                                     {DType::kInt32, "I32"},
                                                                     {DType::kInt64, "I64"},
                                                                     {DType::kFloat16, "F16"},
                                                                     {DType::kBFloat16, "BF16"},
                                                                     {DType::kFloat32, "F32"},
                                                                     {DType::kFloat64, "F64"}}};

std::optional<DType> parse_name(std::string_view text) {
  for (const auto& [dtype, name] : kNames) {
    if (name == text) return dtype;
  }
  return std::nullopt;
}

std::vector<int64_t> read_sizes(JsonReader& in) {
  std::vector<int64_t> out;
  in.begin_array();
  while (in.next_item()) {
    out.push_back(in.read_integer(0, std::numeric_limits<int64_t>::max()));
    if (out.size() > kMostDims) in.fail("too many sizes", Code::kFileLimit);
  }
  return out;
}

TensorPlace read_place(JsonReader& in, std::string_view name) {
  TensorPlace out;
  out.name = name;
  std::string seen;
  in.begin_object();
  for (std::string_view key; in.next_key(key);) {
    if (key == "dtype") {
      const auto dtype = parse_name(in.read_string());
      if (!dtype) in.fail("a dtype that is not known here");
      out.dtype = dtype.value_or(DType::kBool);
    } else if (key == "shape") {
      out.shape = read_sizes(in);
    } else if (key == "data_offsets") {
      const std::vector<int64_t> offsets = read_sizes(in);
      if (offsets.size() != 2) in.fail("requires where the data begin and end");
      if (offsets.size() == 2) std::tie(out.begin, out.end) = std::pair(offsets[0], offsets[1]);
    } else {
      in.fail("a tensor has dtype, shape and data_offsets");
    }
    seen += key.size() < 2 ? '?' : key[1];
  }
  std::sort(seen.begin(), seen.end());
  if (seen != "aht") in.fail("a tensor has dtype, shape and data_offsets, each once");
  const auto count = element_count(out.shape);
  const auto bytes = count ? checked_mul(*count, static_cast<int64_t>(size_of(out.dtype))) : count;
  if (out.begin > out.end || bytes != out.end - out.begin) {
    in.fail("the data of a tensor do not fill its shape");
  }
  return out;
}

Status check_places(std::vector<TensorPlace>& places, int64_t data_size) {
  const auto refuse = [](std::string_view problem) {
    return fail(ErrorKind::kParse, Code::kParse, "safetensors header: {}", problem);
  };
  std::vector<std::string_view> names;
  for (const TensorPlace& place : places) names.push_back(place.name);
  std::sort(names.begin(), names.end());
  if (std::adjacent_find(names.begin(), names.end()) != names.end()) {
    return refuse("two tensors of one name");
  }
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t at = 0;
  for (const TensorPlace& place : places) {
    if (place.begin != at) return refuse("tensors that overlap or leave a hole");
    at = place.end;
  }
  if (at != data_size) return refuse("tensors that do not fill the file");
  return {};
}

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const auto& [known, name] : kNames) {
    if (known == dtype) return name;
  }
  return "";
}

Result<std::vector<TensorPlace>> read_safetensors(std::string_view header, int64_t data_size) {
  std::vector<TensorPlace> places;
  JsonReader in(header, "safetensors header");
  in.begin_object();
  for (std::string_view key; in.next_key(key);) {
    key == "__metadata__" ? in.skip() : places.push_back(read_place(in, key));
  }
  in.finish();
  MITHRIL_RETURN_IF_ERROR(in.status());
  MITHRIL_RETURN_IF_ERROR(check_places(places, data_size));
  return places;
}

}  // namespace mithril::core

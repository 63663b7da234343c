#include "model/files/type.h"

#include <algorithm>
#include <cmath>

namespace mithril::model {

using core::Code;
using core::ErrorKind;
using core::JsonReader;
using core::JsonWriter;
using infer::Container;
using infer::KindSet;
using infer::Type;

namespace {

constexpr int kMaxDepth = HostValue::kMaxDepth;
// Of one type: the work of two that meet is the product of theirs.
constexpr size_t kMostParts = 1024;

std::string_view tag_of(const Container& container) {
  if (container.any_length) return container.is_list ? "list_of" : "tuple_of";
  return container.is_list ? "list" : "tuple";
}

bool restricts(const std::vector<Container>& containers, KindSet kind) {
  return std::any_of(containers.begin(), containers.end(),
                     [kind](const Container& c) { return c.kind() == kind; });
}

// --- writing ------------------------------------------------------------------------------------

class TypeWriter {
 public:
  TypeWriter(JsonWriter& out, std::string_view what) : out_(out), what_(what) {}

  void write(const std::vector<Container>& containers, int depth) {
    for (const Container& container : containers) {
      count(depth);
      out_.begin_object();
      out_.key(tag_of(container));
      if (container.any_length) {
        write(container.items[0], depth + 1);
      } else {
        out_.begin_array();
        for (const Type& item : container.items) write(item, depth + 1);
        out_.end_array();
      }
      out_.end_object();
    }
  }

 private:
  void write(const Type& type, int depth) {
    count(depth);
    KindSet plain = type.kinds;
    for (const Container& container : type.containers) plain = plain - container.kind();
    out_.begin_array(type.is_plain());
    for (int i = 0; i < infer::kValueKindCount; ++i) {
      const auto kind = static_cast<infer::ValueKind>(i);
      if (plain.has(kind)) out_.string(infer::spelling(kind));
    }
    write(type.containers, depth);
    out_.end_array();
  }

  void count(int depth) {
    if (++parts_ <= kMostParts && depth <= kMaxDepth) return;
    throw core::ErrorException(
        core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                   "{} has a type of more than {} parts or {} levels, which no model file holds",
                   what_, kMostParts, kMaxDepth));
  }

  JsonWriter& out_;
  std::string_view what_;
  size_t parts_ = 0;
};

// --- reading ------------------------------------------------------------------------------------

class TypeReader {
 public:
  explicit TypeReader(JsonReader& in) : in_(in) {}

  Container container(int depth) {
    Container out;
    std::string_view tag;
    if (!count(depth)) return out;
    in_.begin_object();
    if (!in_.next_key(tag)) {
      in_.fail("requires a container, got an empty object");
      return out;
    }
    out.is_list = tag == "list" || tag == "list_of";
    out.any_length = tag == "tuple_of" || tag == "list_of";
    if (out.any_length) {
      out.items.push_back(type(depth + 1));
    } else if (tag == "tuple" || tag == "list") {
      in_.begin_array();
      while (in_.next_item()) out.items.push_back(type(depth + 1));
    } else {
      in_.fail(fmt::format("no container is called '{}'", tag.substr(0, 40)));
    }
    if (in_.next_key(tag)) in_.fail("a container has one key");
    return out;
  }

 private:
  Type type(int depth) {
    Type out;
    if (!count(depth)) return out;
    in_.begin_array();
    while (in_.next_item()) {
      if (in_.peek() == JsonReader::Type::kObject) {
        out.containers.push_back(container(depth));
        continue;
      }
      const std::string_view spelling = in_.read_string();
      const auto kind = infer::parse_kind(spelling);
      if (!kind) in_.fail(fmt::format("no type is called '{}'", spelling.substr(0, 40)));
      if (kind) out.kinds = out.kinds | *kind;
    }
    for (const KindSet kind : {infer::kTupleKind, infer::kListKind}) {
      if (!restricts(out.containers, kind)) continue;
      if (out.kinds.meets(kind)) in_.fail("a container that may hold anything and does not");
      out.kinds = out.kinds | kind;
    }
    if (out.kinds.empty()) in_.fail("requires at least one type");
    return out;
  }

  bool count(int depth) {
    if (++parts_ <= kMostParts && depth <= kMaxDepth) return true;
    in_.fail(depth > kMaxDepth ? "a type that is nested too deep" : "a type of too many parts",
             Code::kFileLimit);
    return false;
  }

  JsonReader& in_;
  size_t parts_ = 0;
};

HostValue read_end(JsonReader& in) {
  if (in.peek() == JsonReader::Type::kNumber) {
    return in.is_integer() ? HostValue(in.read_integer()) : HostValue(in.read_number());
  }
  if (in.peek() == JsonReader::Type::kObject) {
    HostValue end = ValueReader(in).read();
    if (end.is_double() && !std::isnan(end.as_double())) return end;
    in.fail("an end of an interval is a number or null");
    return {};
  }
  in.read_null();
  return {};
}

}  // namespace

void write_type(JsonWriter& out, const Type& type, std::string_view what) {
  out.key("type");
  write_kinds(out, type.kinds);
  if (type.is_plain()) return;
  out.key("containers");
  out.begin_array();
  TypeWriter(out, what).write(type.containers, 0);
  out.end_array();
}

void write_interval(JsonWriter& out, const infer::Interval& interval) {
  out.key("type");
  write_kinds(out, kMeasured);
  out.key("interval");
  const auto is_infinite = [](const HostValue& end) {
    return end.is_double() && !std::isfinite(end.as_double());
  };
  out.begin_array(!is_infinite(interval.low) && !is_infinite(interval.high));
  for (const HostValue* end : {&interval.low, &interval.high})
    write_value(out, *end, "an interval");
  out.end_array();
}

std::vector<Container> read_containers(JsonReader& in) {
  TypeReader reader(in);
  std::vector<Container> out;
  in.begin_array();
  while (in.next_item()) out.push_back(reader.container(0));
  if (out.empty()) in.fail("requires at least one container");
  return out;
}

infer::Interval read_interval(JsonReader& in) {
  infer::Interval out;
  std::vector<HostValue> ends;
  in.begin_array();
  while (in.next_item()) {
    ends.push_back(read_end(in));
    if (ends.size() > 2) in.fail("an interval has two ends");
  }
  if (ends.size() != 2) {
    in.fail("an interval has two ends");
    return out;
  }
  out = {std::move(ends[0]), std::move(ends[1])};
  const bool is_empty =
      !out.low.is_none() && !out.high.is_none() && out.low.as_number() > out.high.as_number();
  if (is_empty) in.fail("an interval whose low end is above its high end");
  return out;
}

bool fits(const Type& type) {
  return std::all_of(type.containers.begin(), type.containers.end(),
                     [&](const Container& c) { return type.kinds.meets(c.kind()); });
}

}  // namespace mithril::model

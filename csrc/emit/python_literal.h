// Host values and numbers as Python text.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "core/host_value.h"
#include "core/status.h"

namespace mithril::emit {

/// Tells whether `name` can follow `ops.` or stand before `=` in a call.
bool is_python_name(std::string_view name);

/// The shortest text that reads back as the bool, int or double in `dtype`: 0.1, 3.0, inf, True.
std::string python_number(const core::HostValue& number, core::DType dtype);

/// Tells how a dtype is spelled: "ops.float32", "ops.bool_".
std::string python_dtype(core::DType dtype);

struct PythonLiterals {
  std::function<std::string(core::SymbolicInt)> size;  // of a size expression
  std::function<std::string(const core::HostValue&)>
      constant;  // of a tensor, string or object: "C[3]"
};

/// Text of any host value.
std::string python_literal(const core::HostValue& value, const PythonLiterals& literals);

}  // namespace mithril::emit

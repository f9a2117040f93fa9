#include "tokenizer/char_class.h"

#include <utf8proc.h>

#include <array>

namespace kvasir {
namespace {

uint16_t class_of_category(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kLetter | kUpper;
    case UTF8PROC_CATEGORY_LL:
      return kLetter | kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter | kUpper | kLower;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark | kUpper | kLower;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return kSpace;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kRest | kSymbol;
    default:
      return code == 0x85 ? kSpace : kRest;
  }
}

constexpr std::array<uint16_t, 128> make_ascii_classes() {
  std::array<uint16_t, 128> classes{};
  for (char c = 0; c >= 0 && c < 127; ++c) {
    uint16_t& bits = classes[static_cast<unsigned char>(c)];
    if (c >= 'A' && c <= 'Z') {
      bits = kLetter | kUpper;
    } else if (c >= 'a' && c <= 'z') {
      bits = kLetter | kLower;
    } else if (c >= '0' && c <= '9') {
      bits = kNumber;
    } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
      bits = c == '\n' || c == '\r' ? kSpace | kNewline : kSpace;
    } else if (c > ' ') {
      bits = c == '/' ? kRest | kSymbol | kSlash : kRest | kSymbol;
    } else {
      bits = kRest;
    }
  }
  classes[127] = kRest;
  return classes;
}

constexpr std::array<uint16_t, 128> kAsciiClasses = make_ascii_classes();

}  // namespace

uint16_t char_class(char32_t code) {
  return code < 128 ? kAsciiClasses[code] : class_of_category(code);
}

}  // namespace kvasir

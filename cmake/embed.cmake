# kvasir_embed(TARGET FILE NAME): the text of FILE as `extern const std::string_view kvasir::embedded::NAME`, declared by
# whoever uses it. Configures again when FILE changes.
function(kvasir_embed target file name)
  file(READ ${file} text)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.cc)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT
"#include <string_view>
namespace kvasir::embedded {
extern const std::string_view @name@;
const std::string_view @name@ = R\"embedded(@text@)embedded\";
}  // namespace kvasir::embedded
")
  target_sources(${target} PRIVATE ${source})
endfunction()

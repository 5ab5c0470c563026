# Optional parts. Each is AUTO (taken where it is installed), ON (required) or OFF; what is missing
# is said in one line while CMake configures.
#
# onnx_external_optional(NAME VARIABLE PACKAGE LOSS): adds the option ONNX_EXTERNAL_<NAME> and turns
# the part on or off. VARIABLE says whether it was found, PACKAGE is Debian's, LOSS is what a build
# without it lacks. Sets ONNX_EXTERNAL_WITH_<NAME>.
function(onnx_external_optional name found package loss)
  set(option ONNX_EXTERNAL_${name})
  set(${option} AUTO CACHE STRING "${loss} without it: AUTO, ON or OFF")
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
  set(with FALSE)
  if(${option} STREQUAL "AUTO")
    if(${found})
      set(with TRUE)
    else()
      message(NOTICE "-- without ${package}, which is not installed: ${loss}")
    endif()
  elseif(${option})
    if(NOT ${found})
      message(FATAL_ERROR "${option} is ON, and ${package} is not installed")
    endif()
    set(with TRUE)
  endif()
  set(ONNX_EXTERNAL_WITH_${name} ${with} PARENT_SCOPE)
endfunction()

# bash completion for save-external, verify-external, inspect-external, cut-external, and for
# onnx-external of the Python package. The options are those of the command's own --help; so are the
# words that stand for a choice.

_onnx_external() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words=
  local -a command=("$1")
  COMPREPLY=()
  if [[ $1 == *onnx-external ]]; then
    if ((COMP_CWORD == 1)); then
      words="save verify inspect cut export generate validate diagnose --help --version"
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
      return
    fi
    command+=("${COMP_WORDS[1]}")
  fi
  case $previous in
    --layout) words="per-tensor single shards inline link" ;;
    --dedup) words="storage content off" ;;
    --unmatched) words="strict skip keep" ;;
    --dtype) words="slot float32 float16 bfloat16 float64" ;;
    --convert) words="sparse complex32" ;;
    --checksum) words="sha1" ;;
    --exporter) words="export onnx torchscript" ;;
    --strategy) words="always failing local" ;;
    --asserts) words="omit refuse" ;;
    --graphs) words="one two" ;;
    --attention) words="fused lengths standard traced" ;;
    --sort) words="name size" ;;
    --quantize) words="int4 int8 keep" ;;
    --quantize-head) words="int8 int4 float" ;;
    --quantize-form) words="matmulnbits qdq" ;;
    --accuracy-level) words="0 4" ;;
    *)
      if [[ $current == -* ]]; then
        words=$("${command[@]}" --help 2>/dev/null | grep -oE '^  (-[a-z], )?--[a-z0-9-]+(, --[a-z0-9-]+)?' |
          grep -oE -- '-[-a-z0-9]+')
      fi ;;
  esac
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -F _onnx_external save-external verify-external inspect-external cut-external onnx-external
